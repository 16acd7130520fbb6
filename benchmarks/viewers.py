"""Many who watch one running fan-out: how late they see what was recorded, and what that costs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.measures import Measure, Table
from rune.core.ids import derive
from rune.core.registry import Registry
from rune.master.opening import open_local
from rune.master.service import Master
from rune.master.serving import serving
from rune.nodes import load_builtin
from rune.settings import Settings

__all__ = ["measure_viewers"]

_VIEWERS, _ITEMS, _ROUNDS = 200, 10_000, 3
_FLOW = {
    "nodes": [
        {"id": "ready", "type": "wait", "parameters": {"resume": "webhook"}},
        {"id": "each", "type": "split", "parameters": {"input_array": f"{{{{ range(0, {_ITEMS}) }}}}"}},
        {"id": "edit", "type": "edit", "parameters": {"assignments": [{"name": "n", "value": "$index"}]}},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [
        {"id": "1", "src": "ready", "dst": "each"},
        {"id": "2", "src": "each", "dst": "edit"},
        {"id": "3", "src": "edit", "dst": "all"},
    ],
}


def measure_viewers() -> None:
    """Print how late many viewers see things, and what they cost."""
    table = Table(f"One fan-out of {_ITEMS:,} items, watched by {_VIEWERS}, on SQLite")
    without, watched = _measured(0), _measured(_VIEWERS)
    note = f"median {watched['p50']:.2f} s, at most {watched['most']:.2f} s"
    table.add(Measure("from recorded to seen, 99th percentile", watched["p99"], "s", at_most=1, note=note))
    slower = watched["seconds"] / without["seconds"]
    note = (
        f"{watched['seconds']:.1f} s; {watched['events']:.0f} events and {watched['kilobytes']:.0f} kB each"
    )
    table.add(Measure("the fan-out, in times of nobody watching", slower, "×", note=note))
    grown = watched["grown"] - without["grown"]
    note = f"peak {watched['peak']:.0f} MB, without viewers {without['peak']:.0f} MB"
    table.add(
        Measure(
            "memory that grows, more than with nobody watching", max(0.0, grown), "MB", at_most=20, note=note
        )
    )


def _measured(viewers: int) -> dict[str, float]:
    """What a master in a process of its own has seen."""
    command = [sys.executable, "-m", "benchmarks.viewers", "master", str(viewers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


# --- the master ---


async def _serve(viewers: int) -> dict[str, float]:
    settings = Settings(port=0, streams=viewers + 10)
    registry = Registry(load_builtin())
    with tempfile.TemporaryDirectory() as directory:
        database = str(Path(directory) / "rune.db")
        async with open_local(settings, registry, database) as master, serving(master) as served:
            commits = _noted(master)
            rounds = [await _round(served.address, viewers, commits) for _ in range(_ROUNDS)]
    stale = sorted(each for one in rounds for each in one["stale"]) or [0.0]
    return {
        "p50": stale[len(stale) // 2],
        "p99": stale[min(len(stale) - 1, len(stale) * 99 // 100)],
        "most": stale[-1],
        "seconds": min(one["seconds"] for one in rounds),
        "events": rounds[-1]["events"],
        "kilobytes": rounds[-1]["kilobytes"],
        "peak": max(one["megabytes"] for one in rounds),
        # The first round is what fills the caches.
        "grown": rounds[-1]["megabytes"] - rounds[0]["megabytes"],
    }


def _noted(master: Master) -> dict[str, list[tuple[int, float]]]:
    """For each execution, when something was recorded and the `seq` it had right after; filled as it goes."""
    commits: dict[str, list[tuple[int, float]]] = {}
    recorded = master.recorder.on_recorded
    asked: set[asyncio.Task[None]] = set()

    async def ask(execution: str, at: float) -> None:
        head = await master.history.changes.read(execution, sys.maxsize, ())
        if head is not None:
            commits.setdefault(execution, []).append((head.head.seq, at))

    def noting(executions: Iterable[str]) -> None:
        at = time.time()
        asked.update(asyncio.create_task(ask(execution, at)) for execution in executions)
        recorded(executions)

    master.recorder.on_recorded = noting
    return commits


async def _round(address: str, viewers: int, commits: dict[str, list[tuple[int, float]]]) -> dict[str, Any]:
    async with aiohttp.ClientSession(address) as session:
        async with session.post("/api/executions", json={"definition": _FLOW}) as answer:
            execution = (await answer.json())["id"]
        (wait,) = await _waits(session, execution)
        barrier = derive(wait["step"], "1")
        watching = await _watching(f"{address}/api/executions/{execution}/live?scope={barrier}", viewers)
        began = time.perf_counter()
        async with session.post(wait["url"]) as answer:
            assert answer.status == 200
        while True:
            async with session.get(f"/api/executions/{execution}") as answer:
                if (await answer.json())["status"] == "completed":
                    break
            await asyncio.sleep(0.1)
        seconds = time.perf_counter() - began
    out, _ = await watching.communicate()
    seen: list[dict[str, Any]] = json.loads(out)
    return {
        "seconds": seconds,
        "megabytes": _megabytes(),
        "stale": [late for viewer in seen for late in _stale(viewer["events"], commits[execution])],
        "events": max((len(viewer["events"]) for viewer in seen), default=0),
        "kilobytes": max((viewer["bytes"] for viewer in seen), default=0) / 1000,
    }


async def _waits(session: aiohttp.ClientSession, execution: str) -> list[dict[str, Any]]:
    while True:
        async with session.get(f"/api/executions/{execution}/waits") as answer:
            found: list[dict[str, Any]] = (await answer.json())["items"]
        if found:
            return found
        await asyncio.sleep(0.05)


async def _watching(address: str, viewers: int) -> asyncio.subprocess.Process:
    """The viewers in a process of their own, once all of them have seen something."""
    command = [sys.executable, "-m", "benchmarks.viewers", "watch", str(viewers), address]
    watching = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, limit=2**26)
    assert watching.stdout is not None
    await watching.stdout.readline()
    return watching


def _stale(events: list[tuple[int, float]], commits: list[tuple[int, float]]) -> list[float]:
    """Of each commit that came after the first event, how long it took to be seen."""
    seqs = [seq for seq, _ in events]
    late = []
    for seq, at in commits:
        place = bisect_left(seqs, seq)
        if seq > seqs[0] and place < len(events):
            late.append(events[place][1] - at)
    return late


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# --- the viewers ---


async def _watch(viewers: int, address: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=2**22) as session:
        ready = asyncio.Barrier(viewers + 1)
        tasks = [asyncio.create_task(_view(session, address, ready)) for _ in range(viewers)]
        await ready.wait()
        print("ready", flush=True)
        print(json.dumps([await task for task in tasks]))


async def _view(session: aiohttp.ClientSession, address: str, ready: asyncio.Barrier) -> dict[str, Any]:
    """Watch to the end; whoever is sent away comes back, as a browser does."""
    seen: dict[str, Any] = {"events": [], "bytes": 0, "visits": 0}
    ended = False
    while not ended:
        seen["visits"] += 1
        with suppress(aiohttp.ClientError):
            ended = await _visit(session, address, ready, seen)
    return seen


async def _visit(
    session: aiohttp.ClientSession, address: str, ready: asyncio.Barrier, seen: dict[str, Any]
) -> bool:
    """Take in what comes; whether that was the end."""
    events: list[tuple[int, float]] = seen["events"]
    last = {"Last-Event-ID": str(events[-1][0])} if events else {}
    async with session.get(address, headers=last, timeout=aiohttp.ClientTimeout(None)) as response:
        async for line in response.content:
            seen["bytes"] += len(line)
            if line == b"event: end\n":
                return True
            if line.startswith(b"id: "):
                events.append((int(line[4:]), time.time()))
                if len(events) == 1:
                    await ready.wait()
    return False


def main() -> None:
    """Be the master, be the viewers, or print the table."""
    match sys.argv[1:]:
        case ["master", viewers]:
            print(json.dumps(asyncio.run(_serve(int(viewers)))))
        case ["watch", viewers, address]:
            asyncio.run(_watch(int(viewers), address))
        case _:
            measure_viewers()


if __name__ == "__main__":
    main()
