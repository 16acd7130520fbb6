"""What people see while it happens."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.history import open_history
from rune.master.live.hub import Hub
from rune.master.live.runs import ItemStates
from tests.master.client import Api, flow_of, open_api, sleeper
from tests.master.streams import Event, Picture, Stream, streamed
from tests.servers.postgres import shared_postgres

SPLIT = {"id": "each", "type": "split", "parameters": {"input_array": "{{ range(0, $trigger.n) }}"}}
GATHER = {"id": "all", "type": "aggregator", "parameters": {}}
GATE = {"id": "gate", "type": "gate"}


class Gate(NodeType, kw_only=True):
    """Lets items pass when the test says so."""

    name: ClassVar = "gate"
    effects: ClassVar = False
    open: ClassVar[asyncio.Event]

    async def run(self, context: StepContext) -> Outcome:
        await Gate.open.wait()
        return Done({"secret": "output " * 10})


@pytest.fixture
async def gated(tmp_path: Path) -> AsyncIterator[Api]:
    """A master whose workflows can be held up."""
    Gate.open = asyncio.Event()
    async with open_api(tmp_path / "rune.db", types=[Gate], streams=5) as api:
        yield api


async def begun(api: Api, definition: Any, **more: Any) -> str:
    """An execution that is under way."""
    answer = await api.post("/api/executions", {"definition": definition, **more})
    id: str = answer.json["id"]
    return id


def live(api: Api, execution: str, *scopes: str) -> str:
    query = "&".join(f"scope={scope}" for scope in scopes)
    return f"{api.address}/api/executions/{execution}/live?{query}"


async def split_of(api: Api, execution: str) -> str:
    """The barrier of the one split, once nothing happens any more: as many items run as can."""
    splits: Any = None
    while True:
        before, splits = splits, (await api.get(f"/api/executions/{execution}")).json["splits"]
        if splits and splits[0]["running"] and before == splits:
            barrier: str = splits[0]["barrier"]
            return barrier
        await asyncio.sleep(0.15)


async def until(stream: Stream, picture: Picture, *names: str) -> Event:
    """Apply events up to one with such a name."""
    while event := await stream.next():
        if event.name in ("snapshot", "change", "end"):
            picture.apply(event)
        if event.name in names:
            return event
    raise AssertionError(f"the stream ended without {names}")


async def test_a_snapshot_then_changes_then_the_end(api: Api) -> None:
    execution = await begun(api, flow_of({"id": "a"}, sleeper(0.3), {"id": "b"}))
    picture = Picture()
    async with streamed(live(api, execution)) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.response.headers["cache-control"] == "no-store"
        events = await stream.all()
    for event in events:
        picture.apply(event)
    names = [event.name for event in events]
    assert names[0] == "snapshot"
    assert names[-1] == "end"
    assert set(names[1:-1]) == {"change"}
    assert [event.data["seq"] for event in events] == sorted(event.data["seq"] for event in events)
    whole = (await api.get(f"/api/executions/{execution}")).json
    assert picture.seq == whole["seq"]
    assert picture.nodes == whole["nodes"]
    assert picture.execution["status"] == whole["status"] == "completed"
    assert picture.execution["duration_ms"] == whole["duration_ms"]


async def test_a_stream_of_what_has_ended_tells_it_and_ends(small: Api) -> None:
    done = await small.run(flow_of({"id": "a"}))
    async with streamed(live(small, done["id"])) as stream:
        names = [event.name for event in await stream.all()]
    assert names == ["snapshot", "end"]


async def test_the_items_of_the_splits_that_one_looks_at_are_told_in_runs(gated: Api) -> None:
    execution = await begun(gated, flow_of(SPLIT, GATE, GATHER), input={"n": 3000})
    barrier = await split_of(gated, execution)
    picture, other = Picture(), Picture()
    async with streamed(live(gated, execution, barrier)) as stream, streamed(live(gated, execution)) as plain:
        first = await until(stream, picture, "snapshot")
        states = first.data["scopes"][barrier]["states"]
        assert {state for state, _ in states} <= {"running", "pending"}
        assert sum(count for _, count in states) == 3000
        assert len(states) < 50
        Gate.open.set()
        await until(stream, picture, "end")
        await until(plain, other, "end")
    assert picture.items[barrier] == ["succeeded"] * 3000
    assert picture.splits == other.splits
    assert picture.splits[barrier]["succeeded"] == 3000
    assert other.items == {}


async def test_splits_inside_of_items_are_told_to_those_who_look_at_them(small: Api) -> None:
    outer = {"id": "outer", "type": "split", "parameters": {"input_array": [[1, 2, 3], [4, 5]]}}
    inner = {"id": "inner", "type": "split", "parameters": {"input_array": "$item"}}
    done = await small.run(flow_of(outer, inner, {"id": "a"}, GATHER, {**GATHER, "id": "both"}))
    plain, near = Picture(), Picture()
    async with streamed(live(small, done["id"])) as stream:
        await until(stream, plain, "end")
    ((barrier, split),) = plain.splits.items()
    assert (split["node"], split["scope"]) == ("outer", None)
    async with streamed(live(small, done["id"], barrier)) as stream:
        await until(stream, near, "end")
    inside = [found for found in near.splits.values() if found["scope"] == barrier]
    assert sorted((found["scope_item"], found["total"]) for found in inside) == [(0, 3), (1, 2)]
    assert near.items == {barrier: ["succeeded"] * 2}


async def test_items_that_were_never_begun_are_skipped_when_their_split_is_over(gated: Api) -> None:
    parameters = {"input_array": "{{ range(0, 30) }}", "on_item_error": "fail_fast", "max_concurrency": 4}
    split = {"id": "each", "type": "split", "parameters": parameters}
    assignments = [{"name": "x", "value": "{{ $trigger.nothing.there if $index == 5 else 1 }}"}]
    fail = {"id": "fail", "type": "edit", "parameters": {"assignments": assignments}}
    execution = await begun(gated, flow_of(split, GATE, fail, GATHER), input={"n": 1})
    barrier = await split_of(gated, execution)
    picture = Picture()
    async with streamed(live(gated, execution, barrier)) as stream:
        await until(stream, picture, "snapshot")
        assert Counter(picture.items[barrier]) == {"running": 4, "pending": 26}
        Gate.open.set()
        await until(stream, picture, "end")
    path = f"/api/executions/{execution}/splits/{barrier}/items"
    items = (await gated.get(path, limit=100)).json["items"]
    assert picture.items[barrier] == [item["state"] for item in items]
    assert Counter(picture.items[barrier])["skipped"] > 0
    assert Counter(picture.items[barrier])["failed"] == 1


async def test_what_another_master_records_is_seen_here() -> None:
    server = shared_postgres()
    url = server.new_database()
    async with open_api(None, url) as api, open_history(url) as history:
        hub = Hub(history.changes, 5)
        execution = await begun(api, flow_of({"id": "a"}, sleeper(0.5), {"id": "b"}))
        names = []
        async with hub.watch(execution, frozenset(), "ws") as watch:
            while not watch.ended:
                event = await watch.next(10)
                assert event is not None
                names.append(json.loads(event)["event"])
        assert names[0] == "snapshot"
        assert "change" in names
        assert names[-1] == "end"
        assert json.loads(event)["data"]["execution"]["status"] == "completed"
        await hub.close()
    server.drop_database(url)


async def test_events_are_few_however_much_happens(gated: Api) -> None:
    execution = await begun(gated, flow_of(SPLIT, GATE, GATHER), input={"n": 2000})
    barrier = await split_of(gated, execution)
    loop = asyncio.get_running_loop()
    times: list[float] = []
    sizes = 0
    async with streamed(live(gated, execution, barrier)) as stream:
        await stream.next()
        Gate.open.set()
        while event := await stream.next():
            times.append(loop.time())
            sizes += len(str(event.data))
            assert "secret" not in str(event.data)
            assert "output" not in str(event.data)
    # Ten a second, by the clock of one who may have been kept from looking at it for a moment.
    assert len(times) <= 10 * (times[-1] - times[0]) + 3
    assert sizes < 200_000


async def test_who_comes_back_soon_gets_what_has_changed_since(gated: Api) -> None:
    execution = await begun(gated, flow_of(SPLIT, GATE, GATHER), input={"n": 20})
    barrier = await split_of(gated, execution)
    picture = Picture()
    async with streamed(live(gated, execution, barrier)) as stream:
        last = await until(stream, picture, "snapshot")
    Gate.open.set()
    async with streamed(live(gated, execution, barrier), last.id) as stream:
        again = await stream.next()
        assert again is not None
        assert again.name == "change"
        picture.apply(again)
        if picture.execution["status"] != "completed":
            await until(stream, picture, "end")
    assert picture.items[barrier] == ["succeeded"] * 20
    whole = (await gated.get(f"/api/executions/{execution}")).json
    assert picture.nodes == whole["nodes"]


@pytest.mark.parametrize("last", ["0", "999999", "nonsense", ""])
async def test_who_comes_back_late_or_with_nonsense_gets_a_snapshot(small: Api, last: str) -> None:
    done = await small.run(flow_of({"id": "a"}))
    async with streamed(live(small, done["id"]), last) as stream:
        event = await stream.next()
    assert event is not None
    assert event.name == "snapshot"


async def test_an_execution_that_nobody_knows_has_no_stream(small: Api) -> None:
    (await small.get("/api/executions/exec_nobody/live")).problem(404, "NOT_FOUND")
    scopes = [("scope", "a b")]
    (await small.ask("GET", "/api/executions/x/live", params=scopes)).problem(422, "INVALID_REQUEST")
    many = [("scope", f"s{n}") for n in range(50)]
    (await small.ask("GET", "/api/executions/x/live", params=many)).problem(422, "INVALID_REQUEST")


async def test_a_page_of_another_origin_is_not_answered(small: Api) -> None:
    done = await small.run(flow_of({"id": "a"}))
    for path in (f"/api/executions/{done['id']}/live", "/api/live"):
        headers = {"Origin": "https://evil.example"}
        (await small.ask("GET", path, headers=headers)).problem(403, "CROSS_ORIGIN")
    async with aiohttp.ClientSession() as session:
        address = live(small, done["id"]).partition("?")[0] + "/ws"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(address, origin="https://evil.example")


async def test_nobody_may_have_too_many_streams(gated: Api) -> None:
    execution = await begun(gated, flow_of(sleeper()))
    streams = []
    for _ in range(5):
        stream = streamed(live(gated, execution))
        await (await stream.__aenter__()).next()
        streams.append(stream)
    (await gated.get(f"/api/executions/{execution}/live")).problem(429, "TOO_MANY_STREAMS")
    (await gated.get("/api/live")).problem(429, "TOO_MANY_STREAMS")
    await streams.pop().__aexit__(None, None, None)
    while (await gated.ask("HEAD", "/health/live")).status and gated.master.live.open > 4:
        await asyncio.sleep(0.01)
    async with streamed(live(gated, execution)) as stream:
        assert (await stream.next()) is not None
    for open in streams:
        await open.__aexit__(None, None, None)


async def test_who_does_not_read_is_cut(gated: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from rune.master.live import streaming

    monkeypatch.setattr(streaming, "BLOCKED", 0.3)
    monkeypatch.setattr(streaming, "_FAREWELL", 0.2)
    monkeypatch.setattr(streaming, "_QUIET", 0.001)
    monkeypatch.setattr(streaming, "HEARTBEAT", b":" + b"x" * 500_000 + b"\n\n")
    execution = await begun(gated, flow_of(sleeper()))
    reader = socket.create_connection(("127.0.0.1", int(gated.address.rpartition(":")[2])))
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.sendall(f"GET /api/executions/{execution}/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    while gated.master.live.open == 0:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        while gated.master.live.open:
            await asyncio.sleep(0.01)
    reader.close()


async def test_the_same_events_over_a_websocket_and_scopes_that_change(gated: Api) -> None:
    execution = await begun(gated, flow_of(SPLIT, GATE, GATHER), input={"n": 50})
    barrier = await split_of(gated, execution)
    picture = Picture()

    def event_of(message: Any) -> Event:
        return Event(message["event"], message["id"], message["data"])

    address = live(gated, execution).partition("?")[0] + "/ws"
    async with aiohttp.ClientSession() as session, session.ws_connect(address) as ws:
        first = event_of(await ws.receive_json())
        picture.apply(first)
        assert (first.name, picture.items) == ("snapshot", {})
        await ws.send_json({"scopes": [barrier]})
        picture.apply(event_of(await ws.receive_json()))
        assert picture.items == {barrier: ["running"] * 50}
        Gate.open.set()
        names = Counter()
        async for message in ws:
            event = event_of(message.json())
            names[event.name] += 1
            picture.apply(event)
    assert names["end"] == 1
    assert picture.items == {barrier: ["succeeded"] * 50}


async def test_nonsense_over_a_websocket_closes_it(small: Api) -> None:
    execution = await begun(small, flow_of(sleeper()))
    address = live(small, execution).partition("?")[0] + "/ws"
    for nonsense in (b"{", b'{"scopes": 3}', b'{"scopes": ["a b"]}', b"[]", b"\xff", b""):
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as ws:
            await ws.receive_json()
            await (
                ws.send_bytes(nonsense) if nonsense in (b"\xff", b"[]") else ws.send_str(nonsense.decode())
            )
            assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
            assert ws.close_code == 1007
    async with aiohttp.ClientSession() as session:
        for nowhere in (f"{small.address}/api/executions/exec_nobody/live/ws", f"{address}?scope=a%20b"):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(nowhere)


async def test_the_list_tells_what_begins_changes_and_ends(api: Api) -> None:
    old = await api.run(flow_of({"id": "a"}))
    async with streamed(f"{api.address}/api/live") as stream:
        first = await stream.next()
        assert first is not None
        assert first.name == "snapshot"
        assert [each["id"] for each in first.data["executions"]] == [old["id"]]
        execution = await begun(api, flow_of({"id": "a"}, sleeper(0.7)), input={"secret": 1})
        seen = []
        while "completed" not in seen:
            event = await stream.next()
            assert event is not None
            assert event.name == "change"
            assert "secret" not in str(event.data)
            seen += [each["status"] for each in event.data["executions"] if each["id"] == execution]
        assert seen[0] in ("pending", "running")
        assert (await api.delete(f"/api/executions/{execution}")).status == 204
        gone = await stream.next()
        assert gone is not None
        assert gone.data["gone"] == [execution]


async def test_streams_end_when_the_master_stops(tmp_path: Path) -> None:
    async with open_api(tmp_path / "rune.db") as api:
        execution = await begun(api, flow_of(sleeper()))
        first, second = streamed(live(api, execution)), streamed(f"{api.address}/api/live")
        watching, listing = await first.__aenter__(), await second.__aenter__()
        await watching.next()
        await listing.next()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 2.5
    assert await watching.next() is None
    assert await listing.next() is None
    await first.__aexit__(None, None, None)
    await second.__aexit__(None, None, None)


# --- runs ---

states = st.sampled_from(["pending", "running", "succeeded", "failed", "skipped"])
runs = st.lists(st.tuples(st.integers(0, 40), states, st.integers(1, 10)), max_size=8)


@given(st.lists(runs, max_size=5))
def test_runs_tell_the_same_as_single_states(puts: list[Any]) -> None:
    known = ItemStates(5)
    plain = ["pending"] * 5
    for several in puts:
        ranges = known.put(several)
        for first, state, count in several:
            plain.extend(["pending"] * (first + count - len(plain)))
            plain[first : first + count] = [state] * count
        told = known.runs(ranges)
        assert [plain[first : first + count] for first, _, count in told] == [
            [state] * count for _, state, count in told
        ]
        changed = {index for first, _, count in several for index in range(first, first + count)}
        assert {index for first, _, count in told for index in range(first, first + count)} == changed
    everything = known.runs()
    assert [state for _, state, count in everything for _ in range(count)] == plain
    # No two neighbours are the same.
    assert all(one[1] != two[1] for one, two in pairwise(everything))
    known.close()
    assert [state for _, state, count in known.runs() for _ in range(count)] == [
        "skipped" if state == "pending" else state for state in plain
    ]
