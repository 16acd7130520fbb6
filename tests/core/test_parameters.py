"""Parameters: what is checked when they are compiled, and what each step gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta

from rune.core.errors import NodeError, Problem
from rune.core.expressions import Expression
from rune.core.node import NodeType
from rune.core.parameters import Dialect, Parameters, compile_parameters


class Fold(msgspec.Struct):
    """A struct with an expression inside."""

    op: Literal["sum", "max"]
    value: Expression | None = None


class Rule(msgspec.Struct):
    """A struct that checks itself."""

    value: Any
    operator: str = "eq"

    def __post_init__(self) -> None:
        if self.operator not in ("eq", "lt"):
            raise ValueError(f"there is no operator {self.operator!r}")


class Everything(NodeType, kw_only=True):
    """A type with a parameter of each kind."""

    name: ClassVar = "everything"
    reads: ClassVar = ("$previous",)

    url: str
    count: Annotated[int, Meta(ge=0)] = 1
    limit: Annotated[float | None, Meta(gt=0)] = None
    size: Annotated[int, Meta(ge=1)] | Literal["auto"] = "auto"
    flag: bool = False
    mode: Literal["fast", "slow"] = "fast"
    headers: dict[str, str] = {}  # noqa: RUF012 - msgspec makes it anew
    to: str | list[str] = ""
    body: Any = None
    when: Expression | list[Rule] | None = None
    each: Expression | None = None
    folds: dict[str, Fold] | None = None
    rules: list[Rule] = []  # noqa: RUF012
    source: Any = "$json"
    sender: str = msgspec.field(name="from", default="me")

    def __post_init__(self) -> None:
        if self.mode == "slow" and self.flag:
            raise ValueError("`slow` takes no flag")


class Bare(NodeType):
    """A type whose parameters have no default that needs resolving."""

    name: ClassVar = "bare"
    numeric_strings: ClassVar = True

    n: int = 0
    items: list[int] = []  # noqa: RUF012
    test: Expression | None = None


class Names:
    """A scope of these values."""

    def __init__(self, **values: Any) -> None:
        self._values = {f"${name}": value for name, value in values.items()}

    def lookup(self, name: str) -> Any:
        return self._values[name]

    def names(self) -> Iterable[str]:
        return self._values


def compiled(type: type[NodeType] = Everything, **raw: Any) -> Parameters:
    made, problems = compile_parameters(type, raw, dialect=Dialect({"The Node": "n1"}), path=("p",))
    assert made is not None, problems
    assert problems == []
    return made


def resolved(type: type[NodeType] = Everything, scope: Names | None = None, **raw: Any) -> Any:
    return compiled(type, **raw).resolve(scope or Names(json=[]))


def refused(type: type[NodeType] = Everything, **raw: Any) -> list[Problem]:
    made, problems = compile_parameters(type, raw, dialect=Dialect(), path=("p",))
    assert made is None
    return problems


# What is resolved


def test_templates_are_resolved_and_converted() -> None:
    scope = Names(a={"n": "7", "url": "http://x", "list": ["x"]}, json=[1])
    step = resolved(
        scope=scope, url="$a.url", count="{{ $a.n }}", to="{{ $a.list }}", body={"k": ["{{ $a.n }}"]}
    )
    assert (step.url, step.count, step.to, step.body) == ("http://x", 7, ["x"], {"k": ["7"]})


def test_a_default_may_be_a_template() -> None:
    assert resolved(scope=Names(json=[1, 2]), url="x").source == [1, 2]
    assert resolved(url="x", source=None).source is None


def test_without_templates_one_instance_serves_every_step() -> None:
    made = compiled(Bare, n="3", items=["1", 2])
    assert made.constant is not None
    assert made.resolve(Names()) is made.constant
    assert (made.constant.n, made.constant.items) == (3, [1, 2])  # type: ignore[attr-defined]


def test_numbers_may_be_text_and_text_numbers() -> None:
    step = resolved(
        url=5, count="30", limit="2.5", size="4", flag="true", headers={"x": 1, "y": True}, to=[1]
    )
    assert (step.url, step.count, step.limit, step.size, step.flag) == ("5", 30, 2.5, 4, True)
    assert (step.headers, step.to) == ({"x": "1", "y": "true"}, ["1"])


def test_also_when_they_come_from_the_context() -> None:
    scope = Names(a={"i": 5, "f": 1.5, "h": {"x": 1}, "s": "4"}, json=0)
    step = resolved(scope=scope, url="{{ $a.i }}", headers="{{ $a.h }}", to="$a.f", size="$a.s")
    assert (step.url, step.headers, step.to, step.size) == ("5", {"x": "1"}, "1.5", 4)


def test_null_where_it_is_no_value_means_the_default() -> None:
    step = resolved(url="x", count=None, mode=None, limit=None)
    assert (step.count, step.mode, step.limit) == (1, "fast", None)


def test_a_field_may_be_called_otherwise_in_the_definition() -> None:
    scope = Names(a="you", json=0)
    assert resolved(scope=scope, **{"url": "x", "from": "$a"}).sender == "you"
    assert resolved(**{"url": "x", "from": "us"}).sender == "us"


def test_expressions_are_compiled_not_resolved() -> None:
    step = resolved(
        url="x",
        when="$a.n > 3",
        each="$item.n",
        folds={"total": {"op": "sum", "value": "$item.total"}, "most": {"op": "max"}},
    )
    assert step.when.evaluate(Names(a={"n": 4})) is True
    assert step.each.source == "$item.n"
    assert step.folds["total"].value.evaluate(Names(item={"total": 9})) == 9
    assert step.folds["most"].value is None


def test_an_expression_may_be_a_literal() -> None:
    assert resolved(url="x", when=True).when.evaluate(Names()) is True


def test_an_expression_beside_another_type() -> None:
    scope = Names(a=1, json=0)
    assert resolved(scope=scope, url="x", when=[{"value": "$a"}]).when == [Rule(value=1)]


def test_expressions_beside_templates_in_one_parameter() -> None:
    scope = Names(op="max", json=0)
    step = resolved(scope=scope, url="x", folds={"f": {"op": "$op", "value": "$item.n"}})
    assert step.folds["f"].op == "max"
    assert isinstance(step.folds["f"].value, Expression)


def test_numeric_strings_are_the_types_choice() -> None:
    step = resolved(Bare, test="$a == 5")
    assert step.test.evaluate(Names(a="5")) is True
    assert resolved(url="x", when="$a == 5").when.evaluate(Names(a="5")) is False


# What is known beforehand


def test_names_are_all_that_may_be_read() -> None:
    made = compiled(
        url="$a.x and {{ $b }}",
        when="$c > 1",
        folds={"f": {"op": "sum", "value": "$d"}},
        body={"deep": ["$node['The Node'].x"]},
    )
    assert made.names == {"$a", "$b", "$c", "$d", "$n1", "$json", "$previous"}


def test_the_clock_makes_them_indeterminate() -> None:
    assert compiled(url="$a").deterministic
    assert not compiled(url="{{ now() }}").deterministic
    assert not compiled(url="x", when="uuid() == ''").deterministic


# What is refused at once


@pytest.mark.parametrize(
    ("raw", "code", "path", "said"),
    [
        ({}, "E013", (), "parameter 'url' of everything is missing"),
        ({"cuont": 1}, "E012", ("cuont",), "did you mean 'count'?"),
        ({"count": "many"}, "E014", ("count",), 'must be an integer, at least 0, not the text "many"'),
        ({"count": -1}, "E014", ("count",), "not the number -1"),
        ({"count": 1.5}, "E014", ("count",), "not the number 1.5"),
        ({"count": True}, "E014", ("count",), "not true"),
        ({"limit": 0}, "E014", ("limit",), "must be a number, more than 0"),
        ({"size": "huge"}, "E014", ("size",), 'must be an integer, at least 1 or one of "auto"'),
        ({"size": "0"}, "E014", ("size",), "not the number 0"),
        ({"flag": "perhaps"}, "E014", ("flag",), "must be true or false"),
        ({"mode": "fats"}, "E014", ("mode",), "did you mean 'fast'?"),
        ({"headers": []}, "E014", ("headers",), "must be an object, not a list"),
        ({"headers": {"x": {}}}, "E014", ("headers", "x"), "must be text, not an object"),
        ({"to": {}}, "E014", ("to",), "must be text or a list (each text), not an object"),
        ({"url": None}, "E014", ("url",), "must be text, not null"),
        ({"when": "$a >"}, "E015", ("when",), "expected a value"),
        ({"when": {}}, "E014", ("when",), "must be an expression or a list"),
        ({"url": "x {{ 1 + }}"}, "E015", ("url",), "expected a value"),
        ({"body": {"a": ["{{ nope( }}"]}}, "E015", ("body", "a", 0), ""),
        ({"folds": {"f": {"op": "summ"}}}, "E014", ("folds", "f", "op"), "'folds.f.op'"),
        ({"folds": {"f": {"value": "$a"}}}, "E013", ("folds", "f"), "'op' is missing"),
        ({"folds": {"f": {"op": "sum", "valeu": "$a"}}}, "E012", ("folds", "f", "valeu"), "'value'"),
        ({"folds": {"f": {"op": "sum", "value": "$a +"}}}, "E015", ("folds", "f", "value"), "expected"),
        ({"rules": [{"value": "$a", "operator": "equals"}]}, "E014", ("rules", 0), "no operator 'equals'"),
        ({"when": [{"value": 1, "operator": "equals"}]}, "E014", ("when", 0), "no operator 'equals'"),
        ({"mode": "slow", "flag": True}, "E014", (), "everything: `slow` takes no flag"),
        ({"mode": "slow", "flag": True, "url": "$a"}, "E014", (), "`slow` takes no flag"),
    ],
)
def test_what_is_wrong_before_anything_runs(raw: dict[str, Any], code: str, path: Any, said: str) -> None:
    given = raw if code == "E013" and not path else {"url": "x", **raw}
    [problem] = refused(**given)
    assert (problem.code, problem.path) == (code, ("p", *path))
    assert said in f"{problem.message}; {problem.hint}"


def test_an_unknown_parameter_like_no_other_is_ignored_with_a_warning() -> None:
    made, [problem] = compile_parameters(Everything, {"url": "x", "zzzzz": 1}, dialect=Dialect(), path=())
    assert made is not None
    assert (problem.code, problem.severity) == ("W001", "warning")


def test_a_misspelt_parameter_is_not_missed_as_well() -> None:
    [problem] = refused(ulr="x")
    assert (problem.code, problem.hint) == ("E012", "did you mean 'url'?")


def test_every_problem_is_found() -> None:
    found = refused(url="{{ 1 + }}", count="x", mode="y", body=["{{ 2 * }}", "{{ 3 / }}"], zzzzz=1)
    assert [problem.code for problem in found] == ["W001", "E015", "E014", "E014", "E015", "E015"]


def test_the_place_in_an_expression_is_known() -> None:
    [problem] = refused(url="see {{ 1 + }}")
    assert problem.offset == 11


def test_what_depends_on_the_context_is_not_refused_beforehand() -> None:
    compiled(url="x", flag="{{ $a }}", mode="slow")
    compiled(url="x", rules=[{"value": 1, "operator": "$a.operator"}])
    compiled(url="x", count="$a", headers="$a", to="{{ $a }}", size="$a", mode="$a", rules="$a", folds="$a")


# What is refused at run time


@pytest.mark.parametrize(
    ("raw", "value", "said"),
    [
        (
            {"count": "$a"},
            "many",
            "parameter 'count' of everything must be an integer, at least 0, not the text",
        ),
        ({"count": "{{ $a }}"}, None, "not null"),
        ({"mode": "$a"}, "fats", "must be one of"),
        ({"headers": {"x": "$a"}}, [1], "parameter 'headers.x' of everything must be text, not a list"),
        ({"rules": "$a"}, [{"operator": "eq"}], "parameter 'rules[0]' of everything: 'value' is missing"),
        ({"rules": "$a"}, [{"value": 1, "operator": "x"}], "there is no operator 'x'"),
        ({"rules": [{"value": 1, "operator": "$a"}]}, "x", "there is no operator 'x'"),
        ({"mode": "slow", "flag": "$a"}, True, "`slow` takes no flag"),
    ],
)
def test_what_does_not_fit_fails_the_node(raw: dict[str, Any], value: Any, said: str) -> None:
    with pytest.raises(NodeError) as caught:
        resolved(scope=Names(a=value, json=0), url="x", **raw)
    assert caught.value.code == "PARAMETER_INVALID"
    assert said in caught.value.message


def test_a_reference_to_nothing_fails_the_node_and_names_the_parameter() -> None:
    with pytest.raises(NodeError) as caught:
        resolved(scope=Names(a={"body": 1}, json=0), url="x", body={"k": ["{{ $a.bdy }}"]})
    assert caught.value.code == "REFERENCE_MISSING"
    assert caught.value.message.startswith("parameter 'body.k[0]': ")
    assert "body" in caught.value.message
    assert caught.value.details == {"parameter": "body.k[0]", "expression": "{{ $a.bdy }}", "offset": 6}
