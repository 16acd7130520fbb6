"""Workflows that call others through the API: linked when they are stored, seen as parents and children."""

from __future__ import annotations

from typing import Any

from tests.master.client import Api, flow_of, sleeper


def call(name: str, id: str = "call", **more: Any) -> dict[str, Any]:
    """A node that calls a workflow."""
    return {"id": id, "type": "workflow", "parameters": {"workflow": name, "input": {"n": 1}}, **more}


def said(message: str, id: str) -> Any:
    """A workflow that says something."""
    return flow_of({"id": "say", "parameters": {"message": message}}, id=id, name=f"The {id}")


async def keep(api: Api, definition: Any, *, publish: bool = True) -> Any:
    """Store a workflow."""
    answer = await api.post("/api/workflows", {"definition": definition, "publish": publish})
    assert answer.status == 201, answer
    return answer.json


async def problems(api: Api, definition: Any) -> list[tuple[str, str, str]]:
    """Code, place and message of what is wrong with a workflow."""
    answer = await api.post("/api/workflows", {"definition": definition})
    errors = answer.problem(422, "INVALID_WORKFLOW")["errors"]
    return [(error["code"], error["path"], error["message"]) for error in errors]


async def output(api: Api, execution: str, name: str) -> Any:
    """A value of the final context."""
    return (await api.get(f"/api/executions/{execution}/result")).json["result"][name]


async def test_a_child_is_an_execution_of_its_own_and_names_its_parent(api: Api) -> None:
    await keep(api, said("{{ $trigger.n }} is what I got", "greeter"))
    await keep(api, flow_of(call("greeter"), id="caller"))
    ended = (await api.post("/api/executions", {"workflow_id": "caller", "wait": 30})).json
    assert ended["status"] == "completed", ended
    assert (await output(api, ended["id"], "$call"))["message"] == "1 is what I got"
    whole = await api.until(f"/api/executions/{ended['id']}", status="completed")
    (child,) = whole["children"]
    assert child["trigger"] == "workflow"
    found = await api.until(f"/api/executions/{child['id']}", status="completed")
    assert (found["parent"], found["workflow_id"]) == (ended["id"], "greeter")
    assert (found["trigger"], found["input"]) == ("workflow", {"n": 1})
    listed = (await api.get("/api/executions", parent=ended["id"], trigger="workflow")).json["items"]
    assert [each["id"] for each in listed] == [child["id"]]
    graph = (await api.get(f"/api/executions/{child['id']}/graph")).json
    assert [node["id"] for node in graph["nodes"]] == ["say"]
    (step,) = (await api.get(f"/api/executions/{ended['id']}/steps")).json["items"]
    assert step["details"] == {"child": child["id"], "workflow": "greeter"}


async def test_what_is_called_is_fixed_when_the_caller_is_stored(small: Api) -> None:
    child = await keep(small, said("one", "greeter"))
    await keep(small, flow_of(call("The greeter"), id="caller"))
    changed = {"definition": said("two", "greeter"), "version": child["version"], "publish": True}
    assert (await small.put("/api/workflows/greeter", changed)).status == 200

    async def runs() -> str:
        ended = (await small.post("/api/executions", {"workflow_id": "caller", "wait": 30})).json
        return str((await output(small, ended["id"], "$call"))["message"])

    assert await runs() == "one", "a version never changes"
    again = (await small.get("/api/workflows/caller")).json
    anew = {"definition": again["definition"], "version": 1, "publish": True}
    stored = await small.put("/api/workflows/caller", anew)
    assert stored.status == 200, stored
    assert await runs() == "two", "whoever stores it again gets what is published by then"


async def test_what_is_called_must_be_there_and_published(small: Api) -> None:
    assert await problems(small, flow_of(call("nobody"))) == [
        ("E050", "/nodes/0/parameters/workflow", "there is no workflow 'nobody' to call")
    ]
    await keep(small, said("draft", "draft"), publish=False)
    ((code, path, message),) = await problems(small, flow_of(call("draft")))
    assert (code, path) == ("E052", "/nodes/0/parameters/workflow")
    assert "published" in message
    source = "nodes:\n  - id: a\n    type: workflow\n    parameters:\n      workflow: nobody\n"
    answer = await small.post("/api/workflows/validate", {"source": source})
    (flaw,) = answer.json["problems"]
    assert (flaw["code"], flaw["line"], flaw["column"]) == ("E050", 5, 17)


