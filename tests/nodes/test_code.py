"""Code of users in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from rune.core.errors import NodeError
from rune.nodes._python import Python
from rune.nodes.code import Code
from tests.nodes.fakes import FakeContext, output


@pytest.fixture
async def context() -> AsyncIterator[FakeContext]:
    python = Python()
    yield FakeContext({"$n": 4}, services={"python": python})
    await python.close()


async def test_code_sees_its_arguments_and_gives_its_result(context: FakeContext) -> None:
    assert await output(Code, context, code="result = n * 2", args={"n": "$n"}) == 8
    assert await output(Code, context, code="def main(n): return [n]", args={"n": 3}) == [3]
    assert await output(Code, context, code="pass") is None


async def test_what_looks_like_a_template_in_code_is_code(context: FakeContext) -> None:
    assert await output(Code, context, code="n = 1\nresult = f'{{{n}}} $n {{ }}'") == "{1} $n { }"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\nraise ValueError('no')", "ValueError: no (line 2)"),
        ("def f(:", "SyntaxError"),
        ("result = {1, 2}", "TypeError"),
        ("result = float('nan')", "ValueError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
async def test_a_failure_says_what_and_where(code: str, said: str, context: FakeContext) -> None:
    with pytest.raises(NodeError) as raised:
        await output(Code, context, code=code)
    assert said in raised.value.message


async def test_code_does_not_begin_once_its_server_has_died() -> None:
    """The server forks, and dies before the new process could ask to end with it."""
    script = """
import os, sys, time
from rune.nodes import _forkserver
server = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == server:
    time.sleep(0.001)
print("left", flush=True)
_forkserver._confine(server)
print("begun", flush=True)
"""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=pipe, stderr=pipe)
    assert await process.communicate() == (b"left\n", b"")


async def test_a_process_that_dies_is_told(context: FakeContext) -> None:
    with pytest.raises(NodeError) as raised:
        await output(Code, context, code="import os; os._exit(1)")
    assert raised.value.code == "CODE_KILLED"
    assert await output(Code, context, code="result = 1") == 1, "the next one runs"


async def test_what_is_printed_goes_to_the_log(context: FakeContext) -> None:
    await output(Code, context, code="print('hello')\nprint('you')")
    assert context.logged == [("info", "hello"), ("info", "you")]


async def test_many_run_side_by_side(context: FakeContext) -> None:
    async def one(n: int) -> Any:
        return await output(Code, context, code="import time; time.sleep(0.05); result = n", args={"n": n})

    assert await asyncio.gather(*map(one, range(20))) == list(range(20))


async def test_a_large_argument_and_a_large_result_pass(context: FakeContext) -> None:
    assert await output(Code, context, code="result = s * 2", args={"s": "x" * 2_000_000}) == "x" * 4_000_000


async def test_large_arguments_pass_side_by_side(context: FakeContext) -> None:
    async def one(n: int) -> Any:
        return await output(Code, context, code="result = len(s) + n", args={"s": "x" * 180_000, "n": n})

    assert await asyncio.gather(*map(one, range(30))) == [180_000 + n for n in range(30)]


FORKING = """
import os, subprocess, time
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
result = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
"""


async def test_code_that_goes_on_twice_gives_one_result(context: FakeContext) -> None:
    assert await output(Code, context, code="import os; os.fork(); result = 'x' * 100_000") == "x" * 100_000


async def test_what_code_has_started_ends_with_it(context: FakeContext) -> None:
    pid = await output(Code, context, code=FORKING, timeout=20)
    await _gone(pid)


async def test_nothing_is_left_when_the_worker_goes(context: FakeContext) -> None:
    code = FORKING + "print(result)\nopen(file, 'w').write(str(result))\ntime.sleep(600)"
    with NamedTemporaryFile() as file:
        running = asyncio.ensure_future(output(Code, context, code=code, args={"file": file.name}))
        while not Path(file.name).read_text():
            await asyncio.sleep(0.02)
        # As when it is killed: the server finds its socket closed.
        python: Python = context.service("python")
        await python.close()
        await _gone(int(Path(file.name).read_text()))
        with pytest.raises(NodeError):
            await running


async def _gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.02)


async def test_code_cannot_look_into_the_worker(context: FakeContext) -> None:
    code = f"result = open('/proc/{os.getpid()}/environ').read()"
    with pytest.raises(NodeError, match="PermissionError"):
        await output(Code, context, code=code)
    code = f"import subprocess; subprocess.run(['cat', '/proc/{os.getpid()}/environ'], check=True)"
    with pytest.raises(NodeError, match="CalledProcessError"):
        await output(Code, context, code=code)


async def test_code_that_ends_the_server_ends_no_other_for_good(context: FakeContext) -> None:
    with suppress(NodeError):
        await output(Code, context, code="import os; os.kill(os.getppid(), 9)")
    async with asyncio.timeout(10):
        while True:
            # One that is handed over just then is lost with it.
            with suppress(NodeError):
                assert await output(Code, context, code="result = 2") == 2
                break


async def test_whoever_is_cancelled_leaves_no_process_behind(context: FakeContext) -> None:
    running = asyncio.ensure_future(
        output(Code, context, code="import time, os; print(os.getpid(), flush=True); time.sleep(60)")
    )
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await output(Code, context, code="result = 'still here'") == "still here"
