"""The merge node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.errors import DefinitionError
from rune.core.node import Gathered
from rune.core.outcome import Join
from rune.nodes.merge import Merge
from tests.nodes.fakes import FakeContext, made, output, run

GATHERED = Gathered(msgspec.Raw(b'[{"a": 1}, 2]'), winner="fast")


async def test_branch_brings_what_the_node_before_gave() -> None:
    assert await run(Merge, FakeContext({"$previous": {"a": 1}})) == Join()


async def test_output_in_the_order_of_edges() -> None:
    assert await output(Merge, FakeContext(gathered=GATHERED)) == {"merged": [{"a": 1}, 2]}


@pytest.mark.parametrize("parameters", [{"wait_mode": "wait_for_any"}, {"wait_mode": "wait_for_n", "n": 2}])
async def test_winner_where_not_all_are_waited_for(parameters: dict[str, Any]) -> None:
    result = await output(Merge, FakeContext(gathered=GATHERED), **parameters)
    assert result == {"merged": [{"a": 1}, 2], "winner": "fast"}


@pytest.mark.parametrize(
    ("parameters", "need"),
    [
        ({}, None),
        ({"n": 2}, None),
        ({"wait_mode": "wait_for_any"}, 1),
        ({"wait_mode": "wait_for_n", "n": "3"}, 3),
    ],
)
def test_branches_needed(parameters: dict[str, Any], need: int | None) -> None:
    assert made(Merge, FakeContext(), parameters).need() == need


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"wait_mode": "wait_for_n"}, "`n`"),
        ({"wait_mode": "wait_for_n", "n": 0}, "'n'"),
        ({"wait_mode": "wait_for_al"}, "wait_for_al"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        made(Merge, FakeContext(), parameters)