async def test_a_circle_of_calls_is_refused(small: Api) -> None:
    await keep(small, said("one", "first"))
    await keep(small, flow_of(call("first"), id="second"))
    await keep(small, flow_of(call("second"), id="third"))
    closing = {"definition": flow_of(call("third"), id="first"), "version": 1}
    answer = await small.put("/api/workflows/first", closing)
    (error,) = answer.problem(422, "INVALID_WORKFLOW")["errors"]
    assert (error["code"], error["path"]) == ("E051", "/nodes/0/parameters/workflow")
    assert "first → third → second → first" in error["message"]


async def test_a_definition_that_is_sent_along_calls_stored_ones(small: Api) -> None:
    await keep(small, said("hello", "greeter"))
    ended = await small.run(flow_of(call("greeter")))
    assert (await output(small, ended["id"], "$call"))["message"] == "hello"


async def test_cancelling_the_caller_cancels_the_child_and_why_names_it(small: Api) -> None:
    await keep(small, flow_of(sleeper(), id="sleeper"))
    started = (await small.post("/api/executions", {"definition": flow_of(call("sleeper"))})).json
    calling = await small.once(f"/api/executions/{started['id']}", lambda found: found["children"])
    children = calling["children"]
    why = (await small.get(f"/api/executions/{started['id']}/why")).json
    assert any(children[0]["id"] in hold["detail"] for hold in why["holds"])
    await small.post(f"/api/executions/{started['id']}/cancel")
    await small.until(f"/api/executions/{started['id']}", status="halted")
    child = await small.until(f"/api/executions/{children[0]['id']}", status="halted")
    assert started["id"] in child["reason"]


async def test_a_redrive_reuses_the_child_that_succeeded_and_calls_the_failed_one_anew(small: Api) -> None:
    await keep(small, said("fine", "good"))
    risky = flow_of({"id": "risky", "parameters": {"message": "{{ $trigger.n.missing.thing }}"}}, id="risky")
    await keep(small, risky)
    definition = flow_of(call("good", "one"), call("risky", "two"))
    failed = await small.run(definition)
    assert failed["status"] == "halted"
    assert failed["error"]["code"] == "CHILD_FAILED"
    first = await small.until(f"/api/executions/{failed['id']}", status="halted")
    assert len(first["children"]) == 2
    again = (await small.post(f"/api/executions/{failed['id']}/redrive")).json
    found = await small.until(f"/api/executions/{again['id']}", status="halted")
    (called,) = found["children"]
    assert called["id"] not in {child["id"] for child in first["children"]}
    child = (await small.get(f"/api/executions/{called['id']}")).json
    assert child["workflow_id"] == "risky"


async def test_playbooks_and_workflows_call_each_other(small: Api) -> None:
    await keep(small, said("from the graph", "graph"))
    source = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: book}
workflow:
  - step: call
    tool: {kind: playbook, path: graph}
"""
    stored = await small.post("/api/workflows", {"source": source, "publish": True})
    assert stored.status == 201, stored
    assert stored.json["source"] == source
    ended = await small.run(flow_of(call("book")))
    result = await output(small, ended["id"], "$call")
    assert result["steps"]["call"]["message"] == "from the graph"


async def test_a_fork_to_another_version_calls_anew_what_has_changed(small: Api) -> None:
    await keep(small, said("same", "same"))
    await keep(small, said("old", "other"))
    nodes = [call("same", "one"), call("other", "two"), {"id": "end"}]
    await keep(small, flow_of(*nodes, id="caller"))
    before = (await small.post("/api/executions", {"workflow_id": "caller", "wait": 30})).json
    changed = {"definition": said("new", "other"), "version": 1, "publish": True}
    assert (await small.put("/api/workflows/other", changed)).status == 200
    again = {"definition": flow_of(*nodes, id="caller"), "version": 1}
    assert (await small.put("/api/workflows/caller", again)).json["version"] == 2
    forked = await small.post(f"/api/executions/{before['id']}/fork", {"node": "end", "version": 2})
    assert forked.status in (201, 202), forked
    await small.until(f"/api/executions/{forked.json['id']}", status="completed")
    assert (await output(small, forked.json["id"], "$two"))["message"] == "new"
    found = (await small.get(f"/api/executions/{forked.json['id']}")).json
    (child,) = found["children"]
    assert (await small.get(f"/api/executions/{child['id']}")).json["workflow_id"] == "other"
