"""A playbook's loop over a range: `python -m benchmarks.shards`; one run of it: `… sqlite 10000`."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from benchmarks.measures import Measure, Table
from rune import __version__
from rune.cli import calm_collector
from rune.cli.types import node_types
from rune.core.ids import new_execution_id
from rune.core.messages import Task
from rune.embedded import Embedded
from rune.formats.definition import compile_definition
from rune.settings import Settings, load_settings

if TYPE_CHECKING:
    from benchmarks.distributed.site import Site

__all__ = ["distributed", "embedded"]

SMALL, LARGE = 10_000, 1_000_000
_RATIO = 1.5
"""Peak memory with the large loop, at most, in times of that with the small one."""


def playbook(shards: int) -> bytes:
    """A loop of shards that do nothing, and a step that reads how many there were."""
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "shards"},
        "executor": {"spec": {"loop_mode": "fanout"}},
        "workflow": [
            {
                "step": "loop",
                "loop": {"in": {"range": shards}, "iterator": "n"},
                "tool": {"kind": "noop"},
                "next": [{"step": "told", "args": {"count": "{{ fanin.succeeded }}"}}],
            },
            {"step": "told", "tool": {"kind": "noop"}},
        ],
    }
    return msgspec.json.encode(document)


async def execute(shards: int, database: str | None) -> float:
    """Seconds of one execution in this process; its result is checked."""
    settings = load_settings()
    registry = node_types(settings)
    flow = compile_definition(playbook(shards), registry)
    async with Embedded.open(settings, registry, database) as rune:
        began = time.perf_counter()
        completion = await rune.result(await rune.start(flow))
        seconds = time.perf_counter() - began
        await rune.acknowledge(completion)
    _check(completion.status, msgspec.json.decode(completion.final_context["$~verdict"]), shards)
    return seconds


def embedded(shards: int, store: str = "sqlite", **environ: str) -> dict[str, float]:
    """Shards a second, and peak megabytes, of one execution in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.shards", store, str(shards)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environ}
    )
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


async def distributed(here: Site, shards: int, **environ: str) -> dict[str, float]:
    """The same of a fresh worker on RabbitMQ and Redis."""
    from benchmarks.distributed.driving import driver
    from benchmarks.distributed.meters import peak_megabytes

    place = here.place(scheduler=False, **environ)
    flow = compile_definition(playbook(shards), node_types(Settings()))
    (entry,) = flow.entries
    task = Task(
        workflow_id=flow.id,
        execution_id=new_execution_id(),
        current_node=entry,
        workflow_definition=Raw(flow.definition),
        accumulated_context={"$trigger": Raw(b"{}")},
    )
    async with driver(place.broker_url, place.state_url) as driving:
        began = time.perf_counter()
        hearing = asyncio.create_task(driving.hear())
        try:
            (completion,) = (await driving.run([task])).values()
        finally:
            hearing.cancel()
        seconds = time.perf_counter() - began
        _check(completion.status, await driving.value(completion, "$~verdict"), shards)
    place.purge()
    return {
        "rate": shards / seconds,
        "megabytes": peak_megabytes(place.processes["worker"]),
        "broker": peak_megabytes(place.processes["RabbitMQ"]),
    }


def _check(status: str, verdict: Any, shards: int) -> None:
    if status != "completed" or verdict["steps"]["loop"]["count"] != shards:
        raise SystemExit(f"the loop came out wrong: {status}, {verdict}")


def _once(store: str, shards: int) -> None:
    calm_collector()  # As `rune run` does.
    with tempfile.TemporaryDirectory() as directory:
        database = str(Path(directory) / "rune.db") if store == "sqlite" else None
        seconds = asyncio.run(execute(shards, database))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    megabytes = peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(json.dumps({"rate": shards / seconds, "megabytes": megabytes}))


def _tell(title: str, small: dict[str, float], large: dict[str, float]) -> None:
    table = Table(title)
    table.add(Measure(f"{LARGE:,} shards", large["rate"], "shards/s"))
    for what, whose, most in (("megabytes", "peak memory", _RATIO), ("broker", "that of RabbitMQ", None)):
        if what in small:
            note = f"{small[what]:.0f} MB, {large[what]:.0f} MB"
            name = f"{whose}, in times of that with {SMALL:,}"
            table.add(Measure(name, large[what] / small[what], "×", at_most=most, note=note))


async def _distributed() -> None:
    from benchmarks.distributed.site import site

    with site() as here:
        small, large = await distributed(here, SMALL), await distributed(here, LARGE)
    _tell("A worker on RabbitMQ and Redis", small, large)


def main() -> None:
    """Measure everything, or execute once."""
    if len(sys.argv) == 3:
        _once(sys.argv[1], int(sys.argv[2]))
        return
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"Rune {__version__}, {python}, {platform.system()}, {os.cpu_count()} cores", flush=True)
    _tell("Embedded, durable on SQLite", embedded(SMALL), embedded(LARGE))
    asyncio.run(_distributed())


if __name__ == "__main__":
    main()
