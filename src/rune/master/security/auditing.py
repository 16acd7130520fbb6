"""The audit trail of requests: what routes say they did, and for what they do not, the route's name."""

from __future__ import annotations

import logging
import time
from typing import Any

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rune.core.errors import InfrastructureError
from rune.history.audit import AuditLog, Entry
from rune.master.security.roles import Principal, Role

__all__ = ["AuditTrail", "audit", "entry_for"]

_log = logging.getLogger("rune.master")

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST = 500


def entry_for(
    connection: HTTPConnection, action: str, object: str = "", outcome: str = "ok", /, **details: Any
) -> Entry:
    """The entry for what a request does, to be written in the transaction that does it."""
    principal: Principal | None = getattr(connection.state, "principal", None)
    connection.state.audited = True
    return Entry.new(
        time.time(),
        action,
        account_id=principal.id if principal else "",
        account=principal.name if principal else "",
        via=principal.via if principal else "",
        address=address_of(connection),
        object=object[:_LONGEST],
        outcome=outcome,
        details=details,
    )


async def audit(
    connection: HTTPConnection, action: str, object: str = "", outcome: str = "ok", /, **details: Any
) -> None:
    """Write down what a request did: `audit(request, "execution.cancel", id, reason=…)`; never a secret."""
    entry = entry_for(connection, action, object, outcome, **details)
    await connection.app.state.gate.log.add(entry)


def address_of(connection: HTTPConnection) -> str:
    """Where a request comes from."""
    return connection.client.host if connection.client else ""


class AuditTrail:
    """Middleware that writes the entry of a change whose route wrote none."""

    def __init__(self, app: ASGIApp, log: AuditLog) -> None:
        self._app = app
        self._trail = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _SAFE:
            await self._app(scope, receive, send)
            return
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            connection = HTTPConnection(scope)
            if _is_untold(connection, status):
                await self._add(_told_by_route(connection, status))

    async def _add(self, entry: Entry) -> None:
        try:
            await self._trail.add(entry)
        except InfrastructureError as error:
            # The answer has been sent; what the database cannot take, the log keeps.
            _log.error("%s; not in the audit trail: %s", error, msgspec.json.encode(entry).decode())


def _is_untold(connection: HTTPConnection, status: int) -> bool:
    state = connection.state
    # What needs no more than a look is a question, such as whether a workflow is valid.
    changing = getattr(state, "needed", Role.VIEWER) > Role.VIEWER
    return changing and not getattr(state, "audited", False) and not 400 <= status < 500


def _told_by_route(connection: HTTPConnection, status: int) -> Entry:
    route = connection.scope.get("route")
    object = "/".join(str(value) for value in connection.path_params.values())
    outcome = "ok" if status < 400 else "failed"
    return entry_for(connection, getattr(route, "name", connection.url.path), object, outcome, status=status)
