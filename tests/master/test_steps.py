"""Steps, splits and items over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.master.client import Api

_FAN_OUT = {
    "nodes": [
        {
            "id": "each",
            "type": "split",
            "parameters": {
                "input_array": "$trigger.items",
                "label": "{{ 'number ' ~ $item }}",
                "on_item_error": "collect",
            },
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


@pytest.fixture
async def path(api: Api) -> str:
    """An execution of which one item of four has failed."""
    found = await api.run(_FAN_OUT, input={"items": [1, 2, 0, 4]})
    return f"/api/executions/{found['id']}"


async def _split(api: Api, path: str) -> Any:
    (split,) = (await api.get(f"{path}/splits")).json["items"]
    return split


async def test_a_split_counts_its_items_and_groups_what_failed(api: Api, path: str) -> None:
    split = await _split(api, path)
    counts = {state: split[state] for state in ("total", "succeeded", "failed", "pending")}
    assert counts == {"total": 4, "succeeded": 3, "failed": 1, "pending": 0}
    assert (split["node"], split["scope"]) == ("each", None)
    assert split in (await api.get(path)).json["splits"]
    (failure,) = (await api.get(f"{path}/splits/{split['barrier']}")).json["failures"]
    assert (failure["node"], failure["count"], failure["example"]) == ("rate", 1, 2)
    assert failure["error"]["code"] == failure["code"]


async def test_items_are_listed_in_pages_and_by_state(api: Api, path: str) -> None:
    barrier = (await _split(api, path))["barrier"]
    items = f"{path}/splits/{barrier}/items"
    first = (await api.get(items, limit=3)).json
    second = (await api.get(items, limit=3, after=first["next"])).json
    assert [item["index"] for item in first["items"] + second["items"]] == [0, 1, 2, 3]
    assert first["items"][1]["label"] == "number 2"
    failed = (await api.get(items, state="failed")).json["items"]
    assert [(item["index"], item["error_node"]) for item in failed] == [(2, "rate")]


async def test_one_item_has_its_steps(api: Api, path: str) -> None:
    barrier = (await _split(api, path))["barrier"]
    item = (await api.get(f"{path}/splits/{barrier}/items/2")).json
    (step,) = item["steps"]
    assert (item["state"], step["node"], step["status"]) == ("failed", "rate", "failed")
    assert [(frame["split"], frame["index"]) for frame in step["lineage"]] == [("each", 2)]
    detail = (await api.get(f"{path}/steps/{step['step']}")).json
    assert detail["error"]["code"] == step["error"]["code"]
    assert detail["input"] is not None
    good = (await api.get(f"{path}/splits/{barrier}/items/1")).json["steps"][0]
    detail = (await api.get(f"{path}/steps/{good['step']}")).json
    assert detail["output"]["rate"] == 6
    assert detail["item"] == 2
    assert detail["parameters"]["assignments"][0]["value"] == 6


async def test_steps_by_node_status_and_scope(api: Api, path: str) -> None:
    barrier = (await _split(api, path))["barrier"]

    async def nodes(**query: Any) -> list[str]:
        found = (await api.get(f"{path}/steps", limit=500, **query)).json["items"]
        return sorted(step["node"] for step in found)

    assert await nodes(node="rate", status="success") == ["rate"] * 3
    assert await nodes(scope=barrier, item=3) == ["rate"]
    assert await nodes(scope="root") == ["all", "each"]


async def test_what_is_not_there(api: Api, path: str) -> None:
    barrier = (await _split(api, path))["barrier"]
    for tail in ("steps/none", "splits/none", "splits/none/items", f"splits/{barrier}/items/4"):
        (await api.get(f"{path}/{tail}")).problem(404, "NOT_FOUND")
    for tail in ("steps", "splits", "events", "logs", "graph", "result"):
        (await api.get(f"/api/executions/none/{tail}")).problem(404, "NOT_FOUND")


async def test_large_outputs_of_items_are_kept_however_soon_the_execution_ends(api: Api) -> None:
    large = [{"name": "text", "value": "{{ 'x' * (100000 + $item) }}"}]
    nodes = [{"id": "large", "type": "edit", "parameters": {"mode": "keep_only", "assignments": large}}]
    gather = {"id": "all", "type": "aggregator", "parameters": {"reduce": "count"}}
    flow = {**_FAN_OUT, "nodes": [_FAN_OUT["nodes"][0], *nodes, gather]}
    flow["edges"] = [{"id": "e1", "src": "each", "dst": "large"}, {"id": "e2", "src": "large", "dst": "all"}]
    found = await api.run(flow, input={"items": list(range(20))})
    path = f"/api/executions/{found['id']}"
    steps = (await api.get(f"{path}/steps", node="large")).json["items"]
    outputs = [(await api.get(f"{path}/steps/{step['step']}")).json["output"] for step in steps]
    assert sorted(len(output["text"]) for output in outputs) == [100_000 + n for n in range(20)]
    # One that is lost all the same is null.
    await api.master.history.database.write(("DELETE FROM history_value", [()]))
    lost = await api.get(f"{path}/steps/{steps[0]['step']}")
    assert (lost.status, lost.json["output"]) == (200, None)
