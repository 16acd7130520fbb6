"""Streams end when who watches may not watch any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from rune.core.errors import InfrastructureError
from rune.master.live import streaming
from rune.master.security.roles import Role
from tests.master.client import Api, flow_of, sleeper
from tests.master.security.people import Person
from tests.master.streams import Stream

_Expel = Callable[[Person, Person], Awaitable[object]]


async def id_of(admin: Person, name: str) -> str:
    users = (await admin.ask("GET", "/api/users")).json["items"]
    return next(str(user["id"]) for user in users if user["name"] == name)


async def disabled(admin: Person, viewer: Person) -> None:
    await admin.ask("PATCH", f"/api/users/{await id_of(admin, 'a-viewer')}", {"disabled": True})


async def removed(admin: Person, viewer: Person) -> None:
    await admin.ask("DELETE", f"/api/users/{await id_of(admin, 'a-viewer')}")


async def logged_out(admin: Person, viewer: Person) -> None:
    await viewer.ask("POST", "/api/auth/logout", {})


async def revoked(admin: Person, viewer: Person) -> None:
    for token in (await admin.ask("GET", "/api/tokens?all=true")).json["items"]:
        assert (await admin.ask("DELETE", f"/api/tokens/{token['id']}")).status == 204


@pytest.fixture
async def execution(admin: Person, monkeypatch: pytest.MonkeyPatch) -> str:
    """One that goes on for long."""
    monkeypatch.setattr(streaming, "ASK", 0.05)
    started = await admin.ask("POST", "/api/executions", {"definition": flow_of(sleeper())})
    return str(started.json["id"])


def headers_of(person: Person) -> dict[str, str]:
    cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    return {**person.headers, **({"Cookie": cookie} if cookie else {})}


@pytest.mark.parametrize(
    ("program", "expel"),
    [(False, disabled), (False, removed), (False, logged_out), (True, disabled), (True, revoked)],
)
async def test_who_may_not_watch_any_more_is_cut(
    strict: Api, admin: Person, execution: str, program: bool, expel: _Expel
) -> None:
    viewer = await admin.employ(Role.VIEWER)
    watcher = await viewer.token(Role.VIEWER) if program else viewer
    paths = [f"/api/executions/{execution}/live", "/api/live"]
    async with aiohttp.ClientSession(headers=headers_of(watcher), read_bufsize=2**20) as session:
        streams = [Stream(await session.get(strict.address + path)) for path in paths]
        for stream in streams:
            assert (await stream.next()) is not None
        async with session.ws_connect(f"{strict.address}{paths[0]}/ws") as socket:
            assert (await socket.receive_json())["event"] == "snapshot"
            # Nobody is cut who may watch.
            await asyncio.sleep(0.2)
            assert strict.master.live.open == 3
            await expel(admin, viewer)
            async with asyncio.timeout(20):
                while (await socket.receive()).type is not aiohttp.WSMsgType.CLOSE:
                    pass
            assert socket.close_code == 1008
        for stream in streams:
            await stream.all()
        async with session.get(strict.address + paths[0]) as refused:
            assert refused.status == 401
    while strict.master.live.open:
        await asyncio.sleep(0.01)


async def test_nobody_is_cut_while_it_cannot_be_told(
    strict: Api, admin: Person, execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def away(self: object, hash: str) -> bool:
        nonlocal asked
        asked += 1
        raise InfrastructureError("the database is out of reach")

    monkeypatch.setattr("rune.history.keys.Sessions.lives", away)
    async with (
        aiohttp.ClientSession(headers=headers_of(admin)) as session,
        session.get(f"{strict.address}/api/live") as response,
    ):
        assert (await Stream(response).next()) is not None
        while asked < 3:
            await asyncio.sleep(0.01)
        assert strict.master.live.open == 1
