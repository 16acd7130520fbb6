"""The scripts themselves, and what of numbers passes through them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rune.backends import redis
from rune.backends.redis import RedisState
from rune.backends.redis.scripts import ALL, load
from rune.core.errors import EngineError
from rune.core.operations import BarrierView, Commit, Open, Settle
from tests.servers.redis import RedisServer

FILES = sorted(path.stem for path in (Path(redis.__file__).parent / "lua").glob("*.lua"))


@pytest.mark.parametrize("name", ALL)
def test_a_script_says_what_it_needs_what_it_answers_and_why_it_may_be_repeated(name: str) -> None:
    text = (Path(redis.__file__).parent / "lua" / f"{name}.lua").read_text()
    header = text[: text.index("\n\n")]
    assert all(word in header for word in ("KEYS[1]", "ARGV[1]", "answer", "May be repeated"))


def test_every_file_is_a_script_or_part_of_one() -> None:
    used = {
        part.removesuffix("()")
        for name in ALL
        for line in [load(name).text]
        for uses in [line.rpartition("-- uses: ")[2].partition("\n")[0]]
        for part in uses.split(", ")
    }
    assert set(FILES) - set(ALL) == used & set(FILES)


def test_redis_knows_a_script_by_the_name_we_give_it(server: RedisServer) -> None:
    assert server.call("SCRIPT", "LOAD", load("apply").text).decode() == load("apply").sha


async def _folded(state: RedisState, *numbers: float | int) -> BarrierView:
    opening = Open("b", len(numbers), 1, b"release", keep_results=False)
    await state.apply("exec_1", [Commit("split", (), [opening])])
    for i, number in enumerate(numbers):
        commit = Commit(f"s{i}", (("b", i),), [Settle(-1, b"1", folds=(number,))])
        await state.apply("exec_1", [commit])
    view = await state.barrier("exec_1", "b")
    assert view is not None
    return view


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ((0.1,) * 10, 1.0),
        ((2**53, 1, 1), 2**53 + 2),
        ((10**300, 7, -(10**300)), 7),
        ((1e308, -1e308, 5e-324), 5e-324),
        ((1e308, 1e308), math.inf),
        ((-1e308, -1e308), -math.inf),
    ],
)
async def test_sums_are_exact_up_to_the_largest_double(
    state: RedisState, numbers: tuple[float | int, ...], total: float | int
) -> None:
    ((found, count, least, greatest),) = (await _folded(state, *numbers)).folds
    assert (found, type(found)) == (total, type(total))
    assert (count, least, greatest) == (len(numbers), min(numbers), max(numbers))


async def test_an_integer_of_more_than_308_digits_is_refused(state: RedisState) -> None:
    with pytest.raises(EngineError) as refused:
        await _folded(state, 10**309)
    assert refused.value.code == "NUMBER_TOO_LARGE"
