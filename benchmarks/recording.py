"""How fast the history takes in what it is told, beside a plain insert of the same messages."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Raw

from benchmarks.measures import Measure, Table
from rune.cli import calm_collector
from rune.core.ids import derive
from rune.core.messages import CompletionMessage, Frame, NodeStatusMessage, encode
from rune.engine.statuses import iso
from rune.history import Database, History, Statement, open_history
from rune.history.bulk import Table as Rows
from rune.history.bulk import insert

__all__ = ["measure_recording", "measured"]

_ITEMS = 100_000
_EXECUTIONS = 5_000
_ROUNDS = 3
_BATCH = 1_000
"""What a recorder takes at a time when there is much of it."""
_TOGETHER = 256
"""Items that an engine runs in one go, and tells of together."""
_BARE = Rows("bare", (("id", "int"), ("execution", "text"), ("body", "bytes")), 1)


def measure_recording(*, postgres: bool = False) -> None:
    """Print statuses a second into SQLite or a PostgreSQL of its own, and what a large fan-out takes."""
    if not postgres:
        _measure("SQLite", None)
        return
    from tests.servers.postgres import postgres_server

    with postgres_server() as server:
        _measure("PostgreSQL", server.url())


def _measure(name: str, url: str | None) -> None:
    table = Table(f"Recording into {name}")
    runs = [measured("small", _EXECUTIONS, url) for _ in range(_ROUNDS)]
    _add(table, f"{_EXECUTIONS:,} executions of two nodes", runs)
    runs = [measured("fan_out", _ITEMS, url)]
    _add(table, f"{_ITEMS:,} items, two nodes each", runs)
    table.add(Measure("  bytes stored for an item", runs[0]["bytes"] / _ITEMS, "bytes", at_most=1_500))
    table.add(Measure("  peak memory", runs[0]["megabytes"], "MB", note="with all statuses in memory"))


def _add(table: Table, name: str, runs: Sequence[dict[str, float]]) -> None:
    rate = median(run["statuses"] / run["seconds"] for run in runs)
    per_cpu = median(run["statuses"] / run["cpu"] for run in runs)
    note = f"{per_cpu:,.0f} per second of CPU"
    table.add(Measure(name, rate, "statuses/s", at_least=10_000, note=note))
    times = median(run["seconds"] / run["bare"] for run in runs)
    table.add(Measure("  in times of a plain insert", times, "×", at_most=10))


def measured(kind: str, size: int, url: str | None = None) -> dict[str, float]:
    """What it took to record so much in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.recording", kind, str(size), *([url] if url else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


# --- what is told ---


def _status(execution: str, node: str, step: str, status: str, at: str, **more: Any) -> NodeStatusMessage:
    return NodeStatusMessage(
        workflow_id="bench",
        execution_id=execution,
        node_id=node,
        status=status,  # type: ignore[arg-type]
        executed_at=at,
        duration_ms=0,
        node_name=node,
        step=step,
        **more,
    )


def _end(execution: str) -> CompletionMessage:
    return CompletionMessage(
        workflow_id="bench",
        execution_id=execution,
        status="completed",
        final_context={"$two": Raw(b'{"twice":2}')},
        completed_at=iso(time.time()),
        total_duration_ms=5,
    )


def small(size: int) -> Iterator[NodeStatusMessage]:
    """Executions of two nodes, one after another."""
    for i in range(size):
        at = iso(time.time())
        for node in ("one", "two"):
            step = derive(f"exec_{i}", node)
            yield _status(f"exec_{i}", node, step, "running", at)
            yield _status(f"exec_{i}", node, step, "success", at, output=Raw(b'{"twice":%d}' % i))


