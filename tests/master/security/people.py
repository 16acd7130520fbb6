"""People and programs that talk to a master with accounts."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from rune.master.security.roles import Role
from tests.master.client import Answer, Api, open_api

__all__ = ["PASSWORD", "Person", "with_accounts"]

PASSWORD = "correct horse battery"


def with_accounts(database: Path, **settings: Any) -> AbstractAsyncContextManager[Api]:
    """A master where one has to log in; there is an admin."""
    return open_api(database, accounts=True, admin_password=PASSWORD, **settings)


class Person:
    """Sends requests as a page of the master's own does, with a cookie, or as a program, with a token."""

    def __init__(self, api: Api, token: str = "") -> None:
        self._api = api
        self.cookies: dict[str, str] = {}
        self.headers = {"Origin": api.address} if not token else {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request."""
        cookie = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())} if self.cookies else {}
        sent = {**self.headers, **cookie, **{k.replace("_", "-"): v for k, v in headers.items()}}
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        # The session itself keeps no cookies of bare addresses.
        async with self._api._session.request(
            method, self._api.address + path, data=data, headers={**kind, **sent}, allow_redirects=False
        ) as response:
            for name, morsel in response.cookies.items():
                self.cookies[name] = morsel.value
            found = {name.lower(): value for name, value in response.headers.items()}
            # A stream has no end to wait for.
            streams = response.content_type == "text/event-stream"
            return Answer(response.status, found, b"" if streams else await response.read())

    async def log_in(self, name: str = "admin", password: str = PASSWORD) -> Answer:
        """Log in."""
        return await self.ask("POST", "/api/auth/login", {"name": name, "password": password})

    async def employ(self, role: Role) -> Person:
        """Somebody with this role, logged in; for an admin to do."""
        name = f"a-{role.word}"
        body = {"name": name, "password": PASSWORD, "role": role.word}
        assert (await self.ask("POST", "/api/users", body)).status == 201
        person = Person(self._api)
        assert (await person.log_in(name)).status == 200
        return person

    async def token(self, role: Role, **more: Any) -> Person:
        """A program of this person's, with a token of its own."""
        body = {"name": "program", "role": role.word, **more}
        answer = await self.ask("POST", "/api/tokens", body)
        assert answer.status == 201, answer
        return Person(self._api, answer.json["token"])
