"""Code of users in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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


async def test_whoever_is_cancelled_leaves_no_process_behind(context: FakeContext) -> None:
    running = asyncio.ensure_future(
        output(Code, context, code="import time, os; print(os.getpid(), flush=True); time.sleep(60)")
    )
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await output(Code, context, code="result = 'still here'") == "still here"
