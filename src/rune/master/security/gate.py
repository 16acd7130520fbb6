"""The gate: tells who makes a request, and lets through who may."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.exceptions import WebSocketException
from starlette.requests import HTTPConnection

from rune.history.accounts import Accounts
from rune.history.audit import AuditLog
from rune.history.database import Database
from rune.history.keys import Bearer, Sessions, Tokens
from rune.master.problems import HttpProblem
from rune.master.security.auditing import AuditTrail, audit
from rune.master.security.bearers import PREFIX, digest
from rune.master.security.headers import SecurityHeaders
from rune.master.security.origins import HEADER, Origins
from rune.master.security.passwords import Passwords
from rune.master.security.roles import Principal, Role
from rune.master.security.throttle import Throttle
from rune.settings import Settings

__all__ = ["Gate", "secure"]

_EVERYBODY = Principal("", "local", Role.ADMIN, "open")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """Who is who. Without accounts everybody is an admin, as long as no other site's page is speaking."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        accounts: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.required = accounts
        self.accounts = Accounts(database, clock)
        self.sessions = Sessions(database, settings.session_idle, settings.session_max, clock)
        self.tokens = Tokens(database, clock)
        self.log = AuditLog(database)
        self.passwords = Passwords()
        self.throttle = Throttle()
        self.origins = Origins([settings.host], settings.public_url)
        self.https = urlsplit(settings.public_url or "").scheme == "https"

    async def admit(self, connection: HTTPConnection, role: Role) -> Principal:
        """The principal of a request that needs a role; a problem if it may not be made."""
        try:
            return await self._admitted(connection, role)
        except HttpProblem as problem:
            if connection.scope["type"] == "websocket":
                raise WebSocketException(1008, str(problem.detail)) from problem
            raise

    async def _admitted(self, connection: HTTPConnection, role: Role) -> Principal:
        principal = await self.identify(connection)
        if principal is None:
            raise HttpProblem(
                401,
                "UNAUTHENTICATED",
                "log in, or send a token: `Authorization: Bearer rune_…`",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if principal.via != "token":
            self.check_origin(connection, strict=principal.via == "session")
        connection.state.principal = principal
        connection.state.needed = role
        if principal.role < role:
            if connection.scope.get("method") not in _SAFE:
                await audit(connection, "access", connection.url.path, "denied", needs=role.word)
            raise HttpProblem(
                403, "FORBIDDEN", f"this needs the role {role.word}; you have {principal.role.word}"
            )
        return principal

    def check_origin(self, connection: HTTPConnection, *, strict: bool) -> None:
        """Refuse what another site's page sends; without accounts, also what it sends under its own name."""
        if not self.required and not self.origins.is_ours(connection):
            raise HttpProblem(
                403,
                "FOREIGN_HOST",
                "without accounts only requests to this machine by its own name are answered; "
                "name the address people use in RUNE_PUBLIC_URL, and set RUNE_ACCOUNTS=true",
            )
        if not self.origins.is_same(connection, strict=strict):
            raise HttpProblem(
                403,
                "CROSS_ORIGIN",
                "this comes from another site's page, or does not say where from, and is not answered; "
                f"a program with a session sends `{HEADER.title()}: 1`, one with a token need not",
            )

    async def identify(self, connection: HTTPConnection) -> Principal | None:
        """Who makes a request, if anybody that is known."""
        if not self.required:
            return _EVERYBODY
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            known = token.startswith(PREFIX)
            return _principal(await self.tokens.find(digest(token.strip())), "token") if known else None
        session = connection.cookies.get(self.cookie(connection))
        return _principal(await self.sessions.find(digest(session)), "session") if session else None

    async def still_knows(self, principal: Principal) -> bool:
        """Whether who was let in would be let in again: for answers that go on for long."""
        match principal.via:
            case "session":
                return await self.sessions.lives(principal.key)
            case "token":
                return await self.tokens.lives(principal.key)
        return True

    def is_secure(self, connection: HTTPConnection) -> bool:
        """Whether the browser speaks https to us, or to the proxy before us."""
        return self.https or connection.url.scheme in ("https", "wss")

    def cookie(self, connection: HTTPConnection) -> str:
        """The name of the session's cookie; over https one that no other host can set."""
        return "__Host-rune_session" if self.is_secure(connection) else "rune_session"


def _principal(bearer: Bearer | None, via: str) -> Principal | None:
    if bearer is None:
        return None
    return Principal(bearer.account, bearer.name, Role(bearer.role), via, bearer.key)


def secure(app: FastAPI, gate: Gate) -> None:
    """Put an application behind a gate; after all other middleware, so that this lies around it."""
    app.state.gate = gate
    app.add_middleware(AuditTrail, log=gate.log)
    app.add_middleware(SecurityHeaders, https=gate.https)
