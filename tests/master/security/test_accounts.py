"""Accounts and tokens over the API, and the trail that changes leave."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import FastAPI

from rune.history.audit import AuditLog
from rune.master.security.gate import Gate, secure
from rune.master.security.roles import Role, needs
from rune.settings import Settings
from tests.master.client import Api, flow_of, sleeper
from tests.master.security.people import PASSWORD, Person


async def trail(admin: Person, action: str = "") -> list[tuple[str, str, str]]:
    found = (await admin.ask("GET", f"/api/audit?limit=500&action={action}")).json["items"]
    return [(entry["account"], entry["action"], entry["object"]) for entry in found]


async def test_an_account_s_life(admin: Person) -> None:
    body = {"name": "Ada", "password": PASSWORD, "role": "editor"}
    made = await admin.ask("POST", "/api/users", body)
    assert made.status == 201
    ada = made.json
    assert made.headers["location"] == f"/api/users/{ada['id']}"
    assert (ada["name"], ada["role"], ada["disabled"], ada["login_at"]) == ("ada", "editor", False, None)
    assert "password" not in ada
    (await admin.ask("POST", "/api/users", body)).problem(409, "NAME_TAKEN")
    path = f"/api/users/{ada['id']}"
    assert (await admin.ask("GET", path)).json == ada
    changed = await admin.ask("PATCH", path, {"role": "viewer", "disabled": True})
    assert (changed.json["role"], changed.json["disabled"]) == ("viewer", True)
    assert (await admin.ask("DELETE", path)).status == 204
    (await admin.ask("DELETE", path)).problem(404, "NOT_FOUND")
    (await admin.ask("PATCH", path, {"role": "admin"})).problem(404, "NOT_FOUND")
    assert [each[1] for each in await trail(admin, "user.")] == [
        "user.delete",
        "user.change",
        "user.create",
        "user.create",
    ]


async def test_the_last_admin_cannot_be_lost(admin: Person) -> None:
    (me,) = (await admin.ask("GET", "/api/users")).json["items"]
    path = f"/api/users/{me['id']}"
    (await admin.ask("DELETE", path)).problem(409, "LAST_ADMIN")
    (await admin.ask("PATCH", path, {"role": "viewer"})).problem(409, "LAST_ADMIN")
    (await admin.ask("PATCH", path, {"disabled": True})).problem(409, "LAST_ADMIN")
    assert (await admin.ask("PATCH", path, {"password": "another horse battery"})).status == 200
    assert (await admin.ask("GET", "/api/auth/me")).status == 200


async def test_whoever_is_disabled_is_out_at_once(strict: Api, admin: Person) -> None:
    editor = await admin.employ(Role.EDITOR)
    program = await editor.token(Role.EDITOR)
    id = (await editor.ask("GET", "/api/auth/me")).json["id"]
    assert (await admin.ask("PATCH", f"/api/users/{id}", {"disabled": True})).status == 200
    for person in (editor, program):
        assert (await person.ask("GET", "/api/auth/me")).status == 401
    assert (await Person(strict).log_in("a-editor")).status == 401


async def test_a_new_role_counts_at_once(admin: Person) -> None:
    editor = await admin.employ(Role.EDITOR)
    id = (await editor.ask("GET", "/api/auth/me")).json["id"]
    await admin.ask("PATCH", f"/api/users/{id}", {"role": "viewer"})
    (await editor.ask("POST", "/api/credentials", {})).problem(403, "FORBIDDEN")


async def test_bad_accounts_are_refused_without_their_password(admin: Person) -> None:
    for body in (
        {"name": "a b", "password": PASSWORD},
        {"name": "ada", "password": "too short"},
        {"name": "ada", "password": PASSWORD, "role": "god"},
        {"name": "ada", "password": PASSWORD, "more": 1},
    ):
        answer = await admin.ask("POST", "/api/users", body)
        answer.problem(422, "INVALID_REQUEST")
        assert str(body["password"]).encode() not in answer.data


# --- tokens ------------------------------------------------------------------------------------------------


async def test_a_token_is_shown_once_and_can_be_revoked(admin: Person) -> None:
    made = (await admin.ask("POST", "/api/tokens", {"name": "ci", "role": "operator"})).json
    assert made["token"].startswith("rune_")
    (listed,) = (await admin.ask("GET", "/api/tokens")).json["items"]
    assert "token" not in listed
    assert (listed["name"], listed["role"], listed["account"]) == ("ci", "operator", "admin")
    assert (listed["expires_at"], listed["used_at"]) == (None, None)
    program = Person(admin._api, made["token"])
    me = (await program.ask("GET", "/api/auth/me")).json
    assert (me["role"], me["via"], me["name"]) == ("operator", "token", "admin")
    assert (await admin.ask("GET", "/api/tokens")).json["items"][0]["used_at"]
    assert (await admin.ask("DELETE", f"/api/tokens/{made['id']}")).status == 204
    assert (await program.ask("GET", "/api/auth/me")).status == 401


async def test_a_token_does_no_more_than_its_owner_and_makes_no_others(admin: Person) -> None:
    editor = await admin.employ(Role.EDITOR)
    refused = await editor.ask("POST", "/api/tokens", {"name": "x", "role": "admin"})
    refused.problem(403, "FORBIDDEN")
    program = await editor.token(Role.EDITOR)
    (await program.ask("POST", "/api/tokens", {"name": "x"})).problem(409, "NO_SESSION")
    (await program.ask("POST", "/api/auth/password", {"old": PASSWORD, "new": "x" * 12})).problem(
        409, "NO_SESSION"
    )


async def test_a_token_expires(admin: Person) -> None:
    program = await admin.token(Role.VIEWER, expires_in=0.5)
    while (await program.ask("GET", "/api/auth/me")).status == 200:
        await asyncio.sleep(0.05)
    assert (await program.ask("GET", "/api/auth/me")).status == 401


async def test_others_tokens_are_for_admins_only(admin: Person) -> None:
    editor, viewer = await admin.employ(Role.EDITOR), await admin.employ(Role.VIEWER)
    await editor.token(Role.VIEWER)
    (token,) = (await editor.ask("GET", "/api/tokens")).json["items"]
    assert (await viewer.ask("GET", "/api/tokens?all=true")).json["items"] == []
    (await viewer.ask("DELETE", f"/api/tokens/{token['id']}")).problem(404, "NOT_FOUND")
    assert (await admin.ask("GET", "/api/tokens?all=true")).json["items"] == [token]
    assert (await admin.ask("DELETE", f"/api/tokens/{token['id']}")).status == 204


# --- the audit trail ---------------------------------------------------------------------------------------


async def test_what_people_do_is_written_down(admin: Person) -> None:
    operator = await admin.token(Role.OPERATOR)
    flow = flow_of({"id": "a"}, sleeper(), id="rest")
    assert (await admin.ask("POST", "/api/workflows", {"definition": flow})).status == 201
    run = (await operator.ask("POST", "/api/executions", {"workflow_id": "rest", "version": 1})).json["id"]
    for verb in ("pause", "resume", "cancel"):
        assert (await operator.ask("POST", f"/api/executions/{run}/{verb}")).status == 202
    entries = (await admin.ask("GET", f"/api/audit?object={run}")).json["items"]
    assert [entry["action"] for entry in entries] == [
        "execution.cancel",
        "execution.resume",
        "execution.pause",
        "execution.start",
    ]
    assert {(e["account"], e["via"], e["address"], e["outcome"]) for e in entries} == {
        ("admin", "token", "127.0.0.1", "ok")
    }
    assert ("admin", "workflow.create", "rest") in await trail(admin)


async def test_the_trail_comes_in_pages(admin: Person) -> None:
    for _ in range(3):
        await Person(admin._api).log_in("eve", "wrong password")
    first = (await admin.ask("GET", "/api/audit?limit=2")).json
    second = (await admin.ask("GET", f"/api/audit?limit=2&after={first['next']}")).json
    seen = [entry["id"] for page in (first, second) for entry in page["items"]]
    assert len(set(seen)) == 4
    assert seen == sorted(seen, reverse=True)
    (await admin.ask("GET", "/api/audit?after=nonsense")).problem(400, "INVALID_CURSOR")


async def called(app: FastAPI, method: str, path: str) -> None:
    """Send a request to an application in this event loop."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        pass

    with suppress(RuntimeError):
        await app(scope, receive, send)


async def test_a_route_that_says_nothing_is_written_down_by_its_name(small: Api) -> None:
    database = small.master.history.database
    app = FastAPI()
    secure(app, Gate(database, Settings(), accounts=False))

    @app.post("/things/{id}", dependencies=[needs(Role.OPERATOR)])
    async def change_thing(id: str) -> int:
        return 1

    @app.post("/questions", dependencies=[needs(Role.VIEWER)])
    async def ask_something() -> int:
        return 1

    @app.delete("/things/{id}", dependencies=[needs(Role.OPERATOR)])
    async def break_thing(id: str) -> int:
        raise RuntimeError

    log = AuditLog(database)
    for method, path in (("POST", "/things/a"), ("POST", "/questions"), ("DELETE", "/things/b")):
        await called(app, method, path)
    entries = (await log.list(50)).items
    assert [(entry.action, entry.object, entry.outcome) for entry in entries] == [
        ("break_thing", "b", "failed"),
        ("change_thing", "a", "ok"),
    ]
