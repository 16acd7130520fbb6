"""Pages of a web service, against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rune.core.errors import NodeError
from rune.nodes._http_client import HttpClient
from rune.nodes._sources import read_portion
from tests.nodes.fakes import FakeContext
from tests.nodes.sources.reading import items, portions
from tests.nodes.web import Answer, Seen, Web

Body = Callable[[dict[str, str]], Any]


def serve(web: Web, path: str, body: Body) -> None:
    """Answer with what `body` makes of the query."""

    async def route(seen: Seen) -> Answer:
        query = {name: values[-1] for name, values in parse_qs(urlsplit(seen.target).query).items()}
        data = json.dumps(body(query)).encode()
        return Answer(headers=(("Content-Type", "application/json"),), body=data)

    web.routes[path] = route


@pytest.fixture
def context(client: HttpClient) -> FakeContext:
    return FakeContext(services={"http": client})


async def refused(context: FakeContext, **pages: Any) -> NodeError:
    with pytest.raises(NodeError) as raised:
        await items(context, {"pages": pages})
    return raised.value


async def test_pages_by_number_end_at_an_empty_one(web: Web, context: FakeContext) -> None:
    serve(web, "/rows", lambda query: {"data": {"rows": list(range(10))[int(query["p"]) * 4 :][:4]}})
    pages = {"url": f"{web.url}/rows?all=1", "page": "p", "first": 0, "items": "data.rows"}
    pages["params"] = {"size": 4}
    assert await portions(context, {"pages": pages}) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]
    assert "all=1" in web.seen[1].target
    assert "size=4" in web.seen[1].target
    assert "p=1" in web.seen[1].target


async def test_the_answer_itself_may_be_the_list(web: Web, context: FakeContext) -> None:
    serve(web, "/rows", lambda query: [{"id": 1}] if query["page"] == "1" else [])
    assert await items(context, {"pages": {"url": f"{web.url}/rows", "page": "page"}}) == [{"id": 1}]


@pytest.mark.parametrize("end", [None, "", False])
async def test_next_may_be_a_url_also_a_relative_one(web: Web, context: FakeContext, end: Any) -> None:
    nexts = {"1": "/api/rows?at=2", "2": "rows?at=3", "3": end}
    serve(web, "/api/rows", lambda query: {"rows": [query["at"]], "links": {"next": nexts[query["at"]]}})
    pages = {"url": f"{web.url}/api/rows", "params": {"at": 1}, "items": "rows", "next": "links.next"}
    assert await items(context, {"pages": pages}) == ["1", "2", "3"]


async def test_next_may_be_a_cursor(web: Web, context: FakeContext) -> None:
    def body(query: dict[str, str]) -> Any:
        at = int(query.get("after", 0))
        more = {"cursor": at + 2} if at < 4 else {}
        return {"rows": [at, at + 1], "size": query["size"], **more}

    serve(web, "/rows", body)
    pages = {
        "url": f"{web.url}/rows",
        "params": {"size": 2},
        "items": "rows",
        "next": "cursor",
        "cursor": "after",
    }
    assert await items(context, {"pages": pages}) == [0, 1, 2, 3, 4, 5]


async def test_a_page_may_be_empty_and_not_the_last(web: Web, context: FakeContext) -> None:
    bodies = {"": {"rows": [1], "next": "b"}, "b": {"rows": None, "next": "c"}, "c": {"rows": [2]}}
    serve(web, "/rows", lambda query: bodies[query.get("at", "")])
    pages = {"url": f"{web.url}/rows", "items": "rows", "next": "next", "cursor": "at"}
    assert await portions(context, {"pages": pages}) == [[1], [], [2]]


@pytest.mark.parametrize(
    ("nexts", "asked"),
    [
        ({"0": "0"}, 2),
        ({"0": "1", "1": "1"}, 2),
        ({"0": "1", "1": "2", "2": "1"}, 6),
        ({str(n): str(n + 1) for n in range(20)} | {"20": "13"}, 60),
    ],
)
async def test_circles_are_found(web: Web, context: FakeContext, nexts: dict[str, str], asked: int) -> None:
    serve(web, "/rows", lambda query: {"rows": [1], "next": nexts[query.get("at", "0")]})
    error = await refused(context, url=f"{web.url}/rows", items="rows", next="next", cursor="at")
    assert error.code == "SOURCE_ENDLESS"
    assert len(web.seen) <= asked


async def test_a_server_that_does_not_know_the_parameter_is_found_out(web: Web, context: FakeContext) -> None:
    serve(web, "/rows", lambda query: [{"id": 1}])
    error = await refused(context, url=f"{web.url}/rows", page="page")
    assert error.code == "SOURCE_ENDLESS"
    assert len(web.seen) == 2


@pytest.mark.parametrize(("status", "retryable"), [("503 Busy", True), ("429 Slow", True), ("404 No", False)])
async def test_other_answers_are_failures(
    web: Web, context: FakeContext, status: str, retryable: bool
) -> None:
    web.answer("/rows", Answer(status, body=b"why"))
    error = await refused(context, url=f"{web.url}/rows", page="page")
    assert (error.code, error.retryable) == ("HTTP_STATUS", retryable)
    assert error.message == f"the server answered {status}"
    assert error.details == {"status": int(status[:3]), "body": "why"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"other": []}, "at 'rows' is null, not a list"),
        ({"rows": {"a": 1}}, "at 'rows' is object, not a list"),
        ("text", "is null, not a list"),
    ],
)
async def test_what_is_no_list_is_told(web: Web, context: FakeContext, body: Any, said: str) -> None:
    serve(web, "/rows", lambda query: body)
    error = await refused(context, url=f"{web.url}/rows", page="page", items="rows")
    assert error.code == "SOURCE_NOT_LIST"
    assert said in error.message


async def test_a_credential_signs_every_page(web: Web, client: HttpClient) -> None:
    serve(web, "/rows", lambda query: {"rows": [1], "next": None if query else "/rows?two=2"})
    context = FakeContext(services={"http": client}, credential={"token": "abc"})
    pages = {"url": f"{web.url}/rows", "items": "rows", "next": "next", "headers": {"X-Own": "1"}}
    assert await items(context, {"pages": pages}) == [1, 1]
    assert [seen.headers["authorization"] for seen in web.seen] == ["Bearer abc"] * 2
    assert [seen.headers["x-own"] for seen in web.seen] == ["1"] * 2


async def test_a_secret_stays_with_its_origin(web: Web, elsewhere: Web, client: HttpClient) -> None:
    serve(web, "/rows", lambda query: {"rows": [1], "next": f"{elsewhere.url}/rows"})
    serve(elsewhere, "/rows", lambda query: {"rows": [2]})
    pages = {"url": f"{web.url}/rows", "items": "rows", "next": "next"}
    signed = FakeContext(services={"http": client}, credential={"token": "abc"})
    for context, more in (
        (signed, {}),
        (FakeContext(services={"http": client}), {"headers": {"x-key": "s"}}),
    ):
        error = await refused(context, **pages, **more)
        assert error.code == "SOURCE_NEXT"
        assert elsewhere.seen == []
    assert await items(FakeContext(services={"http": client}), {"pages": pages}) == [1, 2]


async def test_an_origin_may_be_written_in_several_ways(web: Web, client: HttpClient) -> None:
    port = web.url.rpartition(":")[2]
    nexts = {"1": f"http://LocalHost:{port}/rows?at=2", "2": f"HTTP://localhost:0{port}/rows?at=3", "3": None}
    serve(web, "/rows", lambda query: {"rows": [query["at"]], "next": nexts[query["at"]]})
    context = FakeContext(services={"http": client}, credential={"token": "abc"})
    pages = {
        "url": f"http://localhost:{port}/rows",
        "params": {"at": 1},
        "items": "rows",
        "next": "next",
    }
    assert await items(context, {"pages": pages}) == ["1", "2", "3"]
    assert {seen.headers["authorization"] for seen in web.seen} == {"Bearer abc"}


@pytest.mark.parametrize("next", ["http://[x/rows", "http://host:port/rows", "ftp://host/rows"])
async def test_a_next_that_is_no_address_is_told(web: Web, context: FakeContext, next: str) -> None:
    serve(web, "/rows", lambda query: {"rows": [1], "next": next})
    error = await refused(context, url=f"{web.url}/rows", items="rows", next="next")
    assert error.code == "HTTP_URL"


async def test_a_next_that_is_no_url_is_told(web: Web, context: FakeContext) -> None:
    serve(web, "/rows", lambda query: {"rows": [1], "next": 7})
    error = await refused(context, url=f"{web.url}/rows", items="rows", next="next")
    assert "not a URL" in error.message


async def test_one_page_is_one_portion(web: Web, context: FakeContext) -> None:
    serve(web, "/rows", lambda query: list(range(50)))
    pages = {"pages": {"url": f"{web.url}/rows", "page": "page"}}
    portion = await read_portion(pages, context, None, 2)
    assert len(portion.items) == 50
    assert portion.position["page"] == 2
