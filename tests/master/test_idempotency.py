"""`Idempotency-Key` over HTTP."""

from __future__ import annotations

import asyncio

from rune.history.idempotency import Claim
from tests.master.client import Api, flow_of


async def test_the_same_request_again_gets_the_same_answer_and_starts_nothing(api: Api) -> None:
    body = {"definition": flow_of({"id": "a"}), "wait": 30}
    first = await api.post("/api/executions", body, Idempotency_Key="k1")
    again = await api.post("/api/executions", body, Idempotency_Key="k1")
    assert (first.status, first.data) == (again.status, again.data)
    assert again.headers["location"] == first.headers["location"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len((await api.get("/api/executions")).json["items"]) == 1
    other = await api.post("/api/executions", body, Idempotency_Key="k2")
    assert other.json["id"] != first.json["id"]


async def test_the_key_with_another_body_is_refused(api: Api) -> None:
    await api.post("/api/executions", {"definition": flow_of({"id": "a"})}, Idempotency_Key="k")
    other = await api.post("/api/executions", {"definition": flow_of({"id": "b"})}, Idempotency_Key="k")
    other.problem(422, "IDEMPOTENCY_KEY_REUSED")


async def test_of_many_at_once_one_is_carried_out(api: Api) -> None:
    body = {"definition": flow_of({"id": "a"}), "wait": 30}
    posts = (api.post("/api/executions", body, Idempotency_Key="same") for _ in range(10))
    answers = await asyncio.gather(*posts)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.data for answer in answers}) == 1
    assert len((await api.get("/api/executions")).json["items"]) == 1


async def test_a_refused_request_leaves_the_key_free(api: Api) -> None:
    wrong = await api.post(
        "/api/workflows",
        {"definition": flow_of({"id": "a", "type": "nonsense"}, id="w")},
        Idempotency_Key="k",
    )
    wrong.problem(422, "INVALID_WORKFLOW")
    right = await api.post(
        "/api/workflows", {"definition": flow_of({"id": "a"}, id="w")}, Idempotency_Key="k"
    )
    assert right.status == 201
    again = await api.post(
        "/api/workflows", {"definition": flow_of({"id": "a"}, id="w")}, Idempotency_Key="k"
    )
    assert (again.status, again.data) == (201, right.data)


async def test_who_takes_over_from_a_master_that_died_starts_the_same_execution(api: Api) -> None:
    body = {"definition": flow_of({"id": "a"}), "wait": 30}
    first = await api.post("/api/executions", body, Idempotency_Key="k")
    # As if its master had died between the start and the answer.
    keys = api.master.idempotency
    forgotten = "UPDATE idempotency SET status = NULL, headers = NULL, body = NULL, claimed_until = 0"
    await api.master.history.database.write((forgotten, [()]))
    again = await api.post("/api/executions", body, Idempotency_Key="k")
    assert again.json["id"] == first.json["id"]
    assert len((await api.get("/api/executions")).json["items"]) == 1
    assert not isinstance(keys, Claim)


async def test_a_key_that_makes_no_sense_is_refused(small: Api) -> None:
    body = {"definition": flow_of({"id": "a"})}
    (await small.post("/api/executions", body, Idempotency_Key="x" * 300)).problem(422, "INVALID_REQUEST")
