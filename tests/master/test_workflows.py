"""Workflows over HTTP: created, changed, compared, published, moved, deleted."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.master.client import Api, flow_of


async def _created(api: Api, definition: Any, **more: Any) -> Any:
    answer = await api.post("/api/workflows", {"definition": definition, **more})
    assert answer.status == 201, answer
    assert answer.headers["location"] == f"/api/workflows/{answer.json['id']}"
    return answer.json


async def test_a_workflow_is_kept_as_it_was_given(api: Api) -> None:
    definition = flow_of({"id": "a"}, {"id": "b"}, id="orders", name="Orders", notes="mine")
    made = await _created(api, definition, description="All of them", note="first", publish=True)
    found = await api.get("/api/workflows/orders")
    assert found.json == made
    assert found.headers["etag"] == '"1"'
    assert made["definition"] == definition
    expected = {
        "name": "Orders",
        "description": "All of them",
        "version": 1,
        "published": 1,
        "format": "graph",
    }
    assert {key: made[key] for key in expected} == expected


async def test_a_text_keeps_its_comments(api: Api) -> None:
    source = "# what it does\nnodes:\n  - id: a\n    type: log\n    parameters: {message: hi}\n"
    answer = await api.post("/api/workflows", {"source": source, "name": "Hi"})
    assert answer.status == 201
    assert answer.json["source"] == source
    assert answer.json["definition"]["nodes"][0]["id"] == "a"
    # Without an id of its own it gets one, which its definition says, too.
    assert answer.json["definition"]["workflow_id"] == answer.json["id"]


async def test_what_cannot_be_run_is_refused_with_every_problem_and_its_place(api: Api) -> None:
    definition = flow_of({"id": "a", "type": "logg"}, {"id": "b", "parameters": {"mesage": "x"}})
    found = (await api.post("/api/workflows", {"definition": definition})).problem(422, "INVALID_WORKFLOW")
    errors = {(error["code"], error["path"]) for error in found["errors"]}
    assert ("E016", "/nodes/0/type") in errors
    assert any(code == "E012" and path.startswith("/nodes/1/parameters") for code, path in errors)
    assert (await api.get("/api/workflows")).json == {"items": [], "next": None}


async def test_a_broken_text_says_line_and_column(api: Api) -> None:
    answer = await api.post("/api/workflows", {"source": '{"nodes": [}'})
    (error,) = answer.problem(422, "INVALID_WORKFLOW")["errors"]
    assert (error["code"], error["line"]) == ("E002", 1)


async def test_an_id_that_is_taken_or_reserved_is_refused(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="orders"))
    again = await api.post("/api/workflows", {"definition": flow_of({"id": "a"}, id="orders")})
    again.problem(409, "EXISTS")
    reserved = await api.post("/api/workflows", {"definition": flow_of({"id": "a"}, id="export")})
    reserved.problem(422, "RESERVED_ID")


async def test_a_change_makes_a_version_and_needs_to_know_the_one_before(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="w"))
    second = flow_of({"id": "a"}, {"id": "b"}, id="w")
    changed = await api.put("/api/workflows/w", {"definition": second, "version": 1, "note": "more"})
    assert (changed.status, changed.json["version"], changed.json["definition"]) == (200, 2, second)
    assert changed.headers["etag"] == '"2"'
    late = await api.put("/api/workflows/w", {"definition": second, "version": 1})
    late.problem(409, "VERSION_MISMATCH")
    (await api.put("/api/workflows/w", {"definition": second})).problem(428, "VERSION_NEEDED")
    (await api.put("/api/workflows/gone", {"definition": second, "version": 1})).problem(404, "NOT_FOUND")


async def test_if_match_does_as_well(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="w"))
    body = {"definition": flow_of({"id": "b"}, id="w")}
    assert (await api.put("/api/workflows/w", body, If_Match='"1"')).status == 200
    (await api.put("/api/workflows/w", body, If_Match='"1"')).problem(412, "VERSION_MISMATCH")
    (await api.put("/api/workflows/w", body, If_Match="nonsense")).problem(412, "VERSION_MISMATCH")
    assert (await api.put("/api/workflows/w", body, If_Match="*")).json["version"] == 3


async def test_of_two_changes_at_once_one_is_told(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="w"))
    bodies = [{"definition": flow_of({"id": f"n{n}"}, id="w"), "version": 1} for n in range(5)]
    found = await asyncio.gather(*(api.put("/api/workflows/w", body) for body in bodies))
    assert sorted(answer.status for answer in found) == [200, 409, 409, 409, 409]


async def test_versions_never_change_and_can_be_compared(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="w"), note="one")
    second = flow_of({"id": "a", "parameters": {"message": "new"}}, {"id": "b"}, id="w")
    await api.put("/api/workflows/w", {"definition": second, "version": 1, "note": "two"})
    listed = (await api.get("/api/workflows/w/versions")).json["items"]
    assert [(found["version"], found["note"]) for found in listed] == [(2, "two"), (1, "one")]
    first = (await api.get("/api/workflows/w/versions/1")).json
    assert first["definition"] == flow_of({"id": "a"}, id="w")
    diff = (await api.get("/api/workflows/w/versions/2/diff")).json
    assert (diff["from"], diff["to"]) == (1, 2)
    assert [(change["op"], change["path"]) for change in diff["changes"]] == [
        ("replace", "/nodes/a/parameters/message"),
        ("add", "/nodes/b"),
        ("add", "/edges/e0"),
    ]
    back = (await api.get("/api/workflows/w/versions/1/diff", **{"from": "2"})).json
    assert {change["op"] for change in back["changes"]} == {"replace", "remove"}
    (await api.get("/api/workflows/w/versions/9")).problem(404, "NOT_FOUND")
    (await api.get("/api/workflows/w/versions/0")).problem(422, "INVALID_REQUEST")
    (await api.get("/api/workflows/none/versions")).problem(404, "NOT_FOUND")


async def test_a_version_is_published_and_taken_back(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="w"))
    published = await api.post("/api/workflows/w/publish", {"version": 1})
    assert published.json["published"] == 1
    (await api.post("/api/workflows/w/publish", {"version": 7})).problem(404, "NOT_FOUND")
    assert (await api.post("/api/workflows/w/publish", {"version": None})).json["published"] is None
    (await api.post("/api/workflows/none/publish", {"version": 1})).problem(404, "NOT_FOUND")


async def test_a_list_in_pages_has_each_workflow_once(api: Api) -> None:
    for number in range(7):
        await _created(api, flow_of({"id": "a"}, id=f"w{number}", name=f"Name {number % 3}"))
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = (await api.get("/api/workflows", **query)).json
        seen += [found["id"] for found in page["items"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert sorted(seen) == [f"w{number}" for number in range(7)]
    assert len((await api.get("/api/workflows", text="name 1")).json["items"]) == 2
    assert (await api.get("/api/workflows", text="%")).json["items"] == []


async def test_a_cursor_that_was_changed_is_refused(api: Api) -> None:
    for number in range(3):
        await _created(api, flow_of({"id": "a"}, id=f"w{number}"))
    cursor = (await api.get("/api/workflows", limit=1)).json["next"]
    for changed in (cursor[:-1], cursor + "A", "x" + cursor[1:], cursor.swapcase(), "nonsense"):
        (await api.get("/api/workflows", after=changed)).problem(400, "INVALID_CURSOR")
    # That of another list does not do, either.
    (await api.get("/api/executions", after=cursor)).problem(400, "INVALID_CURSOR")


async def test_what_is_deleted_is_gone_and_its_id_stays_taken(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="w"))
    assert (await api.delete("/api/workflows/w")).status == 204
    (await api.get("/api/workflows/w")).problem(404, "NOT_FOUND")
    (await api.delete("/api/workflows/w")).problem(404, "NOT_FOUND")
    (await api.post("/api/executions", {"workflow_id": "w"})).problem(404, "NOT_FOUND")
    again = await api.post("/api/workflows", {"definition": flow_of({"id": "a"}, id="w")})
    again.problem(409, "DELETED")


async def test_validation_tells_everything_and_keeps_nothing(api: Api) -> None:
    right = await api.post("/api/workflows/validate", {"definition": flow_of({"id": "a"}, {"id": "b"})})
    assert (right.json["valid"], right.json["problems"]) == (True, [])
    assert [node["id"] for node in right.json["graph"]["nodes"]] == ["a", "b"]
    wrong = await api.post("/api/workflows/validate", {"source": "nodes:\n  - {id: a, type: nonsense}\n"})
    (problem,) = wrong.json["problems"]
    assert wrong.json["valid"] is False
    assert (problem["code"], problem["severity"], problem["line"]) == ("E016", "error", 2)
    assert (await api.get("/api/workflows")).json["items"] == []


async def test_a_drawing_of_a_workflow(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, {"id": "b"}, id="w"))
    graph = (await api.get("/api/workflows/w/graph")).json
    assert [(edge["source"], edge["target"], edge["port"]) for edge in graph["edges"]] == [("a", "b", "out")]
    (await api.get("/api/workflows/none/graph")).problem(404, "NOT_FOUND")


async def test_a_bundle_brings_workflows_elsewhere_and_twice_is_once(api: Api) -> None:
    await _created(api, flow_of({"id": "a"}, id="one"), description="d", publish=True)
    await _created(api, flow_of({"id": "b"}, id="two"))
    bundle = (await api.get("/api/workflows/export")).json
    assert [each["id"] for each in bundle["workflows"]] == ["one", "two"]
    again = await api.post("/api/workflows/import", bundle)
    assert again.json == {"created": [], "updated": [], "unchanged": ["one", "two"]}
    some = (await api.get("/api/workflows/export", id="two")).json
    some["workflows"][0] |= {"id": "three", "definition": flow_of({"id": "c"})}
    bundle["workflows"][0]["definition"]["nodes"][0]["parameters"]["message"] = "changed"
    some["workflows"].append(bundle["workflows"][0])
    mixed = await api.post("/api/workflows/import", some)
    assert mixed.json == {"created": ["three"], "updated": ["one"], "unchanged": []}
    one = (await api.get("/api/workflows/one")).json
    assert (one["version"], one["published"]) == (2, 2)
    (await api.get("/api/workflows/export", id="none")).problem(404, "NOT_FOUND")


async def test_of_a_bundle_with_one_wrong_workflow_nothing_is_kept(api: Api) -> None:
    bundle = {
        "workflows": [
            {"id": "right", "definition": flow_of({"id": "a"})},
            {"id": "wrong", "definition": flow_of({"id": "a", "type": "nonsense"})},
        ]
    }
    found = (await api.post("/api/workflows/import", bundle)).problem(422, "INVALID_WORKFLOW")
    assert found["errors"][0]["path"] == "/workflows/1/definition/nodes/0/type"
    assert (await api.get("/api/workflows")).json["items"] == []


async def test_the_node_types_have_schemas(small: Api) -> None:
    found = {each["name"]: each for each in (await small.get("/api/nodes")).json["items"]}
    assert found["split"]["role"] == "split"
    assert found["log"]["parameters"]["required"] == ["message"]
