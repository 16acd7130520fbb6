"""Parameter trees: what is resolved, what stays, and what keeps its type."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import (
    ExpressionError,
    ExpressionSyntaxError,
    ReferenceMissing,
    compile_template,
    templates,
)
from tests.core.expressions.scopes import Names, resolve, same

STRINGS: list[tuple[str, Any]] = [
    # exactly one expression keeps its type
    ("{{ $n }}", 5),
    ("{{$n}}", 5),
    ("{{ $fetch.body.items[0] }}", {"id": 7, "name": "Ada"}),
    ("{{ $n > 3 }}", True),
    ("{{ null }}", None),
    ("{{ {'a': {'b': $n}} }}", {"a": {"b": 5}}),
    ("{{ {'a': {'b': $n}}}}", {"a": {"b": 5}}),
    ("{{ {{ $n }} + 1 }}", 6),
    ("{{ '}}' }}", "}}"),
    # text around it makes text
    ("n={{ $n }}", "n=5"),
    (" {{ $n }}", " 5"),
    ("{{ $n }}\n", "5\n"),
    ("{{ $n }}{{ $index }}", "52"),
    ("{{ null }}|{{ true }}|{{ 1.50 }}|{{ [1, 'a'] }}", '|true|1.5|[1,"a"]'),
    ("{{ '{{' }} x {{ '}}' }}", "{{ x }}"),
    ("a }} b", "a }} b"),
    ("{ $n }", "{ 5 }"),
    # exactly one bare reference keeps its type
    ("$n", 5),
    ("$fetch.body.items[0].id", 7),
    ("$fetch.body.items[-1]", {"id": 8, "name": "Bob"}),
    ("$fetch.headers['content-type']", "text/plain"),
    ('$node["fetch"].status', 200),
    ("$node.fetch.status", 200),
    ("$fetch.body.next?.page", None),
    ("$nowhere", "$nowhere"),
    ("$null", None),
    # a reference in text becomes text
    ("Hello $item.name.", "Hello Ada."),
    ("Hello $item.name, $n times!", "Hello Ada, 5 times!"),
    ("is it $item.name?", "is it Ada?"),
    ("$item.name: $fetch.body.items", 'Ada: [{"id":7,"name":"Ada"},{"id":8,"name":"Bob"}]'),
    ("https://x/$n/y?z=$index", "https://x/5/y?z=2"),
    ("$n.5", "5.5"),
    ("$n$n", "55"),
    ("$$n", "$5"),
    ("($n)", "(5)"),
    ("$fetch.body.items[0].id]", "7]"),
    ("$n[", "5["),
    ("$n[x]", "5[x]"),
    ("$n['x", "5['x"),
    ("$n[1", "5[1"),
    ("$n[99999999999]", "5[99999999999]"),
    # what names nothing known stays as written
    ("costs $5", "costs $5"),
    ("$5.20 each", "$5.20 each"),
    ("$HOME/bin", "$HOME/bin"),
    ("$HOME.config['x']", "$HOME.config['x']"),
    ("a $ b", "a $ b"),
    ("$", "$"),
    ("$node", "$node"),
    ("US$", "US$"),
    ("{ not one }", "{ not one }"),
]


@pytest.mark.parametrize(("text", "expected"), STRINGS)
def test_strings(text: str, expected: Any) -> None:
    value = resolve(text)
    assert same(value, expected), value


def test_trees_are_resolved_value_by_value() -> None:
    tree = {"a": "{{ $n }}", "{{ $n }}": [1, "$index", {"b": "x"}], "c": {"d": ["n $n"]}, "e": None, "f": 1.5}
    assert resolve(tree) == {"a": 5, "{{ $n }}": [1, 2, {"b": "x"}], "c": {"d": ["n 5"]}, "e": None, "f": 1.5}
    assert list(resolve(tree)) == list(tree), "the order of the keys stays"


def test_the_tree_itself_is_left_alone() -> None:
    tree = {"a": ["$n"]}
    made = compile_template(tree)
    made.resolve(Names({"$n": 1}))
    assert tree == {"a": ["$n"]}
    assert made.resolve(Names({"$n": 2})) == {"a": [2]}


@pytest.mark.parametrize("value", [None, 1, 1.5, True, "text", "a } b", [], {"a": [1, "x", {}]}, "$"])
def test_what_needs_no_resolving_is_constant_and_returned_as_it_is(value: Any) -> None:
    made = compile_template(value)
    assert made.constant
    assert made.names == frozenset()
    assert made.resolve(Names({})) is value


def test_names_and_determinism_are_of_the_whole_tree() -> None:
    made = compile_template(
        {"a": "$x.y and {{ $node['Z Z'].b }}", "b": ["{{ workload.c }}", "{{ now() }}"]}, aliases={"Z Z": "z"}
    )
    assert made.names == {"$x", "$z", "workload"}
    assert not made.deterministic
    assert not made.constant
    assert compile_template({"a": "$x"}).deterministic


def test_names_of_nodes_stand_for_ids() -> None:
    aliases = {"Fetch Users": "fetch", "Fetch": "fetch"}
    assert resolve('$node["Fetch Users"].status', aliases=aliases) == 200
    assert resolve("$Fetch.status items", aliases=aliases) == "200 items"
    assert resolve("{{ $node['Fetch Users'].status }}", aliases=aliases) == 200


def test_data_is_never_evaluated_again() -> None:
    data = {"$x": "{{ 1 + 1 }} $x", "$y": {"k": "$x"}}
    assert resolve("$x", data) == "{{ 1 + 1 }} $x"
    assert resolve("<$x>", data) == "<{{ 1 + 1 }} $x>"
    assert resolve("{{ $y }}", data) == {"k": "$x"}


def test_lenient_gives_null_or_nothing() -> None:
    assert resolve("{{ nothing.at.all }}", lenient=True) is None
    assert resolve("<{{ nothing.at.all }}>", lenient=True) == "<>"
    assert resolve("$fetch.nothing", lenient=True) is None
    assert resolve("$nothing", lenient=True) == "$nothing"


def test_a_known_name_with_a_missing_path_is_an_error() -> None:
    with pytest.raises(ReferenceMissing) as caught:
        resolve({"url": ["x", "get $fetch.bdy.id now"]})
    error = caught.value
    assert str(error) == "`$fetch.bdy.id` does not exist: `$fetch` has no key 'bdy'; did you mean 'body'?"
    assert (error.where, error.offset, error.source) == (("url", 1), 11, "get $fetch.bdy.id now")


def test_a_node_that_does_not_exist_is_an_error_also_when_bare() -> None:
    with pytest.raises(
        ReferenceMissing, match=r"`\$node.fetc.body` does not exist: there is no `\$node.fetc`"
    ):
        resolve("$node.fetc.body")


def test_syntax_errors_say_where_in_the_tree_and_in_the_string() -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        compile_template({"a": [{"b": "text {{ 1 + }} more"}]})
    error = caught.value
    assert (error.where, error.offset, error.source) == (("a", 0, "b"), 12, "text {{ 1 + }} more")


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("a {{ $n", "`{{` is not closed; write {{ '{{' }} for the characters", 2),
        ("{{ }}", "the expression is empty", 3),
        ("{{ (1 }} x", "expected `)` after the expression, found the end", 6),
        ("{{ don't }}", "the string is not closed", 6),
        ("{{ uper('a') }}", "there is no function 'uper'; did you mean 'upper'?", 3),
        ("x {{ 1 }} {{ 2 3 }}", "unexpected `3`", 15),
    ],
)
def test_syntax_errors(text: str, message: str, offset: int) -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        compile_template(text)
    assert (str(caught.value), caught.value.offset) == (message, offset)


def test_is_immutable() -> None:
    made = compile_template("$a")
    with pytest.raises(AttributeError, match="immutable"):
        made.constant = True
    assert repr(made) == "Template('$a')"


def test_strings_are_compiled_once_and_the_cache_is_bounded() -> None:
    for number in range(templates._CACHED + 10):
        compile_template(f"${number}")
    assert len(templates._cache) == templates._CACHED
    long = "{{ 1 }}" + "x" * 20_000
    compile_template(long)
    assert templates._cache.get((long, False, ())) is None


def test_type_errors_carry_the_place_too() -> None:
    with pytest.raises(ExpressionError) as caught:
        resolve({"a": {"b": "{{ 1 + 'x' }}"}})
    assert (caught.value.where, caught.value.offset) == (("a", "b"), 5)
