"""Links that end a wait: known before it, good once, and harmless to look at."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from rune.master.triggers.tokens import Resumable, read_token, sign
from tests.master.client import Api, flow_of

WAIT = {"id": "approve", "type": "wait", "parameters": {"resume": "webhook"}}
AFTER = {"id": "after", "type": "log", "parameters": {"message": "{{ $approve.payload | tojson }}"}}


async def waiting(api: Api, definition: Any) -> tuple[str, list[Any]]:
    """An execution that waits to be called, and its waits."""
    started = (await api.post("/api/executions", {"definition": definition})).json["id"]
    found = await api.once(f"/api/executions/{started}/waits", lambda found: found["items"])
    return started, found["items"]


def path_of(api: Api, url: str) -> str:
    assert url.startswith(f"{api.address}/resume/")
    return url.removeprefix(api.address)


async def logged(api: Api, execution: str, node: str) -> set[str]:
    """What a log node has said."""
    lines = (await api.get(f"/api/executions/{execution}/logs", node=node)).json["items"]
    return {line["message"] for line in lines if line["message"] != "running"}


async def test_a_call_ends_the_wait_once_and_brings_the_payload(api: Api) -> None:
    execution, (wait,) = await waiting(api, flow_of(WAIT, AFTER))
    path = path_of(api, wait["url"])
    answer = await api.post(path, {"approved": True})
    assert (answer.status, answer.json["execution_id"], answer.json["node"]) == (200, execution, "approve")
    await api.until(f"/api/executions/{execution}", status="completed")
    result = (await api.get(f"/api/executions/{execution}/result")).json["result"]
    assert result["$approve"]["payload"] == {"approved": True}
    assert result["$after"]["message"] == '{"approved":true}'
    (await api.post(path, {"approved": False})).problem(410, "GONE")
    (await api.get(path)).problem(410, "GONE")


async def test_of_many_calls_one_ends_the_wait(small: Api) -> None:
    execution, (wait,) = await waiting(small, flow_of(WAIT))
    path = path_of(small, wait["url"])
    answers = await asyncio.gather(*(small.post(path, {"n": n}) for n in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [410] * 7
    (winner,) = [n for n, answer in enumerate(answers) if answer.status == 200]
    await small.until(f"/api/executions/{execution}", status="completed")
    result = (await small.get(f"/api/executions/{execution}/result")).json["result"]
    assert result["$approve"]["payload"] == {"n": winner}


async def test_to_look_at_a_link_resumes_nothing(small: Api) -> None:
    execution, (wait,) = await waiting(small, flow_of(WAIT))
    path = path_of(small, wait["url"])
    for method in ("GET", "HEAD", "GET"):
        page = await small.ask(method, path)
        assert page.status == 200
    text = page.data.decode()
    assert '<form method="post">' in text
    assert execution in text
    assert "script" not in text
    assert page.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert (await small.get(f"/api/executions/{execution}/waits")).json["items"] == [wait]
    # The page's button.
    headers = {"Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"}
    done = await small.ask("POST", path, headers=headers)
    assert (done.status, done.headers["content-type"].split(";")[0]) == (200, "text/html")
    await small.until(f"/api/executions/{execution}", status="completed")


async def test_the_workflow_knows_the_link_before_it_waits(api: Api) -> None:
    mail = {"id": "mail", "type": "log", "parameters": {"message": "click {{ $resume.approve }}"}}
    execution, _ = await waiting(api, flow_of(mail, WAIT, AFTER))
    (said,) = await logged(api, execution, "mail")
    path = path_of(api, said.removeprefix("click "))
    assert (await api.get(path)).status == 200
    assert (await api.post(path, [1])).status == 200
    await api.until(f"/api/executions/{execution}", status="completed")
    (await api.post(path)).problem(410, "GONE")


async def test_a_workflow_that_does_not_ask_for_links_is_given_none(small: Api) -> None:
    done = await small.run(flow_of({"id": "a"}))
    assert "$resume" not in done["result"]


async def test_the_items_of_a_split_have_links_of_their_own(small: Api) -> None:
    split = {"id": "each", "type": "split", "parameters": {"input_array": [10, 20, 30]}}
    gather = {"id": "all", "type": "aggregator", "parameters": {}}
    tell = {"id": "tell", "type": "log", "parameters": {"message": "{{ $resume.approve }}/{{ $index }}"}}
    flow = flow_of(split, tell, WAIT, gather)
    started = (await small.post("/api/executions", {"definition": flow})).json["id"]
    found = await small.once(f"/api/executions/{started}/waits", lambda found: len(found["items"]) == 3)
    waits = found["items"]
    assert sorted(wait["item"] for wait in waits) == [0, 1, 2]
    links = {path_of(small, said) for said in await logged(small, started, "tell")}
    assert len(links) == 3
    for link in sorted(links):
        assert (await small.post(link, {"item": link[-1]})).status == 200
        (await small.post(link)).problem(410, "GONE")
    await small.until(f"/api/executions/{started}", status="completed")
    result = (await small.get(f"/api/executions/{started}/result")).json["result"]
    assert [each["payload"]["item"] for each in result["$all"]["aggregated"]] == ["0", "1", "2"]
    unknown = min(links)[:-1]
    (await small.post(f"{unknown}x")).problem(404, "NOT_FOUND")
    (await small.post(f"{unknown}7")).problem(410, "GONE")


async def test_of_a_thousand_waits_each_is_found_and_can_be_listed(api: Api) -> None:
    count = 1100
    split = {"id": "each", "type": "split", "parameters": {"source": {"range": count}}}
    gather = {"id": "all", "type": "aggregator", "parameters": {"reduce": "count"}}
    tell = {"id": "tell", "type": "log", "parameters": {"message": "{{ $resume.approve }}"}}
    started = (await api.post("/api/executions", {"definition": flow_of(tell, split, WAIT, gather)})).json[
        "id"
    ]
    while (await api.get(f"/api/executions/{started}")).json["nodes"].get("approve", {}).get(
        "waiting"
    ) != count:
        await asyncio.sleep(0.05)
    items, after = set(), {}
    while after is not None:
        page = (await api.get(f"/api/executions/{started}/waits", limit=500, **after)).json
        items |= {wait["item"] for wait in page["items"]}
        after = {"after": page["next"]} if page["next"] else None
    assert items == set(range(count))
    (said,) = await logged(api, started, "tell")
    for item in (0, count - 1):
        assert (await api.post(f"{path_of(api, said)}/{item}")).status == 200
    (await api.post(f"{path_of(api, said)}/{count}")).problem(409, "NOT_WAITING")
    (await api.post(f"{path_of(api, said)}/99999999999")).problem(409, "NOT_WAITING")
    (await api.post(path_of(api, said))).problem(409, "NOT_WAITING")


async def test_a_link_of_ones_own_making_opens_nothing(small: Api) -> None:
    execution, (wait,) = await waiting(small, flow_of(WAIT))
    token = wait["url"].rpartition("/")[2]
    mac = token.rpartition(".")[2]
    others = [
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        f"{execution}.~approve.{mac}",
        sign(Resumable(execution, step=wait["step"]), b"another key"),
        "x",
        "...",
        f"{execution}..{mac}",
        "é.é.é",
    ]
    for other in others:
        (await small.get(f"/resume/{other}")).problem(404, "NOT_FOUND")
        (await small.post(f"/resume/{other}")).problem(404, "NOT_FOUND")
    assert (await small.get(f"/api/executions/{execution}/waits")).json["items"] == [wait]


async def test_after_the_end_of_its_execution_a_link_is_good_for_nothing(small: Api) -> None:
    execution, (wait,) = await waiting(small, flow_of(WAIT))
    await small.post(f"/api/executions/{execution}/cancel")
    await small.until(f"/api/executions/{execution}", status="halted")
    (await small.post(path_of(small, wait["url"]))).problem(410, "GONE")


async def test_a_payload_that_cannot_be_read_leaves_the_wait(small: Api) -> None:
    _, (wait,) = await waiting(small, flow_of(WAIT))
    path = path_of(small, wait["url"])
    json_type = {"Content-Type": "application/json"}
    (await small.ask("POST", path, data=b"{", headers=json_type)).problem(400, "BAD_PAYLOAD")
    (await small.ask("POST", path, data=io.BytesIO(b"x" * 2**21))).problem(413, "TOO_LARGE")
    assert (await small.post(path)).status == 200


async def test_a_link_outlives_the_master(small: Api) -> None:
    # Every master of a history signs with the same key, also after a restart.
    links = small.master.triggering.links
    first = await links.link(Resumable("e", step="s"))
    links._key = None
    assert await links.link(Resumable("e", step="s")) == first


def test_a_token_says_what_it_is_for() -> None:
    for what in (Resumable("exec_1", step="abc"), Resumable("exec_1", node="a-b_c")):
        token = sign(what, b"key")
        assert read_token(token, [b"key"]) == what
        assert read_token(token, [b"new", b"key"]) == what
        assert read_token(token, [b"new"]) is None
        assert read_token(token.replace("exec_1", "exec_2"), [b"key"]) is None