def fan_out(size: int) -> Iterator[NodeStatusMessage]:
    """One execution: a split, two nodes for each item, an aggregator."""
    execution, barrier = "exec_fan_out", derive("exec_fan_out", "each")
    join = derive(barrier, "~gather")
    for start in range(0, size, _TOGETHER):
        items = range(start, min(size, start + _TOGETHER))
        frames = {i: (Frame("each", i, f"{execution}_each_{i}", size, barrier),) for i in items}
        for node in ("fetch", "edit"):
            at = iso(time.time())
            steps = {i: derive(barrier, node, str(i)) for i in items}
            for i in items:
                yield _status(execution, node, steps[i], "running", at, lineage_stack=frames[i])
            for i in items:
                output = Raw(b'{"edited":{"double":%d}}' % i)
                yield _status(
                    execution, node, steps[i], "success", at, lineage_stack=frames[i], output=output
                )
        for i in items:
            step = derive(barrier, "all", str(i))
            yield _status(execution, "all", step, "running", at, lineage_stack=frames[i], join=join)
    yield _status(execution, "all", join, "running", iso(time.time()), closes=barrier)
    yield _status(execution, "all", join, "success", iso(time.time()), output=Raw(b'{"count":%d}' % size))


# --- taking it in ---


async def _record(history: History, statuses: Sequence[NodeStatusMessage]) -> None:
    for start in range(0, len(statuses), _BATCH):
        batch = statuses[start : start + _BATCH]
        executions = dict.fromkeys(status.execution_id for status in batch)
        last = start + _BATCH >= len(statuses) or len(executions) > 1
        await history.recording.record(batch, [_end(id) for id in executions] if last else ())


async def _insert(database: Database, statuses: Sequence[NodeStatusMessage]) -> None:
    """The least that anybody could do: store each message as it is."""
    table = "CREATE TABLE bare (id BIGINT PRIMARY KEY, execution TEXT NOT NULL, body BYTEA NOT NULL)"
    await database.write(Statement(table))
    for start in range(0, len(statuses), _BATCH):
        batch = statuses[start : start + _BATCH]
        rows = [(start + i, status.execution_id, encode(status)) for i, status in enumerate(batch)]
        await database.write(insert(database.dialect, _BARE, rows, anew=True))
    await database.write(Statement("DROP TABLE bare"))


async def _size(database: Database) -> int:
    if database.dialect == "sqlite":
        sql = """SELECT (c.page_count - f.freelist_count) * s.page_size AS n
            FROM pragma_page_count c, pragma_freelist_count f, pragma_page_size s"""
    else:
        sql = "SELECT pg_database_size(current_database()) AS n"
    row = await database.fetch_one(sql)
    return int(row["n"]) if row else 0


async def _run(kind: str, size: int, where: str) -> dict[str, float]:
    statuses = list(small(size) if kind == "small" else fan_out(size))
    async with open_history(where) as history:
        for table in ("execution", "node", "step", "split", "item", "event", "value"):
            await history.database.write(Statement(f"DELETE FROM history_{table}"))
        began = time.perf_counter()
        await _insert(history.database, statuses)
        bare = time.perf_counter() - began
        before = await _size(history.database)
        began, worked = time.perf_counter(), time.process_time()
        await _record(history, statuses)
        seconds, cpu = time.perf_counter() - began, time.process_time() - worked
        await _check(history, kind, size)
        grown = await _size(history.database) - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "statuses": len(statuses),
        "seconds": seconds,
        "cpu": cpu,
        "bare": bare,
        "bytes": grown,
        "megabytes": peak / (1 << 20 if sys.platform == "darwin" else 1 << 10),
    }


async def _check(history: History, kind: str, size: int) -> None:
    if kind == "small":
        right = await history.executions.counts() == {"completed": size}
    else:
        (split,) = await history.items.splits("exec_fan_out")
        nodes = await history.executions.nodes("exec_fan_out")
        right = split.succeeded == size == nodes["edit"].success and nodes["all"].success == 1
    if not right:
        raise SystemExit("the history is wrong")


def main() -> None:
    """Record once, and print what it took."""
    calm_collector()  # As `rune master` does.
    kind, size, *url = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        where = url[0] if url else str(Path(directory) / "history.db")
        print(json.dumps(asyncio.run(_run(kind, int(size), where))))


if __name__ == "__main__":
    main()
