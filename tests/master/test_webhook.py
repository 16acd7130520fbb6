"""Webhooks: what a call starts, what the execution sees of it, and what is answered."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any

import aiohttp
import pytest

from tests.master.client import Answer, Api, flow_of, sleeper

ECHO = {"id": "echo", "type": "edit", "parameters": {"assignments": [{"name": "got", "value": "$trigger"}]}}
FLOW = flow_of(ECHO, id="hook")


async def made(api: Api, flow: Any = FLOW, *, publish: bool = True, secret: str = "", **config: Any) -> str:
    """The path of a new webhook of a workflow."""
    await api.post("/api/workflows", {"definition": flow, "publish": publish})
    body = {"workflow_id": flow["workflow_id"], "kind": "webhook", "config": config}
    answer = await api.post("/api/triggers", {**body, "secret": secret} if secret else body)
    assert answer.status == 201, answer
    path: str = answer.json["url"].partition(":")[2].partition("/webhook/")[2]
    return f"/webhook/{path}"


async def seen(api: Api, answer: Answer) -> Any:
    """The call as its execution has seen it."""
    assert answer.status == 202, answer
    return (await api.get(f"/api/executions/{answer.json['execution_id']}")).json["input"]


async def test_a_call_starts_an_execution_and_is_answered_at_once(api: Api) -> None:
    path = await made(api)
    answer = await api.post(f"{path}?a=1&b=x&b=y", {"n": 1}, X_Thing="yes", Cookie="s=1", Authorization="no")
    assert answer.status == 202
    execution = await api.until(f"/api/executions/{answer.json['execution_id']}", status="completed")
    assert (execution["trigger"], execution["workflow_id"]) == ("webhook", "hook")
    got = execution["input"]
    assert (got["method"], got["path"], got["body"]) == ("POST", "", {"n": 1})
    assert got["query"] == {"a": "1", "b": ["x", "y"]}
    assert got["headers"]["x-thing"] == "yes"
    assert not {"cookie", "authorization"} & got["headers"].keys()


async def test_any_method_path_and_content_will_do(small: Api) -> None:
    path = await made(small)
    for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"):
        answer = await small.ask(method, path)
        assert answer.status == 202, method
    form = aiohttp.FormData({"who": "Ada"})
    assert (await seen(small, await small.ask("POST", path, data=form)))["body"] == {"who": "Ada"}
    form = aiohttp.FormData()
    form.add_field("who", "Ada")
    form.add_field("file", b"\0\1", filename="x.bin", content_type="application/x-bin")
    got = await seen(small, await small.ask("POST", f"{path}/deeper/down", data=form))
    assert got["path"] == "deeper/down"
    assert got["body"]["who"] == "Ada"
    assert got["body"]["file"]["base64"] == "AAE="
    text = {"data": b"plain", "headers": {"Content-Type": "text/plain"}}
    assert (await seen(small, await small.ask("POST", path, **text)))["body"] == "plain"
    raw = {"data": b"\xff", "headers": {"Content-Type": "application/octet-stream"}}
    assert (await seen(small, await small.ask("POST", path, **raw)))["body"]["base64"] == "/w=="


async def test_what_cannot_be_read_starts_nothing(small: Api) -> None:
    path = await made(small, max_body=1000, methods=["POST"])
    json_type = {"Content-Type": "application/json"}
    (await small.ask("POST", path, data=b"{", headers=json_type)).problem(400, "BAD_PAYLOAD")
    (await small.ask("POST", path, data=b"x" * 1001)).problem(413, "TOO_LARGE")
    refused = await small.ask("GET", path)
    refused.problem(405, "METHOD_NOT_ALLOWED")
    assert refused.headers["allow"] == "POST"
    (await small.post("/webhook/of-nobody")).problem(404, "NOT_FOUND")
    assert (await small.get("/api/executions")).json["items"] == []


async def test_only_the_published_version_is_started_but_a_test_takes_the_latest(api: Api) -> None:
    path = await made(api, publish=False)
    (await api.post(path)).problem(404, "NOTHING_TO_START")
    test = await api.post(path.replace("/webhook/", "/webhook-test/"))
    execution = (await api.get(f"/api/executions/{test.json['execution_id']}")).json
    assert (execution["workflow_version"], execution["labels"]["test"]) == (1, "true")
    await api.post("/api/workflows/hook/publish", {"version": 1})
    body = {"definition": flow_of({"id": "other"}, id="hook"), "version": 1}
    assert (await api.put("/api/workflows/hook", body)).status == 200
    for which, version in (("webhook", 1), ("webhook-test", 2)):
        answer = await api.post(path.replace("webhook", which))
        execution = (await api.get(f"/api/executions/{answer.json['execution_id']}")).json
        assert execution["workflow_version"] == version
        assert ("test" in execution["labels"]) == (which == "webhook-test")


async def test_a_disabled_webhook_is_not_there(small: Api) -> None:
    path = await made(small)
    (trigger,) = (await small.get("/api/triggers")).json["items"]
    await small.post(f"/api/triggers/{trigger['id']}/disable")
    (await small.post(path)).problem(404, "NOT_FOUND")
    # A test is for what is not switched on yet.
    assert (await small.post(path.replace("webhook", "webhook-test"))).status == 202


async def test_another_url_in_place_of_the_old_one(small: Api) -> None:
    path = await made(small)
    (trigger,) = (await small.get("/api/triggers")).json["items"]
    rotated = (await small.post(f"/api/triggers/{trigger['id']}/rotate")).json
    (await small.post(path)).problem(404, "NOT_FOUND")
    assert (await small.post("/webhook/" + rotated["url"].rpartition("/")[2])).status == 202


async def test_a_signed_call(small: Api) -> None:
    path = await made(small, secret="shared secret", auth={"kind": "hmac"})
    body = json.dumps({"n": 1}).encode()
    mac = hmac.new(b"shared secret", body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={mac}"}
    got = await seen(small, await small.ask("POST", path, data=body, headers=headers))
    assert got["body"] == {"n": 1}
    assert "x-hub-signature-256" not in got["headers"]
    (await small.ask("POST", path, data=b"[]", headers=headers)).problem(401, "NOT_AUTHENTIC")
    (await small.post(path)).problem(401, "NOT_AUTHENTIC")


async def test_a_call_with_a_secret_header_or_a_password(small: Api) -> None:
    header = await made(small, secret="the secret key", auth={"kind": "header", "header": "X-Key"})
    got = await seen(small, await small.post(header, X_Key="the secret key"))
    assert "x-key" not in got["headers"]
    (await small.post(header, X_Key="another")).problem(401, "NOT_AUTHENTIC")
    basic = await made(small, secret="the password", auth={"kind": "basic", "username": "ada"})
    good = aiohttp.encode_basic_auth("ada", "the password")
    assert (await small.post(basic, Authorization=good)).status == 202
    refused = await small.post(basic)
    refused.problem(401, "NOT_AUTHENTIC")
    assert refused.headers["www-authenticate"].startswith("Basic")


async def test_a_call_that_waits_gets_the_result(api: Api) -> None:
    path = await made(api, respond="wait")
    answer = await api.post(path, {"n": 2})
    assert answer.status == 200
    assert answer.json["$echo"]["$json"]["got"]["body"] == {"n": 2}


async def test_a_call_that_waits_gets_one_nodes_output(small: Api) -> None:
    path = await made(small, respond="wait", response_node="echo", status=201)
    answer = await small.post(path, {"n": 3})
    # Without the wrapping in which it is handed on to the next node.
    assert (answer.status, answer.json["got"]["body"]) == (201, {"n": 3})
    other = await made(small, respond="wait", response_node="nobody")
    (await small.post(other)).problem(500, "NO_OUTPUT")


@pytest.mark.parametrize(("on_timeout", "status"), [(202, 202), (504, 504)])
async def test_a_call_that_waits_too_long_is_told_so(small: Api, on_timeout: int, status: int) -> None:
    flow = flow_of(sleeper(), id="slow")
    path = await made(small, flow, respond="wait", timeout=0.05, on_timeout=on_timeout)
    answer = await small.post(path)
    assert answer.status == status
    (execution,) = (await small.get("/api/executions")).json["items"]
    assert execution["id"] in answer.data.decode()
    assert execution["status"] in ("pending", "running")


async def test_a_call_whose_execution_fails_is_told_no_more_than_that(small: Api) -> None:
    failing = {
        "id": "f",
        "type": "edit",
        "parameters": {"assignments": [{"name": "x", "value": "{{ $trigger.no.key }}"}]},
    }
    path = await made(small, flow_of(failing, id="bad"), respond="wait")
    problem = (await small.post(path)).problem(500, "EXECUTION_FAILED")
    assert "no.key" not in json.dumps(problem)


async def test_pages_of_other_origins_may_call_if_they_are_named(small: Api) -> None:
    path = await made(small, cors=["https://app.example.org"])
    asks = {"Origin": "https://app.example.org", "Access-Control-Request-Method": "PUT"}
    asks["Access-Control-Request-Headers"] = "x-thing"
    allowed = await small.ask("OPTIONS", path, headers=asks)
    assert allowed.status == 204
    assert allowed.headers["access-control-allow-origin"] == "https://app.example.org"
    assert allowed.headers["access-control-allow-methods"] == "PUT"
    assert allowed.headers["access-control-allow-headers"] == "x-thing"
    assert allowed.headers["vary"] == "Origin"
    called = await small.post(path, Origin="https://app.example.org")
    assert called.headers["access-control-allow-origin"] == "https://app.example.org"
    other = await small.ask("OPTIONS", path, headers={**asks, "Origin": "https://evil.example"})
    assert other.status == 204
    assert "access-control-allow-origin" not in other.headers
    # Nothing was started by asking.
    assert len((await small.get("/api/executions")).json["items"]) == 1
    anyone = await made(small, cors=["*"])
    assert (await small.post(anyone, Origin="null")).headers["access-control-allow-origin"] == "*"


async def test_a_call_that_comes_again_under_its_name_starts_nothing(api: Api) -> None:
    path = await made(api, dedupe_header="X-Delivery")
    answers = await asyncio.gather(*(api.post(path, {"n": n}, X_Delivery="one") for n in range(5)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["execution_id"] for answer in answers}) == 1
    other = await api.post(path, {}, X_Delivery="two")
    unnamed = [(await api.post(path)).json["execution_id"] for _ in range(2)]
    ids = {answers[0].json["execution_id"], other.json["execution_id"], *unnamed}
    assert len(ids) == 4
    assert len((await api.get("/api/executions")).json["items"]) == 4
