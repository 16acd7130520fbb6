"""How fast executions are started and carried to their end over HTTP, beside a bare FastAPI echo."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

import aiohttp

from benchmarks.measures import Measure, Table

__all__ = ["measure_serving"]

_ROOT = str(Path(__file__).parents[1])
_EVERY, _ALONE = 32, 1
"""Requests at a time: to see how many there can be, and how long one takes."""
_SECONDS = 6.0
_BATCH_MS = "10"
"""For how long the worker on RabbitMQ lets statuses wait, to travel together."""
_WARM = 1.0

_ECHO = """
from fastapi import FastAPI
from uvicorn import run
app = FastAPI()
@app.post("/echo")
async def echo(body: dict) -> dict:
    return body
run(app, port=0, access_log=False, log_level="info")
"""
_TWICE = {"name": "twice", "value": "{{ $trigger.n * 2 }}"}
_FLOW = {
    "workflow_id": "two",
    "nodes": [
        {"id": "one", "type": "log", "parameters": {"message": "{{ $trigger.n }}"}},
        {
            "id": "two",
            "type": "edit",
            "parameters": {"assignments": [{"name": "twice", "value": "{{ $trigger.n * 2 }}"}]},
        },
    ],
    "edges": [{"id": "e", "src": "one", "dst": "two"}],
}


def measure_serving(*, distributed: bool = False) -> None:
    """Print executions a second, and how long one takes, on SQLite or on the servers."""
    where = "RabbitMQ, Redis and PostgreSQL" if distributed else "SQLite"
    table = Table(f"Executions of two nodes over HTTP, waited for, on {where}")
    with _echo() as server:
        table.add(_rate("bare FastAPI echo", *asyncio.run(_echoes(server, _EVERY))))
        table.add(_typical("  one at a time, median", asyncio.run(_echoes(server, _ALONE))[0]))
    with _servers() if distributed else _dev() as server:
        times, cpu = asyncio.run(_executions(server, _EVERY))
        table.add(_rate(f"executions, {_EVERY} at a time", times, cpu, at_least=250))
        table.add(_typical("  from request to result, median", times))
        table.add(_typical("  the slowest of a hundred", times, share=0.99))
        table.add(_typical("  one at a time, median", asyncio.run(_executions(server, _ALONE))[0]))


class _Server(NamedTuple):
    """Where to ask, and the process that answers."""

    address: str
    pid: int

    @property
    def cpu(self) -> float:
        """Seconds it has worked."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rate(name: str, times: list[float], cpu: float, at_least: float | None = None) -> Measure:
    # What a busy machine does not change as much.
    note = f"{1000 * cpu:.2f} ms of CPU each, in the server"
    return Measure(name, len(times) / _SECONDS, "/s", at_least=at_least, note=note)


def _typical(name: str, times: list[float], share: float = 0.5) -> Measure:
    return Measure(name, sorted(times)[int(len(times) * share)] * 1000, "ms")


# --- asking ---


async def _echoes(server: _Server, width: int) -> tuple[list[float], float]:
    async with aiohttp.ClientSession() as session:
        return await _asked(session, server, "/echo", {"workflow_id": "two"}, width)


async def _executions(server: _Server, width: int) -> tuple[list[float], float]:
    address = server.address
    async with aiohttp.ClientSession() as session:
        async with session.put(
            f"{address}/api/workflows/two", json={"definition": _FLOW}, headers={"If-Match": "*"}
        ) as answer:
            known = answer.status == 200
        if not known:
            async with session.post(f"{address}/api/workflows", json={"definition": _FLOW}) as answer:
                assert answer.status == 201, await answer.text()
        body = {"workflow_id": "two", "input": {"n": 21}, "wait": 60}
        return await _asked(session, server, "/api/executions", body, width)


async def _asked(
    session: aiohttp.ClientSession, server: _Server, path: str, body: Any, width: int
) -> tuple[list[float], float]:
    """How long each request took, in a time, with so many under way, and the CPU's seconds for each."""
    begin = time.perf_counter() + _WARM
    end = begin + _SECONDS
    times: list[float] = []
    count, worked = 0, server.cpu
    data, headers = json.dumps(body), {"Content-Type": "application/json"}

    async def ask() -> None:
        nonlocal count
        while (asked := time.perf_counter()) < end:
            async with session.post(server.address + path, data=data, headers=headers) as answer:
                found = await answer.read()
            assert answer.status == 200, found
            count += 1
            if begin <= (answered := time.perf_counter()) < end:
                times.append(answered - asked)

    await asyncio.gather(*(ask() for _ in range(width)))
    return times, (server.cpu - worked) / count


# --- what is asked ---


@contextmanager
def _echo() -> Iterator[_Server]:
    with _started([sys.executable, "-c", _ECHO], "running on") as server:
        yield server


@contextmanager
def _dev() -> Iterator[_Server]:
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as directory:
        command = [sys.executable, "-m", "rune", "dev", "--port", "0", "--db", f"{directory}/rune.db"]
        with _started(command, "Stop with") as server:
            yield server


@contextmanager
def _servers() -> Iterator[_Server]:
    """A master and a worker as processes, on servers of their own."""
    from benchmarks.distributed.site import site
    from tests.servers.postgres import postgres_server

    with ExitStack() as stack:
        place = stack.enter_context(site()).place(scheduler=True, RUNE_STATUS_BATCH_MS=_BATCH_MS)
        postgres = stack.enter_context(postgres_server())
        command = [sys.executable, "-m", "rune", "master", "--port", "0"]
        command += ["--broker", place.broker_url, "--state", place.state_url]
        command += ["--history", postgres.new_database()]
        yield stack.enter_context(_started(command, "master is at", RUNE_ACCOUNTS="false"))


@contextmanager
def _started(command: list[str], ready: str, **environ: str) -> Iterator[_Server]:
    """A process that has said that it is ready."""
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as directory:
        own = {**os.environ, "PYTHONPATH": _ROOT, "XDG_STATE_HOME": directory, **environ}
        with open(f"{directory}/log", "w+") as log:
            process = Popen(command, env=own, stderr=log)
            try:
                while ready not in (said := Path(log.name).read_text()):
                    assert process.poll() is None, f"it ended: {said}"
                    time.sleep(0.05)
                yield _Server("http://" + said.partition("http://")[2].split()[0], process.pid)
            finally:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    measure_serving(distributed="--distributed" in sys.argv[1:])
