"""What goes over the wire and into Redis: no secrets, no more than it has to be, and all of it twice."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.distributed.client import COMPLETION, EXECUTION, STATUS, Client, condition, flow, node, put
from tests.distributed.fleet import Fleet

CANARY = "c4n4ry-s3cr3t/+&"
FORMS = (
    CANARY,
    json.dumps(CANARY)[1:-1],
    "c4n4ry-s3cr3t%2F%2B%26",
    base64.b64encode(CANARY.encode()).decode(),
    base64.b64encode(f"user:{CANARY}".encode()).decode(),
    CANARY.encode().hex(),
)


# --- credentials ---


class _Echo(BaseHTTPRequestHandler):
    """Says back what it was sent, secrets and all."""

    def do_GET(self) -> None:
        body = json.dumps({"authorization": self.headers.get("Authorization"), "path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def contents(crew: Fleet) -> str:
    """All that Redis holds, of any type."""
    readers = {b"hash": ("HGETALL",), b"string": ("GET",), b"set": ("SMEMBERS",)}
    found = []
    for key in crew.redis.call_in(crew.db, "KEYS", "*"):
        kind = crew.redis.call_in(crew.db, "TYPE", key)
        command, *rest = readers.get(kind, ("ZRANGE", key, 0, -1))
        found.append(repr(crew.redis.call_in(crew.db, command, *(rest or [key]))))
    return "\n".join(found)


@pytest.mark.parametrize(
    "credential", [{"token": CANARY}, {"username": "user", "password": CANARY}], ids=["bearer", "basic"]
)
def test_no_form_of_a_credential_is_in_any_queue_or_key(crew: Fleet, echo: str, credential: Any) -> None:
    worker = crew.worker(
        *("--modules", "tests.distributed.nodes"),
        RUNE_CREDENTIALS=json.dumps({"api": credential}),
        RUNE_RETRY_DELAYS="0.05,0.1",
        RUNE_HTTP_ALLOW="127.0.0.1",
    )
    client = crew.client()
    retries, queues = ("workflow.execution.retry.50ms", "workflow.execution.retry.100ms"), (EXECUTION, STATUS)
    taps = {name: client.tap(name) for name in (*retries, "workflow.execution.dlx")}
    taps |= {name: client.tap(name, name) for name in (*queues, COMPLETION)}
    nodes = [
        node("call", "http", url=f"{echo}/?q=1", credentials={"id": "api"}),
        node("w", "wait", amount=3600),
        node("bad", "http", url="http://127.0.0.1:1/", credentials={"id": "api"}, error={"type": "ignore"}),
        put("end", said="$call"),
    ]
    waiting = client.start(flow(nodes, "call > bad > end > w"))
    client.wait(lambda: "waiting" in client.told(waiting, "w"))
    assert "authorization" in json.dumps(client.statuses[waiting]), "it did come back"
    halted = client.start(flow([nodes[0], nodes[2] | {"error": {"type": "halt"}}], "call > bad"))
    assert client.completion(halted)["status"] == "halted"
    nodes = [nodes[0], node("s", "split", input_array="$trigger"), put("each"), node("blab", "blab")]
    parked = client.start(flow(nodes, "call > s > each > blab"), [1])
    assert "no, because of" in client.completion(parked)["error"]["message"]
    client.wait(lambda: all(taps.values()), what=f"something in each queue: {[*map(len, taps.values())]}")
    held = contents(crew)
    assert waiting in held, "the Task that waits is in there"
    said = f"{taps} {held} {worker.log}"
    assert "because of" in said
    for form in FORMS:
        assert form not in said


# --- volume ---


def volume(client: Client, tasks: list[bytes], items: int) -> int:
    """Bytes of all messages of a fan-out of so many items of 100 bytes; checks that none is large."""
    nodes = [
        node("s", "split", input_array="$trigger"),
        put("b", text="$item.text"),
        node("g", "aggregator", collect="$json.text"),
        put("end", n="{{ $g.aggregated | length }}"),
    ]
    del tasks[:], client.sizes[:]
    execution = client.start(flow(nodes, "s > b > g > end"), [{"text": f"{i:0100}"} for i in range(items)])
    assert client.result(execution, 60)["$end"] == {"n": items}
    client.listen(0.3)
    others = tasks[1:]
    assert max(map(len, others)) <= 64_000
    assert max(client.sizes) <= 64_000
    return sum(map(len, others)) + sum(client.sizes)


def test_bytes_published_grow_with_the_items_and_no_message_is_large(shared: Fleet, client: Client) -> None:
    tasks = client.overhear()
    small, large = volume(client, tasks, 1000), volume(client, tasks, 3000)
    assert large < 3.3 * small


# --- duplicates ---


def test_every_message_comes_twice(crew: Fleet) -> None:
    for _ in range(2):
        crew.worker("--concurrency", "8")
    crew.scheduler()
    client = crew.client()
    client.overhear(echo=True)
    nodes = [
        node("users", "split", input_array="$trigger"),
        node("orders", "split", input_array="$item", batch_size=1, max_concurrency=2),
        condition("odd", "$item % 2 == 1"),
        node("now", "dateTimeNow"),
        node("w", "wait", amount=0.1),
        node("m", "merge"),
        node("inner", "aggregator", collect="$item"),
        node("outer", "aggregator", collect="$inner.aggregated"),
        put("end", n="{{ $outer.aggregated | length }}"),
    ]
    ways = ["users > orders > odd", "odd:true > now > m", "odd:false > w > m", "m > inner > outer > end"]
    users = [[1, 2, 3], [], [4], [5, 6, 7, 8]]
    executions = [client.start(flow(nodes, *ways), users) for _ in range(5)]
    for execution in executions:
        assert client.result(execution)["$outer"]["aggregated"] == users
        crew.is_buried(execution)
    assert client.dead == []
