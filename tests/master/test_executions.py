"""Executions over HTTP: started, watched to their end, stopped, listed, removed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rune.core.errors import InfrastructureError
from rune.core.operations import Seed
from rune.history.executions import NewExecution
from tests.master.client import Api, flow_of, sleeper

_FAN_OUT = {
    "nodes": [
        {
            "id": "each",
            "type": "split",
            "parameters": {"input_array": "$trigger.items", "on_item_error": "collect"},
        },
        {
            "id": "rate",
            "type": "edit",
            "parameters": {"assignments": [{"name": "rate", "value": "{{ 12 / $item }}"}]},
        },
        {"id": "all", "type": "aggregator", "parameters": {}},
    ],
    "edges": [
        {"id": "e1", "src": "each", "dst": "rate"},
        {"id": "e2", "src": "rate", "dst": "all"},
    ],
}


async def test_an_inline_definition_runs_and_its_result_is_the_answer(api: Api) -> None:
    definition = flow_of({"id": "a", "parameters": {"message": "Hello {{ $trigger.name }}"}})
    found = await api.run(definition, input={"name": "Ada"}, labels={"team": "x"}, priority=3)
    assert found["status"] == "completed"
    assert found["result"]["$a"]["message"] == "Hello Ada"
    assert found["input"] == {"name": "Ada"}
    assert (found["labels"], found["priority"], found["trigger"]) == ({"team": "x"}, 3, "api")
    assert found["nodes"]["a"]["success"] == 1
    assert found["workflow_id"] is None
    assert found["ended_at"].endswith("Z")


async def test_without_waiting_the_answer_comes_at_once(api: Api) -> None:
    answer = await api.post("/api/executions", {"definition": flow_of(sleeper())})
    assert answer.status == 201
    path = answer.headers["location"]
    assert path == f"/api/executions/{answer.json['id']}"
    found = await api.until(path, status="running")
    assert (await api.post(f"{path}/cancel", {"reason": "enough"})).status == 202
    found = await api.until(path, status="halted")
    assert found["reason"] == "enough"
    (await api.post(f"{path}/cancel")).problem(409, "ENDED")


async def test_who_waits_too_short_gets_what_is_known_so_far(api: Api) -> None:
    answer = await api.post("/api/executions", {"definition": flow_of(sleeper()), "wait": 0.3})
    assert answer.status == 202
    assert answer.json["ended_at"] is None
    assert "result" not in answer.json


async def test_a_stored_workflow_runs_the_published_version_the_latest_or_the_one_named(api: Api) -> None:
    for number in (1, 2, 3):
        body = {"definition": flow_of({"id": f"v{number}"}, id="w"), "version": number - 1}
        if number == 1:
            assert (await api.post("/api/workflows", {"definition": body["definition"]})).status == 201
        else:
            assert (await api.put("/api/workflows/w", body)).status == 200

    async def version(**more: Any) -> Any:
        answer = await api.post("/api/executions", {"workflow_id": "w", "wait": 30, **more})
        assert answer.status == 200, answer
        assert f"$v{answer.json['workflow_version']}" in answer.json["result"]
        return answer.json["workflow_version"]

    assert await version() == 3
    await api.post("/api/workflows/w/publish", {"version": 2})
    assert await version() == 2
    assert await version(version=1) == 1
    (await api.post("/api/executions", {"workflow_id": "w", "version": 9})).problem(404, "NOT_FOUND")
    (await api.post("/api/executions", {"workflow_id": "none"})).problem(404, "NOT_FOUND")


async def test_a_failure_says_why(api: Api) -> None:
    found = await api.run(_FAN_OUT, input={"items": "not a list"})
    assert found["status"] in ("failed", "halted")
    assert found["error"]["node"] == "each"
    assert found["nodes"]["each"]["failed"] == 1


async def test_what_cannot_be_started_leaves_no_trace(api: Api) -> None:
    wrong = flow_of({"id": "a", "type": "nonsense"})
    (await api.post("/api/executions", {"definition": wrong})).problem(422, "INVALID_WORKFLOW")
    (await api.post("/api/executions", {})).problem(422, "INVALID_REQUEST")
    both = {"workflow_id": "w", "definition": flow_of({"id": "a"})}
    (await api.post("/api/executions", both)).problem(422, "INVALID_REQUEST")
    assert (await api.get("/api/executions")).json["items"] == []


async def test_lists_are_filtered_and_paged_without_gaps(api: Api) -> None:
    await api.post("/api/workflows", {"definition": flow_of({"id": "a"}, id="w", name="Orders")})
    for number in range(6):
        body = {"workflow_id": "w", "wait": 30, "labels": {"n": f"number-{number}"}}
        assert (await api.post("/api/executions", body)).status == 200
    failed = await api.run(_FAN_OUT, input={"items": 1})

    async def ids(**query: Any) -> list[str]:
        seen: list[str] = []
        while True:
            page = (await api.get("/api/executions", limit=2, **query)).json
            seen += [found["id"] for found in page["items"]]
            if page["next"] is None:
                return seen
            query["after"] = page["next"]

    everything = await ids()
    assert len(everything) == len(set(everything)) == 7
    assert everything[0] == failed["id"]
    assert len(await ids(workflow="w")) == 6
    assert await ids(status=failed["status"]) == [failed["id"]]
    assert len(await ids(text="number-4")) == 1
    assert len(await ids(text="orders", trigger="api")) == 6
    assert await ids(trigger="schedule") == []
    assert await ids(since="2999-01-01T00:00:00Z") == []
    assert len(await ids(until="2999-01-01T00:00:00Z", since=failed["created_at"])) == 1


async def test_a_paused_execution_goes_on_when_it_is_resumed(api: Api) -> None:
    definition = flow_of(sleeper(2), {"id": "after"})
    path = (await api.post("/api/executions", {"definition": definition})).headers["location"]
    await api.until(path, status="running")
    paused = await api.post(f"{path}/pause")
    assert (paused.status, paused.json["status"]) == (202, "paused")
    # Its rest is over before it may go on.
    while "timer" in {hold["kind"] for hold in (await api.get(f"{path}/why")).json["holds"]}:
        await asyncio.sleep(0.05)
    assert (await api.get(path)).json["status"] == "paused"
    assert (await api.post(f"{path}/resume")).status == 202
    await api.until(path, status="completed")
    (await api.post(f"{path}/pause")).problem(409, "ENDED")
    (await api.post(f"{path}/resume")).problem(409, "ENDED")


async def test_why_it_has_not_ended(api: Api) -> None:
    path = (await api.post("/api/executions", {"definition": flow_of(sleeper())})).headers["location"]
    await api.until(path, status="running")
    found = await api.once(f"{path}/why", lambda found: found["positions"])
    assert [(hold["kind"], hold["node"]) for hold in found["holds"]] == [("timer", "rest")]
    assert found["holds"][0]["until"] > found["positions"][0]["since"]
    (await api.get("/api/executions/none/why")).problem(404, "NOT_FOUND")


async def test_a_fork_runs_again_only_what_lies_behind(api: Api) -> None:
    first = await api.run(flow_of({"id": "a"}, {"id": "b"}), input={"n": 1})
    path = f"/api/executions/{first['id']}"
    forked = await api.post(f"{path}/fork", {"node": "b"}, Idempotency_Key="f")
    assert forked.status == 202
    assert (await api.post(f"{path}/fork", {"node": "b"}, Idempotency_Key="f")).data == forked.data
    found = await api.until(forked.headers["location"], status="completed")
    assert (found["parent"], found["trigger"]) == (first["id"], "fork")
    assert (await api.get(path)).json["children"] == [{"id": found["id"], "trigger": "fork"}]
    assert [each["id"] for each in (await api.get("/api/executions", parent=first["id"])).json["items"]] == [
        found["id"]
    ]
    steps = (await api.get(f"{forked.headers['location']}/steps")).json["items"]
    assert {step["node"]: (step["details"] or {}).get("reused") for step in steps} == {"a": True, "b": None}
    (await api.post(f"{path}/fork", {"node": "none"})).problem(409, "CANNOT_REDRIVE")
    (await api.post(f"{path}/redrive")).problem(409, "CANNOT_REDRIVE")
    (await api.post("/api/executions/none/redrive")).problem(404, "NOT_FOUND")


async def test_a_redrive_with_another_input_succeeds(api: Api) -> None:
    failed = await api.run(_FAN_OUT, input={"items": "not a list"})
    path = f"/api/executions/{failed['id']}"
    again = await api.post(f"{path}/redrive", {"input": {"items": [1, 2]}})
    assert again.status == 202, again
    found = await api.until(again.headers["location"], status="completed")
    assert found["input"] == {"items": [1, 2]}


async def test_only_what_has_ended_can_be_deleted(api: Api) -> None:
    path = (await api.post("/api/executions", {"definition": flow_of(sleeper())})).headers["location"]
    await api.until(path, status="running")
    (await api.delete(path)).problem(409, "NOT_ENDED")
    await api.post(f"{path}/cancel")
    await api.until(path, status="halted")
    assert (await api.delete(path)).status == 204
    (await api.get(path)).problem(404, "NOT_FOUND")
    (await api.delete(path)).problem(404, "NOT_FOUND")
    (await api.get(f"{path}/events")).problem(404, "NOT_FOUND")


async def test_a_redrive_that_takes_long_to_begin_is_answered_before_it_has(
    small: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.master.starting.PROMPT", 0.05)
    known, seeds = asyncio.Event(), small.master.redriving.seeds

    async def slow(*wish: Any) -> AsyncIterator[Seed]:
        await known.wait()
        async for seed in seeds(*wish):
            yield seed

    monkeypatch.setattr(small.master.redriving, "seeds", slow)
    failed = await small.run(_FAN_OUT, input={"items": 3})
    assert failed["status"] == "halted"
    path = f"/api/executions/{failed['id']}/redrive"
    again = await small.post(path, {"input": {"items": [1, 2]}}, Idempotency_Key="once")
    assert (again.status, again.json["status"]) == (202, "pending")
    assert (await small.post(path, {"input": {"items": [1, 2]}}, Idempotency_Key="once")).json == again.json
    # What is still to be read of it cannot be deleted.
    (await small.delete(f"/api/executions/{failed['id']}")).problem(409, "BEING_READ")
    known.set()
    await small.until(f"/api/executions/{again.json['id']}", status="completed")
    assert (await small.delete(f"/api/executions/{failed['id']}")).status == 204


async def test_events_and_logs_tell_what_happened(api: Api) -> None:
    found = await api.run(flow_of({"id": "a"}, {"id": "b", "parameters": {"message": "x", "level": "error"}}))
    path = f"/api/executions/{found['id']}"
    events = (await api.get(f"{path}/events", limit=500)).json["items"]
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    told = [(event["node"], event["kind"]) for event in events if event["node"]]
    assert ("a", "success") in told
    assert ("b", "success") in told
    assert events[-1]["kind"] == "completed"
    page = (await api.get(f"{path}/events", limit=1)).json
    rest = (await api.get(f"{path}/events", after=page["next"], limit=500)).json
    assert page["items"] + rest["items"] == events
    lines = (await api.get(f"{path}/logs", node="b")).json["items"]
    assert [(line["level"], line["message"]) for line in lines] == [("info", "running"), ("error", "x")]
    assert {line["node"] for line in lines} == {"b"}


async def test_a_result_too_large_for_a_message_is_streamed_whole(api: Api) -> None:
    large = "x" * 300_000
    found = await api.run(
        flow_of(
            {
                "id": "a",
                "type": "edit",
                "parameters": {"assignments": [{"name": "big", "value": "{{ $trigger.big }}"}]},
            }
        ),
        input={"big": large},
    )
    answer = await api.get(f"/api/executions/{found['id']}/result")
    assert answer.status == 200
    assert answer.json["status"] == "completed"
    assert large in answer.data.decode()
    assert answer.json["result"] == found["result"]


async def test_a_result_before_the_end_is_refused(api: Api) -> None:
    path = (await api.post("/api/executions", {"definition": flow_of(sleeper())})).headers["location"]
    (await api.get(f"{path}/result")).problem(409, "NOT_ENDED")
    graph = (await api.get(f"{path}/graph")).json
    assert graph["nodes"][0]["type"] == "wait"


async def test_many_at_once_all_end_and_none_twice(api: Api) -> None:
    await api.post("/api/workflows", {"definition": flow_of({"id": "a"}, {"id": "b"}, id="w")})

    async def one(number: int) -> Any:
        return await api.post("/api/executions", {"workflow_id": "w", "input": {"n": number}, "wait": 60})

    answers = await asyncio.gather(*(one(number) for number in range(100)))
    assert {answer.status for answer in answers} == {200}
    assert {answer.json["status"] for answer in answers} == {"completed"}
    assert [answer.json["input"]["n"] for answer in answers] == list(range(100))
    assert len({answer.json["id"] for answer in answers}) == 100


async def test_of_several_stored_together_one_that_is_there_already_harms_none(small: Api) -> None:
    flow = small.master.flows.flow(json.dumps(flow_of({"id": "a"})).encode())
    ids = ["exec_one", "exec_two", "exec_one", "exec_three"]
    started = [
        small.master.starter.start(flow, NewExecution(id=id, definition=flow.definition.decode()))
        for id in ids
    ]
    found = await asyncio.gather(*started)
    assert [execution.id for execution in found] == ids
    for id in ids:
        assert (await small.until(f"/api/executions/{id}", status="completed"))["nodes"]["a"]["success"] == 1


async def test_while_the_history_is_away_nobody_is_left_waiting(
    small: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*statements: Any) -> None:
        raise InfrastructureError("the database is away")

    monkeypatch.setattr(small.master.history.database, "write", fail)
    posts = (small.post("/api/executions", {"definition": flow_of({"id": "a"})}) for _ in range(5))
    for answer in await asyncio.gather(*posts):
        answer.problem(503, "OUT_OF_REACH")
    monkeypatch.undo()
    assert (await small.run(flow_of({"id": "a"})))["status"] == "completed"
