"""What a compiled expression tells about itself, and that it changes nothing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from rune.core.expressions import ExpressionError, ExpressionTypeError, compile_expression, expression
from tests.core.expressions.scopes import DATA, Names, evaluate


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("1 + 2", set()),
        ("$fetch.body.id + $item.x", {"$fetch", "$item"}),
        ("$a if $b else $c", {"$a", "$b", "$c"}),
        ("$a[$b] | default($c)", {"$a", "$b", "$c"}),
        ("workload.base ~ iter.page", {"workload", "iter"}),
        ("$node['Fetch Users'].body", {"$fetch"}),
        ("map($a, 'upper')", {"$a"}),
        ("$a?.b.c is defined", {"$a"}),
    ],
)
def test_names_are_the_roots_it_may_read(source: str, names: set[str]) -> None:
    assert compile_expression(source, aliases={"Fetch Users": "fetch"}).names == names


@pytest.mark.parametrize(
    ("source", "expected"),
    [("$a + 1", True), ("now()", False), ("uuid() ~ 'x'", False), ("$a | default(now())", False)],
)
def test_deterministic_unless_it_asks_the_clock_or_chance(source: str, expected: bool) -> None:
    assert compile_expression(source).deterministic is expected


def test_each_evaluation_asks_the_clock_and_chance_again() -> None:
    made = compile_expression("uuid()")
    assert made.evaluate(Names({})) != made.evaluate(Names({}))
    assert compile_expression("['%Y'] | map('now')").deterministic is False


def test_is_compiled_once_for_the_same_source_and_flags() -> None:
    first = compile_expression("$a + 41", aliases={"Name": "a"})
    assert compile_expression("$a + 41") is first, "the alias is not used in it"
    assert compile_expression("$a + 41", lenient=True) is not first
    assert compile_expression("$Name", aliases={"Name": "a"}) is not compile_expression("$Name")


def test_the_cache_is_bounded() -> None:
    for number in range(expression._CACHED + 10):
        compile_expression(f"$a + {number}")
    assert len(expression._cache) == expression._CACHED


def test_is_immutable() -> None:
    made = compile_expression("$a")
    with pytest.raises(AttributeError, match="immutable"):
        made.source = "$b"
    assert repr(made) == "Expression('$a')"


def test_a_constant_container_is_new_each_time() -> None:
    made = compile_expression("{a: [1, 2] + [3]}")
    made.evaluate(Names({}))["a"].append(4)
    assert made.evaluate(Names({})) == {"a": [1, 2, 3]}


def test_a_constant_branch_that_fails_fails_only_when_taken() -> None:
    assert evaluate("1 if $n else 1 / 0") == 1
    assert evaluate("1 if true else 1 / 0") == 1
    with pytest.raises(ExpressionError, match="by zero"):
        evaluate("1 if not $n else 1 / 0")


def test_evaluation_leaves_the_data_alone() -> None:
    before = copy.deepcopy(DATA)
    for source in (
        "workload.rows | reverse",
        "workload.rows | sort(reverse=true)",
        "workload.rows + [4]",
        "merge($fetch, {status: 1}, deep=true)",
        "$fetch.body.items | map(attribute='id')",
        "workload | items | flatten",
        "$fetch.body.items | group_by('name')",
    ):
        evaluate(source)
    assert before == DATA


def test_data_is_never_evaluated() -> None:
    for data in ("{{ 1 + 1 }}", "$n", "1 and 2", "' or '"):
        assert evaluate("$x", {"$x": data}) == data


def test_a_source_is_a_string() -> None:
    source: Any = 5
    with pytest.raises(ExpressionTypeError, match="an expression is a string, not int"):
        compile_expression(source)


def test_errors_survive_pickling() -> None:
    for source in ("$fetch.bdy", "1 / 0", "'a' * 999999999"):
        with pytest.raises(ExpressionError) as caught:
            evaluate(source)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.code, again.offset) == (
            str(caught.value),
            caught.value.code,
            caught.value.offset,
        )
