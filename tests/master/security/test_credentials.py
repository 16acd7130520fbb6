"""Credentials over the API: values go in, and nothing of them is seen again."""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from aiosmtpd.controller import Controller

from rune.history.vault import WrongKey
from rune.settings import SettingsError
from tests.master.client import Api, flow_of, open_api
from tests.nodes.web import Answer as Reply
from tests.nodes.web import Seen, Web

CANARY = 'kanari/+&"ä 53cr3t-53cr3t'
USER = "ada"


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web().running() as running:
        yield running


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A master whose steps may call this machine."""
    async with open_api(tmp_path / "rune.db", http_allow=("127.0.0.1",)) as found:
        yield found


def credential(id: str = "web", **data: Any) -> dict[str, Any]:
    return {"id": id, "name": "Web", "type": "http", "data": data or {"token": CANARY}}


def calling(url: str, id: str = "web", **more: Any) -> dict[str, Any]:
    node = {"id": "call", "type": "http", "parameters": {"url": url, **more}, "credentials": {"id": id}}
    return flow_of(node, id=f"calls-{id}")


async def test_a_credential_s_life(api: Api) -> None:
    made = await api.post("/api/credentials", credential())
    assert made.status == 201
    assert made.headers["location"] == "/api/credentials/web"
    shown = made.json
    assert (shown["id"], shown["type"], shown["fields"], shown["version"]) == ("web", "http", ["token"], 1)
    assert (await api.get("/api/credentials/web")).json == shown
    assert (await api.get("/api/credentials")).json == {"items": [shown], "next": None}
    (await api.post("/api/credentials", credential())).problem(409, "ID_TAKEN")
    rotated = await api.put("/api/credentials/web", {"data": {"api_key": "other"}})
    assert (rotated.json["version"], rotated.json["fields"]) == (2, ["api_key"])
    assert rotated.json["rotated_at"] >= rotated.json["created_at"]
    assert (await api.delete("/api/credentials/web")).status == 204
    for answer in (
        await api.get("/api/credentials/web"),
        await api.put("/api/credentials/web", {"data": {"a": 1}}),
        await api.delete("/api/credentials/web"),
        await api.post("/api/credentials/web/test"),
    ):
        answer.problem(404, "NOT_FOUND")


async def test_one_without_an_id_gets_one(api: Api) -> None:
    made = (await api.post("/api/credentials", {"data": {"token": "x"}})).json
    assert made["id"].startswith("cred_")
    assert made["name"] == made["id"]


async def test_bad_ones_are_refused_and_not_repeated(api: Api) -> None:
    bodies: list[dict[str, Any]] = [
        {"data": {}},
        {"data": CANARY},
        {"id": "../etc", "data": {"a": CANARY}},
        {"id": ".", "data": {"a": CANARY}},
        {"name": 5, "data": {"a": CANARY}},
        {"data": {"a": CANARY}, CANARY: 1},
        {"type": CANARY, "data": {"a": 1}},
    ]
    for body in bodies:
        answer = await api.post("/api/credentials", body)
        answer.problem(422, "INVALID_REQUEST")
        if CANARY not in body:
            assert not seen_in(answer.data.decode())
    malformed = f'{{"data": {{"a": "{CANARY}"'.encode()
    answer = await api.ask(
        "POST", "/api/credentials", data=malformed, headers={"Content-Type": "application/json"}
    )
    answer.problem(400, "MALFORMED_JSON")
    assert not seen_in(answer.data.decode())


async def test_one_that_a_workflow_refers_to_stays_unless_forced(api: Api, web: Web) -> None:
    await api.post("/api/credentials", credential())
    assert (await api.post("/api/workflows", {"definition": calling(web.url)})).status == 201
    refused = await api.delete("/api/credentials/web")
    assert "calls-web" in refused.problem(409, "IN_USE")["detail"]
    assert (await api.ask("DELETE", "/api/credentials/web", params={"force": "true"})).status == 204


async def test_a_worker_uses_what_was_rotated(api: Api, web: Web) -> None:
    web.answer("/", Reply())
    for token in ("first", "second"):
        body = {"data": {"token": token}}
        if token == "first":
            await api.post("/api/credentials", {"id": "web", **body})
        else:
            await api.put("/api/credentials/web", body)
        assert (await api.run(calling(f"{web.url}/")))["status"] == "completed"
        assert web.seen[-1].headers["authorization"] == f"Bearer {token}"


async def test_the_environment_comes_before_files_and_files_before_the_store(
    tmp_path: Path, web: Web
) -> None:
    web.answer("/", Reply())
    files = tmp_path / "secrets"
    (files / "c").mkdir(parents=True)
    (files / "c" / "token").write_text("file c\n")
    (files / "b").write_text("file b")
    (files / "a").write_text("file a")
    given = json.dumps({"a": {"token": "environment a"}})
    async with open_api(
        tmp_path / "rune.db", http_allow=("127.0.0.1",), credentials=given, credentials_dir=str(files)
    ) as api:
        for id in "abcd":
            await api.post("/api/credentials", {"id": id, "data": {"token": f"store {id}"}})
            assert (await api.run(calling(f"{web.url}/", id)))["status"] == "completed"
    assert [seen.headers["authorization"] for seen in web.seen] == [
        "Bearer environment a",
        "Bearer file b",
        "Bearer file c",
        "Bearer store d",
    ]


# --- trying one out ----------------------------------------------------------------------------------------


async def test_an_http_credential_is_tried_with_a_request(api: Api, web: Web) -> None:
    web.answer("/good", Reply())
    web.answer("/bad", Reply("401 Unauthorized", body=CANARY.encode()))
    await api.post("/api/credentials", credential())
    good = await api.post("/api/credentials/web/test", {"url": f"{web.url}/good"})
    assert good.json == {"ok": True, "detail": "the server answered 200"}
    assert web.seen[0].headers["authorization"].startswith("Bearer kanari")
    bad = await api.post("/api/credentials/web/test", {"url": f"{web.url}/bad"})
    assert bad.json == {"ok": False, "detail": "the server answered 401"}
    plain = await api.post("/api/credentials/web/test")
    assert plain.json["ok"]


async def test_a_trial_is_guarded_like_a_step(small: Api, web: Web) -> None:
    await small.post("/api/credentials", credential())
    answer = await small.post("/api/credentials/web/test", {"url": web.url})
    assert not answer.json["ok"]
    assert "RUNE_HTTP_ALLOW" in answer.json["detail"]
    assert web.seen == []


@pytest.fixture
def mail() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(object(), hostname="127.0.0.1", port=port)
    controller.start()
    yield port
    controller.stop()


async def test_a_mail_server_is_tried_by_logging_in(api: Api, mail: int) -> None:
    data = {"host": "127.0.0.1", "port": mail, "tls": "none"}
    await api.post("/api/credentials", {"id": "mail", "type": "smtp", "data": data})
    answer = await api.post("/api/credentials/mail/test")
    assert answer.json == {"ok": True, "detail": "the mail server takes it"}
    await api.put("/api/credentials/mail", {"data": {**data, "username": "a", "password": CANARY}})
    answer = await api.post("/api/credentials/mail/test")
    assert not answer.json["ok"]
    assert not seen_in(answer.data.decode())


# --- keys --------------------------------------------------------------------------------------------------


async def test_rune_dev_keeps_its_key_beside_its_database(tmp_path: Path) -> None:
    for _ in range(2):
        async with open_api(tmp_path / "rune.db") as api:
            await api.post("/api/credentials", {"id": "a", "data": {"x": 1}})
            assert (await api.post("/api/credentials/a/test")).json["ok"]
    assert (tmp_path / "rune.db.key").stat().st_mode & 0o777 == 0o600


async def test_a_wrong_key_keeps_a_master_from_starting(tmp_path: Path) -> None:
    async with open_api(tmp_path / "rune.db", key="aa" * 32):
        pass
    with pytest.raises(WrongKey):
        async with open_api(tmp_path / "rune.db", key="bb" * 32):
            pass
    with pytest.raises(SettingsError):
        async with open_api(tmp_path / "rune.db", key="not a key"):
            pass
    async with open_api(tmp_path / "rune.db", key=f"{'bb' * 32},{'aa' * 32}"):
        pass
    async with open_api(tmp_path / "rune.db", key="bb" * 32):
        pass


# --- the canary --------------------------------------------------------------------------------------------


def forms(secret: str) -> Iterator[str]:
    """What a secret may look like in text."""
    yield secret
    for ascii in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii)[1:-1]
        yield from (once, json.dumps(once, ensure_ascii=ascii)[1:-1])
    # As whoever takes UTF-8 for Latin-1 reads it.
    yield secret.encode().decode("latin-1")
    yield from (quote(secret, safe=""), quote(secret), quote_plus(secret), quote(secret).lower())
    raw = secret.encode()
    yield from (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode())
    yield base64.b64encode(f"{USER}:{secret}".encode()).decode()
    yield raw.hex()


def seen_in(text: str) -> list[str]:
    return [form for form in forms(CANARY) if form in text]


@pytest.fixture
def indiscreet(web: Web) -> Web:
    """A server that says all it was told, in every way."""

    async def answer(seen: Seen) -> Reply:
        told = {"headers": seen.headers, "forms": [f for f in forms(CANARY) if f != CANARY.encode().hex()]}
        body = json.dumps(told, ensure_ascii=False).encode()
        return Reply(headers=(("Content-Type", "application/json"), ("X-Told", quote(CANARY))), body=body)

    async def fail(seen: Seen) -> Reply:
        return Reply("500 Oh", body=" ".join(forms(CANARY)).replace(CANARY.encode().hex(), "").encode())

    web.routes = {"/": answer, "/fail": fail}
    return web


async def everything(api: Api, run: str) -> AsyncIterator[tuple[str, str]]:
    """Every answer that could tell of an execution, and the first of its stream."""
    document = (await api.get("/api/openapi.json")).json
    for path, operations in document["paths"].items():
        if "get" in operations and "live" not in path:
            url = path.replace("{execution}", run).replace("{id}", run if "executions" in path else "web")
            if "{" not in url:
                yield url, (await api.get(url)).data.decode()
    for step in (await api.get(f"/api/executions/{run}/steps")).json["items"]:
        url = f"/api/executions/{run}/steps/{step['step']}"
        yield url, (await api.get(url)).data.decode()
    async with api._session.get(f"{api.address}/api/executions/{run}/live") as stream:
        text = ""
        async for line in stream.content:
            text += line.decode()
            if "event: end" in text or "event: bye" in text:
                break
        yield "live", text


@pytest.mark.parametrize(
    "data",
    [{"token": CANARY}, {"username": USER, "password": CANARY}, {"headers": {"X-Key": CANARY}}],
    ids=["bearer", "basic", "header"],
)
async def test_nothing_of_a_credential_is_seen_anywhere(
    api: Api, indiscreet: Web, data: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await api.post("/api/credentials", credential(**data))
    assert not seen_in(made.data.decode())
    for path, more, status in (("/", {}, "completed"), ("/fail", {"raise_on_status": "5xx"}, "halted")):
        flow = calling(f"{indiscreet.url}{path}", **more)
        flow["nodes"].append({"id": "say", "type": "log", "parameters": {"message": "{{ $call.body }}"}})
        flow["edges"].append({"id": "e", "src": "call", "dst": "say"})
        run = await api.run(flow)
        assert run["status"] == status, run
        async for url, text in everything(api, run["id"]):
            assert not seen_in(text), (url, text)
    # It did get where it belongs.
    assert all(seen_in(" ".join(seen.headers.values())) for seen in indiscreet.seen)
    await api.post("/api/credentials/web/test", {"url": f"{indiscreet.url}/fail"})
    await api.put("/api/credentials/web", {"data": {"token": CANARY + "2"}})
    assert not seen_in(caplog.text)
    for file in tmp_path.iterdir():
        stored = file.read_bytes().decode("latin-1")
        # The file's own text is UTF-8, which this shows byte by byte.
        found = [form for form in forms(CANARY) if form.encode().decode("latin-1") in stored]
        assert not found, (file.name, found)


# --- definitions that carry values -------------------------------------------------------------------------


async def test_values_in_a_definition_go_to_the_store(api: Api, indiscreet: Web, tmp_path: Path) -> None:
    flow = calling(f"{indiscreet.url}/")
    flow["nodes"][0]["credentials"] |= {"type": "http", "values": {"token": CANARY}}
    made = await api.post("/api/workflows", {"definition": flow})
    assert made.status == 201
    assert made.json["definition"]["nodes"][0]["credentials"] == {"id": "web", "type": "http"}
    assert (await api.get("/api/credentials/web")).json["fields"] == ["token"]
    run = await api.post("/api/executions", {"workflow_id": "calls-web", "wait": 30})
    assert run.json["status"] == "completed"
    assert seen_in(" ".join(indiscreet.seen[-1].headers.values()))
    flow["nodes"][0]["credentials"]["values"] = {"api_key": "other"}
    changed = await api.put("/api/workflows/calls-web", {"definition": flow, "version": 1})
    assert changed.status == 200
    assert (await api.get("/api/credentials/web")).json["version"] == 2
    for text in (made.data, run.data, changed.data):
        assert not seen_in(text.decode())
    actions = [entry["action"] for entry in (await api.get("/api/audit", object="web")).json["items"]]
    assert actions == ["credential.rotate", "credential.create"]


async def test_without_an_id_the_reference_is_made_up(api: Api, web: Web) -> None:
    web.answer("/", Reply())
    flow = calling(f"{web.url}/")
    flow["nodes"][0]["credentials"] = {"values": {"token": "abc-def"}}
    run = await api.run(flow)
    assert run["status"] == "completed"
    assert web.seen[0].headers["authorization"] == "Bearer abc-def"
    (kept,) = (await api.get("/api/credentials")).json["items"]
    assert kept["id"].startswith("cred_")


async def test_a_definition_that_is_refused_leaves_no_credential(api: Api) -> None:
    flow = calling("http://x")
    flow["nodes"][0]["type"] = "nonsense"
    flow["nodes"][0]["credentials"]["values"] = {"token": CANARY}
    answer = await api.post("/api/workflows", {"definition": flow})
    answer.problem(422, "INVALID_WORKFLOW")
    assert not seen_in(answer.data.decode())
    nonsense: list[Any] = [{}, CANARY, [CANARY]]
    for values in nonsense:
        flow["nodes"][0] |= {"type": "http", "credentials": {"id": "web", "values": values}}
        answer = await api.post("/api/workflows", {"definition": flow})
        assert answer.status == 422
        assert not seen_in(answer.data.decode())
    assert (await api.get("/api/credentials")).json["items"] == []


async def test_a_change_that_is_refused_leaves_the_credential_as_it_was(api: Api) -> None:
    flow = calling("http://x")
    assert (await api.post("/api/workflows", {"definition": flow})).status == 201
    await api.post("/api/credentials", {"id": "web", "data": {"token": CANARY}})
    flow["nodes"][0]["credentials"] |= {"values": {"token": "another-one"}}
    (await api.put("/api/workflows/calls-web", {"definition": flow, "version": 7})).problem(
        409, "VERSION_MISMATCH"
    )
    (await api.put("/api/workflows/calls-nobody", {"definition": flow, "version": 1})).problem(
        404, "NOT_FOUND"
    )
    (await api.post("/api/workflows", {"definition": flow})).problem(409, "EXISTS")
    await api.delete("/api/workflows/calls-web")
    (await api.post("/api/workflows", {"definition": flow})).problem(409, "DELETED")
    assert (await api.get("/api/credentials/web")).json["version"] == 1
