"""Each bound refuses, and says which one it is."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rune.core.expressions import LimitExceeded, compile_expression, compile_template, sort_key, to_text
from rune.core.expressions.limits import MAX_CHAIN, MAX_INTEGER, MAX_NESTING, MAX_SOURCE, MAX_SUBJECT
from tests.core.expressions.scopes import Names, evaluate


def _refused(source: str, data: dict[str, Any] | None = None) -> str:
    with pytest.raises(LimitExceeded) as caught:
        evaluate(source, data)
    assert caught.value.code == "EXPRESSION_LIMIT"
    return caught.value.bound


@pytest.mark.parametrize(
    "source",
    [
        "(" * 2000 + "1" + ")" * 2000,
        "[" * 2000 + "]" * 2000,
        "{a:" * 2000 + "1" + "}" * 2000,
        "-" * 3000 + "$n",
        "!" * 3000 + "1",
        "not " * 2000 + "1",
        "abs(" * 1900 + "1" + ")" * 1900,
        "a[" * 2000 + "1" + "]" * 2000,
        "1 if 1 else " * 800 + "1",
        "{{" * 2000 + "1" + "}}" * 2000,
        "(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1),
    ],
)
def test_nesting(source: str) -> None:
    assert _refused(source) == "nesting"


def test_nesting_up_to_the_bound_is_fine() -> None:
    deep = MAX_NESTING - 1
    assert evaluate("(" * deep + "7" + ")" * deep) == 7


@pytest.mark.parametrize("source", ["1" + " + 1" * 1000, "1" + " | abs" * 1000, "$n" + " - $n" * MAX_CHAIN])
def test_chains(source: str) -> None:
    assert _refused(source) == "chain length"


def test_long_chains_of_the_same_logic_or_text_join_are_fine() -> None:
    assert evaluate(" and ".join(["1"] * 500)) == 1
    assert evaluate(" or ".join(["0"] * 500)) == 0
    assert evaluate(" ~ ".join(["'x'"] * 500)) == "x" * 500
    assert evaluate("1" + " + 1" * (MAX_CHAIN - 2)) == MAX_CHAIN - 1
    assert evaluate("$n" + "?.a" * 1000) is None


def test_source_length() -> None:
    assert _refused("1" + " " * MAX_SOURCE) == "source length"
    with pytest.raises(LimitExceeded, match="longer than 10,000 characters"):
        compile_template("text {{ " + " " * MAX_SOURCE + "1 }}")
    assert compile_template("x" * 2 * MAX_SOURCE).constant


@pytest.mark.parametrize(
    "source",
    [
        "'a' * 1000000000",
        "'a' * 9223372036854775807",
        "repeat('ab', 100000000)",
        "'a' * 10000000 ~ 'a' * 10000000",
        "$big ~ $big ~ $big",
        "$big + $big + $big",
        "replace($big, 'a', 'bbbbbbbbbbbbbbbb')",
        "replace($big, '', 'bbbbbbbbbbbbbbbb')",
        "range(1000) | join($big)",
        "[$big, $big, $big, $big] | tojson",
        "[$big, $big, $big, $big] ~ ''",
        "$rows | map('get', 'x', $big) | tojson",
        "$rows | map('get', 'x', $big) | join",
        "$big | urlencode",
        "regex_replace($text, 'a', 'b' * 100000)",
        "regex_replace($text, '(a*)', '" + "\\\\1" * 100 + "')",
        "pad_start('', 1000000) * 20",
        "[$nested] | tojson(8)",
    ],
)
def test_output_size(source: str) -> None:
    nested: Any = [0] * 100_000
    for _ in range(50):
        nested = [nested]
    data = {"$big": "a" * 6_000_000, "$text": "a" * 400_000, "$rows": [{}] * 1000, "$nested": nested}
    assert _refused(source, data) == "output size"


@pytest.mark.parametrize(
    "source",
    [
        "range(1000000000000)",
        "range(0, 9223372036854775807, 1)",
        "range(0, -1000000000000, -1)",
        "range(300000) | sort | sort",
        "$rows | map('sum') | length",
        "$rows | select('eq', $other) | length",
        "$texts | select('eq', $long) | length",
        "$texts | select('contains', 'b') | length",
        "$texts | select('>', $long) | length",
        "$texts | map('startswith', $long) | length",
        "$texts | map('hash') | length",
        "$texts | sort | length",
        "range(50000) | map('date') | length",
        "range(50000) | map('timestamp') | length",
        "range(50000) | map('datediff', 0) | length",
        "range(50000) | map('dateadd', 0) | length",
        "range(150000) | map('round', -1) | length",
        "range(200000) | map('hash') | length",
    ],
)
def test_steps(source: str) -> None:
    data = {
        "$rows": [[0] * 1000] * 3000,
        "$other": [0] * 1000,
        "$texts": ["a" * 1_000_000] * 2000,
        "$long": "a" * 1_000_000,
    }
    assert _refused(source, data) == "steps"


@pytest.mark.parametrize(
    "source",
    [
        "$m * $m",
        "$m * 2",
        "$m + $m",
        "-$m - $m",
        "[$m, $m] | sum",
        "9" * 100,
        str(MAX_INTEGER),
        "int('9' * 100)",
        "float($huge)",
        "$huge ~ ''",
    ],
)
def test_integers(source: str) -> None:
    assert _refused(source, {"$m": 2**255, "$huge": 10**5000}) == "integer"


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("(a|aa)+$", "a" * 60 + "!"),
        ("(x+x+)+y", "x" * 5000),
        ("(.*a){20}$", "a" * 200 + "!"),
    ],
)
def test_regex_time(pattern: str, subject: str) -> None:
    for function in (
        "regex_match($s, $p)",
        "regex_find($s, $p)",
        "regex_findall($s, $p)",
        "regex_replace($s, $p, '')",
    ):
        assert _refused(function, {"$s": subject, "$p": pattern}) == "regex time"


def test_regex_time_is_for_all_of_an_evaluation() -> None:
    data = {"$s": [("a" * 24 + "!")] * 2000}
    assert _refused("$s | map('regex_match', '(a|aa)+$')", data) == "regex time"


def test_regex_sizes() -> None:
    assert _refused("regex_match('a', 'a' * 501)") == "pattern length"
    assert _refused("regex_match($s, 'a')", {"$s": "a" * (MAX_SUBJECT + 1)}) == "regex input length"
    for pattern in (
        "((a{99}){99}){99}",
        "a{99999999}",
        "(a{,5000}){2}",
        r"[\][]{6000}",
        "[^]a]{6000}",
        r"\p{L}{6000}",
    ):
        assert _refused("regex_match('a', $p)", {"$p": pattern}) == "pattern repeats"


def test_deep_data_is_refused_not_crashed_on() -> None:
    deep: Any = []
    other: Any = []
    for _ in range(100_000):
        deep, other = [deep], [other]
    data = {"$d": deep, "$e": other}
    for source in ("$d == $e", "$d ~ ''", "tojson($d)", "[$d, $e] | sort", "[$d] | unique", "hash($d)"):
        assert _refused(source, data) == "nesting"
    assert evaluate("$d | flatten | length", data) == 0
    with pytest.raises(LimitExceeded, match="nested too deep"):
        to_text(deep)
    with pytest.raises(LimitExceeded, match="nested too deep"):
        sort_key(deep)
    with pytest.raises(LimitExceeded, match="nested too deep"):
        compile_template(deep)


def test_a_stack_that_is_nearly_full_is_refused_not_overflowed() -> None:
    def dive() -> None:
        try:
            dive()
        except RecursionError:
            compile_expression("((((((((1))))))))" + " " * sys.getrecursionlimit())

    with pytest.raises(LimitExceeded, match="the expression is nested too deep"):
        dive()


def test_memory() -> None:
    class Full(Names):
        def lookup(self, name: str) -> Any:
            raise MemoryError

    with pytest.raises(LimitExceeded, match="not enough memory") as caught:
        compile_expression("$a").evaluate(Full({}))
    assert caught.value.bound == "memory"
    with pytest.raises(LimitExceeded, match="not enough memory"):
        compile_template("{{ $a }}").resolve(Full({}))


def test_deep_data_in_a_template_is_refused() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(LimitExceeded, match="the data is nested too deep"):
        compile_template("<$d>").resolve(Names({"$d": deep}))


def test_a_template_has_one_budget_for_all_its_strings() -> None:
    tree = compile_template(["{{ 'a' * 6000000 }}", "{{ 'a' * 6000000 }}", "{{ 'a' * 6000000 }}"])
    with pytest.raises(LimitExceeded, match="output size") as caught:
        tree.resolve(Names({}))
    assert caught.value.where == (2,)
    with pytest.raises(LimitExceeded, match="output size"):
        compile_template("$big $big $big").resolve(Names({"$big": "a" * 6_000_000}))


def test_the_compiler_leaves_costly_constants_to_the_evaluation() -> None:
    made = compile_expression("'a' * 999999999 if $x else 0")
    assert made.evaluate(Names({"$x": False})) == 0


def test_what_is_refused_says_which_bound() -> None:
    with pytest.raises(LimitExceeded, match="more than 1,000,000 steps in one evaluation"):
        evaluate("range(3000000)")
    with pytest.raises(
        LimitExceeded, match="more than 16,000,000 characters of output size in one evaluation"
    ):
        evaluate("'a' * 99999999")
    with pytest.raises(LimitExceeded, match="nested more than 50 deep"):
        evaluate("(" * 60)
    with pytest.raises(LimitExceeded, match="larger than 2\\^256"):
        evaluate("$m * $m", {"$m": 2**200})
