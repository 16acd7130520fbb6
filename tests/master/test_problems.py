"""Bad input over HTTP: a problem document each time, and no trace left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rune.core.errors import InfrastructureError
from rune.history.executions import Executions
from tests.master.client import Api, flow_of


async def test_unknown_paths_and_methods(small: Api) -> None:
    (await small.get("/api/nothing")).problem(404, "NOT_FOUND")
    wrong = await small.ask("PATCH", "/api/workflows")
    wrong.problem(405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"]
    # No trailing slash leads anywhere else.
    (await small.get("/api/workflows/")).problem(404, "NOT_FOUND")


async def test_a_body_that_does_not_fit_says_where(small: Api) -> None:
    body = {"definition": flow_of({"id": "a"}), "priority": 99, "labels": {"x": 1}, "nonsense": True}
    found = (await small.post("/api/executions", body)).problem(422, "INVALID_REQUEST")
    assert {error["path"] for error in found["errors"]} == {"/priority", "/labels/x", "/nonsense"}


async def test_a_query_that_does_not_fit_says_where(small: Api) -> None:
    found = (await small.get("/api/executions", limit=0, status="asleep")).problem(422, "INVALID_REQUEST")
    assert {error["path"] for error in found["errors"]} == {"query/limit", "query/status/0"}


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"",
        b'{"input": NaN}',
        b'{"input": "\\ud800"}',
        b'{"input": "\xff"}',
        b"[" * 5000 + b"]" * 5000,
        b'{"input": 123456789012345678901234567890}',
        b'{"input": 1e999}',
    ],
    ids=["cut", "empty", "nan", "half a character", "not UTF-8", "deep", "huge integer", "huge number"],
)
async def test_what_is_no_json_is_refused(small: Api, data: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await small.ask("POST", "/api/executions", data=data, headers=headers)
    assert answer.status in (400, 422)
    assert answer.json["code"] in ("MALFORMED_JSON", "INVALID_REQUEST")
    assert (await small.get("/api/executions")).json["items"] == []


async def test_another_media_type_is_refused(small: Api) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
        answer = await small.ask("POST", "/api/executions", data=b"{}", headers={"Content-Type": kind})
        answer.problem(415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.fixture
async def narrow(tmp_path: Any) -> AsyncIterator[Api]:
    """A master that takes only small bodies."""
    from tests.master.client import open_api

    async with open_api(tmp_path / "rune.db", max_body=2000) as found:
        yield found


async def test_a_body_that_is_too_long_is_refused_streamed_or_not(narrow: Api) -> None:
    body = {"definition": flow_of({"id": "a"}), "input": "x" * 3000}
    (await narrow.post("/api/executions", body)).problem(413, "TOO_LARGE")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b" " * 100

    headers = {"Content-Type": "application/json"}
    streamed = await narrow.ask("POST", "/api/executions", data=pieces(), headers=headers)
    streamed.problem(413, "TOO_LARGE")
    body["input"] = "x"
    assert (await narrow.post("/api/executions", body)).status == 201


async def test_ids_nobody_could_have_given(small: Api) -> None:
    for path in ("/api/executions/%00", "/api/workflows/a%2Fb", "/api/workflows/" + "x" * 300):
        assert (await small.get(path)).status in (404, 422)
    (await small.get("/api/workflows", text="a\0b")).problem(422, "INVALID_REQUEST")


async def test_a_server_out_of_reach_is_503_and_says_no_more(
    small: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Executions, id: str) -> None:
        raise InfrastructureError("postgresql://rune:secret@db is out of reach")

    monkeypatch.setattr(Executions, "get", fail)
    answer = await small.get("/api/executions/x")
    answer.problem(503, "OUT_OF_REACH")
    assert answer.headers["retry-after"]
    assert b"secret" not in answer.data


async def test_a_bug_is_500_without_its_insides(small: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Executions, id: str) -> None:
        raise ZeroDivisionError("the secret insides")

    monkeypatch.setattr(Executions, "get", fail)
    answer = await small.get("/api/executions/x")
    answer.problem(500, "INTERNAL_ERROR")
    assert b"inside" not in answer.data
    assert answer.headers["x-content-type-options"] == "nosniff"
    monkeypatch.undo()
    (await small.get("/api/executions/x")).problem(404, "NOT_FOUND")
