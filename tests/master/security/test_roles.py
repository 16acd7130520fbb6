"""Every route with every role: what is not declared is not let through."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute, iter_route_contexts
from starlette.routing import Mount

from rune.master.app import create_app
from rune.master.security.roles import Needs, Role
from tests.master.client import Api, open_api
from tests.master.security.people import Person

SAFE = {"GET", "HEAD", "OPTIONS"}


class Known(NamedTuple):
    """A route, and who may use it; None is everybody."""

    method: str
    path: str
    role: Role | None

    @property
    def url(self) -> str:
        """Its address, of things that are not there."""
        numbers = {"version": "1", "n": "1", "index": "0"}
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: numbers.get(found[1], "nothing"), self.path)
        return path


def declared(dependant: Dependant) -> list[Role | None]:
    own = [dependant.call.role] if isinstance(dependant.call, Needs) else []
    return own + [role for inner in dependant.dependencies for role in declared(inner)]


def walk(routes: Any) -> Iterator[Known]:
    """Every route of an application; one that does not say who may use it is a mistake."""
    for context in iter_route_contexts(routes):
        route = context.original_route
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            # Only the files of the page need nobody's leave.
            assert isinstance(route, Mount), route
            continue
        roles = declared(context.dependant)
        assert roles, f"{context.path} does not say who may use it: needs(Role.…) or anyone"
        role = None if None in roles else max(role for role in roles if role is not None)
        methods = route.methods or () if isinstance(route, APIRoute) else {"WS"}
        yield from (Known(method, str(context.path), role) for method in sorted(methods))


@pytest.fixture
async def known(tmp_path: Path) -> list[Known]:
    async with open_api(tmp_path / "walked.db") as api:
        return list(walk(create_app(api.master).routes))


def test_roles_are_in_order() -> None:
    assert Role.VIEWER < Role.OPERATOR < Role.EDITOR < Role.ADMIN
    assert [role.word for role in Role] == ["viewer", "operator", "editor", "admin"]


async def test_everybody_s_routes_are_few(known: list[Known]) -> None:
    """A route that lets everybody in is named here, with its reason."""
    everybody = {route.path for route in known if route.role is None}
    allowed = {
        "/api/openapi.json",  # says nothing that is not in the source
        "/api/auth/login",
        "/api/auth/setup",
        "/login",
        "/setup",
        "/health/live",
        "/health/ready",
        "/",  # the page, which asks the API like anybody else
        "/web/{path:path}",
        "/favicon.ico",
    }
    # These have a secret in their address.
    hooks = {path for path in everybody if re.match(r"/(webhook|webhook-test|resume)/\{token\}", path)}
    assert everybody - allowed - hooks == set()


async def test_who_changes_something_needs_more_than_a_look(known: list[Known]) -> None:
    own = ("/api/auth/", "/api/tokens")
    changing = [route for route in known if route.method not in {*SAFE, "WS"} and route.role is not None]
    harmless = {"/api/workflows/validate", "/api/triggers/preview"}
    weak = {r.path for r in changing if r.role == Role.VIEWER and not r.path.startswith(own)}
    assert weak <= harmless


async def status(person: Person, route: Known) -> int:
    if route.method == "WS":
        return await shaken(person, route)
    # What is let through finds nothing, or a body that it cannot use.
    return (await person.ask(route.method, route.url, None if route.method in SAFE else {})).status


async def shaken(person: Person, route: Known) -> int:
    headers = dict(person.headers)
    if person.cookies:
        headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in person.cookies.items())
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        try:
            async with session.ws_connect(person._api.address + route.url, headers=headers):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status


async def test_every_route_with_every_role(strict: Api, known: list[Known], admin: Person) -> None:
    people = {role: admin if role == Role.ADMIN else await admin.employ(role) for role in Role}
    programs = {role: await admin.token(role) for role in Role}
    wrong = Person(strict, "rune_wrong")
    wrongs: list[str] = []

    async def expect(who: str, person: Person, route: Known, refused: int | None) -> None:
        got = await status(person, route)
        fine = got == refused if refused else got not in (401, 403) and got < 500
        if not fine:
            wrongs.append(f"{route.method} {route.path} as {who}: {got}, not {refused or 'let through'}")

    # What logs people out or in has tests of its own.
    tried = [r for r in known if not r.path.startswith("/api/auth/") or r.path == "/api/auth/me"]
    for route in tried:
        if route.role is None:
            continue
        hidden = 403 if route.method == "WS" else 401
        tries = [
            expect("nobody", Person(strict), route, hidden),
            expect("a wrong token", wrong, route, hidden),
        ]
        for role in Role:
            refused = 403 if role < route.role else None
            tries.append(expect(f"a {role.word}", people[role], route, refused))
            tries.append(expect(f"a {role.word}'s token", programs[role], route, refused))
        await asyncio.gather(*tries)
    assert wrongs == []
    assert len(tried) > 30


async def test_what_a_role_may_not_do_leaves_no_trace_but_in_the_audit_log(admin: Person) -> None:
    viewer = await admin.employ(Role.VIEWER)
    answer = await viewer.ask("POST", "/api/users", {"name": "eve", "password": "x" * 12, "role": "admin"})
    found = answer.problem(403, "FORBIDDEN")
    assert found["detail"] == "this needs the role admin; you have viewer"
    names = [user["name"] for user in (await admin.ask("GET", "/api/users")).json["items"]]
    assert names == ["a-viewer", "admin"]
    entry = (await admin.ask("GET", "/api/audit?action=access")).json["items"][0]
    assert (entry["account"], entry["outcome"], entry["object"]) == ("a-viewer", "denied", "/api/users")
