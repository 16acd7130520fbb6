"""Triggers over the API: made, changed, switched, removed; and what is refused."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.history.triggers import Trigger
from rune.history.vault import Vault, WrongKey
from rune.master.triggers.seals import Kept, Seals
from tests.master.client import Api, flow_of, open_api

FLOW = flow_of({"id": "greet"}, id="hello")


async def made(api: Api, **fields: Any) -> Any:
    """A trigger of the workflow `hello`, which is made and published if it is not there."""
    await api.post("/api/workflows", {"definition": FLOW, "publish": True})
    answer = await api.post("/api/triggers", {"workflow_id": "hello", **fields})
    assert answer.status == 201, answer
    assert answer.headers["location"] == f"/api/triggers/{answer.json['id']}"
    return answer.json


async def test_a_webhook_has_an_address_that_nobody_can_guess(api: Api) -> None:
    hook = await made(api, kind="webhook", name="in")
    assert hook["url"].startswith("http://127.0.0.1")
    assert len(hook["url"].rpartition("/")[2]) >= 32
    assert hook["test_url"] == hook["url"].replace("/webhook/", "/webhook-test/")
    assert (hook["kind"], hook["name"], hook["enabled"], hook["has_secret"]) == ("webhook", "in", True, False)
    assert (await api.get(f"/api/triggers/{hook['id']}")).json == hook


async def test_a_schedule_shows_when_it_is_due_and_says_it_in_words(api: Api) -> None:
    config = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    schedule = await made(api, kind="schedule", config=config)
    assert schedule["explanation"] == "At 02:30 every day (Europe/Berlin)"
    times = [datetime.fromisoformat(time) for time in schedule["next"]]
    assert len(times) == 5
    assert times == sorted(times)
    preview = await api.post("/api/triggers/preview", config)
    assert preview.json["next"] == schedule["next"]
    every = await made(api, kind="schedule", config={"amount": 90, "unit": "minutes"})
    assert every["explanation"] == "Every 90 minutes"


async def test_triggers_are_listed_in_pages_by_workflow_and_kind(small: Api) -> None:
    for _ in range(3):
        await made(small, kind="webhook")
    schedule = await made(small, kind="schedule", config={"cron": "@daily"})
    first = (await small.get("/api/triggers", limit=3)).json
    second = (await small.get("/api/triggers", limit=3, after=first["next"])).json
    assert len(first["items"]) == 3
    assert len(second["items"]) == 1
    assert second["next"] is None
    (await small.get("/api/triggers", workflow="\0")).problem(422, "INVALID_REQUEST")
    found = (await small.get("/api/triggers", kind="schedule", workflow="hello")).json["items"]
    assert [each["id"] for each in found] == [schedule["id"]]
    assert (await small.get("/api/triggers", workflow="other")).json["items"] == []


async def test_a_change_needs_the_version_that_it_changes(api: Api) -> None:
    schedule = await made(api, kind="schedule", config={"cron": "@daily"})
    path = f"/api/triggers/{schedule['id']}"
    body = {"kind": "schedule", "workflow_id": "hello", "config": {"cron": "@hourly"}, "version": 1}
    changed = (await api.put(path, body)).json
    assert (changed["version"], changed["config"]["cron"]) == (2, "@hourly")
    (await api.put(path, body)).problem(409, "VERSION_MISMATCH")
    (await api.put(path, {**body, "kind": "webhook", "config": {}})).problem(409, "OTHER_KIND")
    (await api.put(path, {**body, "workflow_id": "gone"})).problem(404, "NOT_FOUND")


async def test_a_trigger_is_switched_off_and_on(api: Api) -> None:
    schedule = await made(api, kind="schedule", config={"cron": "@daily"})
    path = f"/api/triggers/{schedule['id']}"
    off = (await api.post(f"{path}/disable")).json
    assert (off["enabled"], off["next"]) == (False, [])
    assert (await api.post(f"{path}/disable")).json == off
    on = (await api.post(f"{path}/enable")).json
    assert (on["enabled"], len(on["next"])) == (True, 5)


async def test_a_removed_trigger_is_gone(api: Api) -> None:
    hook = await made(api, kind="webhook")
    assert (await api.delete(f"/api/triggers/{hook['id']}")).status == 204
    (await api.delete(f"/api/triggers/{hook['id']}")).problem(404, "NOT_FOUND")
    (await api.get(f"/api/triggers/{hook['id']}")).problem(404, "NOT_FOUND")
    token = hook["url"].rpartition("/")[2]
    (await api.post(f"/webhook/{token}")).problem(404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"kind": "schedule", "config": {"cron": "61 * * * *"}}, "/schedule/config"),
        ({"kind": "schedule", "config": {"cron": "@daily", "timezone": "Mars/Olympus"}}, "/schedule/config"),
        ({"kind": "schedule", "config": {}}, "/schedule/config"),
        ({"kind": "schedule", "config": {"amount": 0.5}}, "/schedule/config"),
        ({"kind": "schedule", "config": {"cron": "@daily", "missed": "never"}}, "/schedule/config/missed"),
        ({"kind": "webhook", "config": {"auth": {"kind": "magic"}}}, "/webhook/config/auth"),
        ({"kind": "webhook", "config": {"cors": ["example.org"]}}, "/webhook/config"),
        ({"kind": "webhook", "config": {"auth": {"kind": "header"}}}, "/secret"),
        ({"kind": "sundial"}, ""),
    ],
)
async def test_what_makes_no_sense_is_refused(small: Api, fields: dict[str, Any], path: str) -> None:
    await small.post("/api/workflows", {"definition": FLOW})
    answer = await small.post("/api/triggers", {"workflow_id": "hello", **fields})
    problem = answer.problem(422, "INVALID_REQUEST")
    assert path in problem["errors"][0]["path"], problem
    assert (await small.get("/api/triggers")).json["items"] == []


async def test_a_trigger_needs_a_workflow(small: Api) -> None:
    answer = await small.post("/api/triggers", {"workflow_id": "nope", "kind": "webhook"})
    answer.problem(404, "NOT_FOUND")


async def test_a_secret_goes_in_and_never_comes_out(small: Api) -> None:
    auth = {"kind": "header", "header": "X-Key"}
    hook = await made(small, kind="webhook", config={"auth": auth}, secret="open sesame please")
    assert hook["has_secret"]
    path = f"/api/triggers/{hook['id']}"
    assert b"sesame" not in (await small.get(path)).data
    rows = await small.master.history.database.fetch("SELECT * FROM workflow_trigger")
    assert all(b"sesame" not in str(dict(row)).encode() + bytes(row["sealed"]) for row in rows)
    assert all(hook["url"].rpartition("/")[2].encode() not in bytes(row["sealed"]) for row in rows)
    # A change that does not name it keeps it; without authentication it goes.
    body = {"kind": "webhook", "workflow_id": "hello", "config": {"auth": auth}, "version": 1}
    assert (await small.put(path, body)).json["has_secret"]
    assert not (await small.put(path, {**body, "config": {}, "version": 2})).json["has_secret"]


async def test_without_a_key_there_are_no_secrets_but_there_are_webhooks(tmp_path: Path) -> None:
    async with open_api(None, str(tmp_path / "history.db")) as api:
        hook = await made(api, kind="webhook")
        assert (await api.get(f"/api/triggers/{hook['id']}")).json == hook
        body = {"workflow_id": "hello", "kind": "webhook", "config": {"auth": {"kind": "header"}}}
        (await api.post("/api/triggers", {**body, "secret": "long enough"})).problem(409, "NO_KEY")


async def test_what_is_done_to_triggers_is_in_the_audit_log(small: Api) -> None:
    hook = await made(small, kind="webhook")
    await small.post(f"/api/triggers/{hook['id']}/rotate")
    await small.delete(f"/api/triggers/{hook['id']}")
    found = (await small.get("/api/audit")).json["items"]
    actions = [entry["action"] for entry in found if entry["object"] == hook["id"]]
    assert actions == ["trigger.delete", "trigger.rotate", "trigger.create"]


async def test_a_new_key_takes_over_from_the_old_one(api: Api) -> None:
    old, new = os.urandom(32), os.urandom(32)
    store = api.master.triggering.store
    before = Seals(Vault([old]))
    signing = await before.signing_key(store, "test")
    kept = Kept("token", "secret")
    sealed = before.close(kept, "t")
    hook = Trigger(
        id="t", workflow_id="w", kind="webhook", config={}, sealed=sealed, created_at=0.0, updated_at=0.0
    )
    await store.create(hook)
    await Seals(Vault([new, old])).renew(store)
    renewed = await store.get("t")
    assert renewed is not None
    after = Seals(Vault([new]))
    assert after.open(renewed) == kept
    assert await after.signing_key(store, "test") == signing
    with pytest.raises(WrongKey):
        before.open(renewed)
    # What was sealed for one trigger is of no use to another.
    with pytest.raises(WrongKey):
        after.open(msgspec.structs.replace(renewed, id="other"))


async def test_a_webhook_under_a_key_that_is_not_here_is_listed_without_its_url(small: Api) -> None:
    made = await small.post("/api/workflows", {"definition": flow_of({"id": "a"}, id="w")})
    assert made.status == 201
    body = {"kind": "webhook", "workflow_id": "w", "config": {}}
    hook = (await small.post("/api/triggers", body)).json
    elsewhere = Seals(Vault([os.urandom(32)])).close(Kept("token"), hook["id"])
    sql = "UPDATE workflow_trigger SET sealed = $1"
    await small.master.history.database.write((sql, [(elsewhere,)]))
    (listed,) = (await small.get("/api/triggers")).json["items"]
    assert listed == {**hook, "has_secret": None, "url": None, "test_url": None}
    path = f"/api/triggers/{hook['id']}"
    (await small.put(path, {**body, "version": 1})).problem(503, "NO_KEY")
    (await small.post(f"{path}/rotate")).problem(503, "NO_KEY")
    assert (await small.delete(path)).status == 204
