"""The conditional node."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import DefinitionError
from rune.core.expressions import ExpressionError
from rune.core.outcome import Done
from rune.nodes.conditional import Conditional
from tests.nodes.fakes import FakeContext, made, run

VALUES = {"$t": {"v": 5, "text": "10", "name": "Ada", "none": None, "flag": False}}


async def decide(expression: Any, **parameters: Any) -> Done:
    outcome = await run(Conditional, FakeContext(VALUES), expression=expression, **parameters)
    assert isinstance(outcome, Done)
    return outcome


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("$t.v > 3", True),
        ("{{ $t.v }} > 7", False),
        ("$t.text > 9", True),  # a numeric string counts as a number
        ("$t.name == 'Ada' and $t.v == '5'", True),
        ("$t.none", False),
        ("$t.flag || $t.v != 5", False),
        (True, True),
    ],
)
async def test_expression(expression: Any, result: bool) -> None:
    assert await decide(expression) == Done({"result": result}, port="true" if result else "false")


def comparison(op1: Any, operator: str, op2: Any) -> dict[str, Any]:
    return {"op1": op1, "operator": operator, "op2": op2}


@pytest.mark.parametrize(
    ("operator", "op2", "result"),
    [
        ("eq", 5, True),
        ("neq", 5, False),
        ("gt", "4", True),
        ("lt", 5, False),
        ("gte", 5, True),
        ("lte", 4, False),
        ("==", "5", True),
        ("is greater than", 1, True),
    ],
)
async def test_one_comparison(operator: str, op2: Any, result: bool) -> None:
    assert (await decide([comparison("$t.v", operator, op2)])).output == {"result": result}


async def test_comparisons_are_joined() -> None:
    both = [comparison("$t.v", "gt", 3), comparison("{{ $t.name }}", "eq", "Bob")]
    assert (await decide(both)).port == "false"
    assert (await decide(both, operator="or")).port == "true"


async def test_comparisons_may_be_nested() -> None:
    either = comparison(comparison("$t.v", "gt", 30), "or", comparison("$t.name", "eq", "Ada"))
    assert (await decide([either])).port == "true"
    assert (await decide([comparison(either, "and", "$t.flag")])).port == "false"


async def test_what_cannot_be_ordered_fails() -> None:
    with pytest.raises(ExpressionError, match="order"):
        await decide([comparison("$t.name", "gt", 3)])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("$t.v >", "E015"),
        ([{"op1": 1, "operator": "bigger", "op2": 2}], "no operator 'bigger'"),
        ([{"operator": "eq"}], "op1"),
        ({"a": 1}, "expression"),
    ],
)
def test_wrong_conditions_are_refused(expression: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        made(Conditional, FakeContext(VALUES), {"expression": expression})


def test_edge_ids_mean_ports() -> None:
    ports = Conditional.edge_ports({"true_edge_id": "e1", "false_edge_id": "e2"})
    assert ports == {("true_edge_id",): "true", ("false_edge_id",): "false"}
    assert Conditional.edge_ports({"true_edge_id": None}) == {}
