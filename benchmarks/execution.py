"""One durable execution on SQLite, in a process of its own: `python -m benchmarks.execution chain 1000`."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from rune.cli import calm_collector
from rune.core.registry import Registry
from rune.embedded import Embedded
from rune.formats.graph import compile_workflow
from rune.nodes import load_builtin
from rune.settings import load_settings

__all__ = ["measured"]


def chain(length: int) -> dict[str, Any]:
    """Log nodes, one after another."""
    nodes = [{"id": f"n{i}", "type": "log", "parameters": {"message": f"step {i}"}} for i in range(length)]
    edges = [{"id": f"e{i}", "src": f"n{i}", "dst": f"n{i + 1}"} for i in range(length - 1)]
    return {"workflow_id": "chain", "nodes": nodes, "edges": edges}


def fan_out(items: int) -> dict[str, Any]:
    """A list, an edit for each item of it, and an aggregator."""
    split = {"input_array": "$trigger.items", "batch_size": "auto"}
    double = {"mode": "keep_only", "assignments": [{"name": "double", "value": "{{ $item.n * 2 }}"}]}
    return {
        "workflow_id": "fan-out",
        "nodes": [
            {"id": "each", "type": "split", "parameters": split},
            {"id": "edit", "type": "edit", "parameters": double},
            {"id": "all", "type": "aggregator"},
        ],
        "edges": [{"id": "1", "src": "each", "dst": "edit"}, {"id": "2", "src": "edit", "dst": "all"}],
    }


async def execute(kind: str, size: int, database: str) -> tuple[float, float]:
    """Seconds, and seconds of CPU, from an execution's start to its completion; the result is checked."""
    registry = Registry(load_builtin())
    flow = compile_workflow(chain(size) if kind == "chain" else fan_out(size), registry)
    given = {"items": [{"n": n} for n in range(size)]} if kind == "fan_out" else {}
    async with Embedded.open(load_settings(), registry, database) as rune:
        began, worked = time.perf_counter(), time.process_time()
        completion = await rune.result(await rune.start(flow, input=given))
        took = time.perf_counter() - began, time.process_time() - worked
        await rune.acknowledge(completion)
    if completion.status != "completed":
        raise SystemExit(f"the execution {completion.status}: {completion.error}")
    if kind == "fan_out":
        results = msgspec.json.decode(completion.final_context["$all"])["aggregated"]
        if [result["double"] for result in results] != list(range(0, 2 * size, 2)):
            raise SystemExit("the results are wrong")
    return took


def measured(kind: str, size: int) -> dict[str, float]:
    """Seconds, seconds of CPU and peak megabytes of one execution in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.execution", kind, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def main() -> None:
    """Execute once, and print what it took."""
    calm_collector()  # As `rune run` does.
    kind, size = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        seconds, cpu = asyncio.run(execute(kind, size, str(Path(directory) / "rune.db")))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    megabytes = peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(json.dumps({"seconds": seconds, "cpu": cpu, "megabytes": megabytes}))


if __name__ == "__main__":
    main()
