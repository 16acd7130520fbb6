"""Every refusal: its class, its message, its hint, and where it points."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import (
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    ReferenceMissing,
    compile_expression,
)
from tests.core.expressions.scopes import Names, evaluate

SYNTAX = [
    ("", "the expression is empty", 0),
    ("   ", "the expression is empty", 3),
    ("1 +", "expected a value, found the end", 3),
    ("1 2", "unexpected `2`", 2),
    ("(1", "expected `)` after the expression, found the end", 2),
    ("[1 2]", "expected `,` or `]` after an element, found `2`", 3),
    ("{a 1}", "expected `:` after the key, found `1`", 3),
    ("{[1]: 2}", "expected a key, found `[`", 1),
    ("{a: 1 b: 2}", "expected `,` or `}` after a value, found `b`", 6),
    ("a[1", "expected `]` after the index, found the end", 3),
    ("a[1:2", "expected `]` after the slice, found the end", 5),
    ("a.", "expected a key after the dot, found the end", 2),
    ("a |", "expected the name of a filter, found the end", 3),
    ("a is", "expected the name of a test, found the end", 4),
    ("length(1 2)", "expected `,` or `)` after an argument, found `2`", 9),
    ("and", "expected a value, found `and`", 0),
    ("1 if", "expected a value, found the end", 4),
    ("'abc", "the string is not closed", 0),
    ("1e", "unexpected `e`", 1),
    ("$", "unexpected '$'; a name follows the dollar sign", 0),
    ("a = 1", "unexpected `=`; use `==` to compare", 2),
    ("a === 1", "unexpected '==='; use `==`", 2),
    ("a !== 1", "unexpected '!=='; use `!=`", 2),
    ("2 ** 3", "unexpected '**'; there is no power operator; multiply", 2),
    ("a ? b : c", "unexpected '?'; write `a if condition else b`", 2),
    ("a & b", "unexpected '&'; use `and`", 2),
    ("`a`", "unexpected '`'; strings stand in single or double quotes", 0),
    ("a # b", "unexpected '#'", 2),
    ("1e999", "the number 1e999 is too large", 0),
    ("uper(1)", "there is no function 'uper'; did you mean 'upper'?", 0),
    ("1 | rond", "there is no function 'rond'; did you mean 'round'?", 4),
    ("1 | xyzzy", "there is no function 'xyzzy'", 4),
    ("1 is nmber", "there is no test 'nmber'; did you mean 'number'?", 5),
    ("[] | map('uper')", "there is no function 'uper'; did you mean 'upper'?", 9),
    ("[] | select('evn')", "there is no test 'evn'; did you mean 'even'?", 12),
    ("[] | select(test='evn')", "there is no test 'evn'; did you mean 'even'?", 17),
    ("[] | map($f)", "`map` needs the name of a function in quotes", 9),
    ("[] | map('map', 'upper')", "`map` cannot be given to `map`", 9),
    ("[] | map('replace', 'a')", "`replace` needs 'new'; it is replace(value, old, new, count=-1)", 9),
    ("a.upper()", "values have no methods, so `.upper()` cannot be called; write `… | upper`", 2),
    ("a.strip_all()", "values have no methods, so `.strip_all()` cannot be called", 2),
    ("upper()", "`upper` needs 'value'; it is upper(value)", 0),
    ("upper(1, 2)", "`upper` takes at most 1 arguments, not 2; it is upper(value)", 0),
    ("round(1, x=2)", "`round` has no argument 'x'; it is round(value, digits=0)", 0),
    ("round(1, value=2)", "`round` is given 'value' twice; it is round(value, digits=0)", 0),
    ("round(value=1, value=2)", "the argument 'value' is given twice", 15),
    ("round(value=1, 2)", "an argument without a name stands after one with a name", 15),
    ("1 is divisibleby()", "`divisibleby` needs 'divisor'; it is divisibleby(value, divisor)", 2),
    ("$node", '`$node` alone means nothing; write `$node.id` or `$node["Name of the node"]`', 0),
    ("$node[$x].y", "`$node[…]` needs the id or name of a node in quotes", 6),
    ("$node[1]", "`$node[…]` needs the id or name of a node in quotes", 6),
    ("{{ a", "expected `)` after the expression, found the end", 4),
    ("a }}", "unexpected `}`", 2),
]

MISSING = [
    ("$fetch.bdy", "`$fetch.bdy` does not exist: `$fetch` has no key 'bdy'; did you mean 'body'?", 7),
    ("$fetc", "`$fetc` does not exist; did you mean '$fetch'?", 0),
    ("fetch.body.x", "`fetch.body.x` does not exist: there is no `fetch`; did you mean '$fetch'?", 0),
    ("$qqq", "`$qqq` does not exist", 0),
    (
        "$fetch.body.itms[0].id",
        "`$fetch.body.itms[0].id` does not exist: `$fetch.body` has no key 'itms'; did you mean 'items'?",
        12,
    ),
    ("$item.q", "`$item.q` does not exist: `$item` has no key 'q'; it has 'price', 'name', 'text'", 6),
    (
        "$fetch.body.items[5]",
        "`$fetch.body.items[5]` does not exist: `$fetch.body.items` has 2 items, no index 5",
        18,
    ),
    (
        "$fetch.body.items[-3].x",
        "`$fetch.body.items[-3].x` does not exist: `$fetch.body.items` has 2 items, no index -3",
        18,
    ),
    ("[1][1]", "`[1][1]` does not exist: `[1]` has 1 item, no index 1", 4),
    (
        "$fetch.body.items.id",
        "`$fetch.body.items.id` does not exist: `$fetch.body.items` is an array, which has no key 'id'; "
        "take one element, as in [0].id, or all with map(attribute='id')",
        18,
    ),
    (
        "$fetch.body.next.page",
        "`$fetch.body.next.page` does not exist: `$fetch.body.next` is null, which has no key 'page'",
        17,
    ),
    ("$item.name[0]", "`$item.name[0]` does not exist: `$item.name` is a string, which has no index 0", 11),
    ("$item.price.x", "`$item.price.x` does not exist: `$item.price` is a number, which has no key 'x'", 12),
    ("$fetch[0]", "`$fetch[0]` does not exist: `$fetch` is an object, which has no index 0", 7),
    ("{}.a", "`{}.a` does not exist: `{}` has no key 'a'; it is empty", 3),
    ("($item).nme", "`($item).nme` does not exist: `($item)` has no key 'nme'; did you mean 'name'?", 8),
    (
        "$node['fetch'].bdy",
        "`$node['fetch'].bdy` does not exist: `$node['fetch']` has no key 'bdy'; did you mean 'body'?",
        15,
    ),
    (
        "$item?.price.x",
        "`$item?.price.x` does not exist: `$item?.price` is a number, which has no key 'x'",
        13,
    ),
    (
        "$item.__class__",
        "`$item.__class__` does not exist: `$item` has no key '__class__'; it has 'price', 'name', 'text'",
        6,
    ),
    ("'x'.__class__", "`'x'.__class__` does not exist: `'x'` is a string, which has no key '__class__'", 4),
    ("[{a: 1}, {b: 1}] | map(attribute='a')", "item 1: `map`: object has no 'a'", 19),
    ("[{name: 1}] | sum(attribute='nam')", "`sum`: object has no 'nam'; did you mean 'name'?", 14),
]

TYPES = [
    ("'a' + 1", "`+` does not take string and number; use `~` to join values as text", 4),
    ("1 + null", "`+` does not take number and null", 2),
    ("true + 1", "`+` does not take boolean and number", 5),
    ("[1] + {}", "`+` does not take array and object", 4),
    ("'3' - 1", "`-` does not take string and number; convert with int() or float()", 4),
    ("[1] * 2", "`*` does not take array and number", 4),
    ("'a' * 1.5", "`*` does not take string and number; convert with int() or float()", 4),
    ("'%s' % 1", "`%` does not take string and number; convert with int() or float()", 5),
    ("1 / 0", "`/` by zero", 2),
    ("1 // 0", "`//` by zero", 2),
    ("1 % 0.0", "`%` by zero", 2),
    ("-'a'", "`-` does not take string", 0),
    ("+null", "`+` does not take null", 0),
    ("1e308 * 10", "the result is infinite or not a number, which JSON cannot hold", 6),
    ("1 < 'a'", "cannot order number and string; convert with int(), float() or string()", 2),
    ("null < 1", "cannot order null and number", 5),
    ("true < false", "cannot order boolean and boolean", 5),
    ("[1] < [2]", "cannot order array and array", 4),
    ("1 < 2 < 'a'", "cannot order number and string; convert with int(), float() or string()", 2),
    ("1 in 'a1'", "a string can contain a string only, not number; convert with string()", 2),
    ("1 in 5", "number cannot contain anything", 2),
    ("$item[1.5]", "a key is a string or an integer, not number", 6),
    ("$item[null]", "a key is a string or an integer, not null", 6),
    ("$item[true]", "a key is a string or an integer, not boolean", 6),
    ("upper(1)", "`upper` needs a string, not number", 0),
    ("1 | abs | upper", "`upper` needs a string, not number", 10),
    ("1.5 is even", "`even` needs an integer, not number", 4),
    ("[1, 'a', 2] | map('upper')", "item 0: `upper` needs a string, not number", 14),
    (
        "[1, 'a'] | select('>', 0)",
        "item 1: cannot order string and number; convert with int(), float() or string()",
        11,
    ),
]


def _caught(source: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        evaluate(source)
    return caught.value


@pytest.mark.parametrize(("source", "message", "offset"), SYNTAX)
def test_syntax(source: str, message: str, offset: int) -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        compile_expression(source)
    error = caught.value
    assert (str(error), error.offset, error.source, error.code) == (
        message,
        offset,
        source,
        "EXPRESSION_SYNTAX",
    )


@pytest.mark.parametrize(("source", "message", "offset"), MISSING)
def test_references(source: str, message: str, offset: int) -> None:
    error = _caught(source)
    assert isinstance(error, ReferenceMissing)
    assert (str(error), error.offset, error.source, error.code) == (
        message,
        offset,
        source,
        "REFERENCE_MISSING",
    )


@pytest.mark.parametrize(("source", "message", "offset"), TYPES)
def test_types(source: str, message: str, offset: int) -> None:
    error = _caught(source)
    assert isinstance(error, ExpressionTypeError)
    assert (str(error), error.offset, error.source, error.code) == (
        message,
        offset,
        source,
        "EXPRESSION_TYPE",
    )


def test_a_missing_reference_says_how_far_it_got() -> None:
    error = _caught("$fetch.body.itms.x")
    assert isinstance(error, ReferenceMissing)
    assert (error.path, error.reached, error.hint) == (
        "$fetch.body.itms.x",
        "$fetch.body",
        "did you mean 'items'?",
    )
    root = _caught("$fetc.body")
    assert isinstance(root, ReferenceMissing)
    assert (root.path, root.reached) == ("$fetc.body", None)


def test_long_paths_and_keys_are_cut_in_messages() -> None:
    error = _caught("$item." + "x" * 500)
    assert len(str(error)) < 600
    assert "…" in error.message


@pytest.mark.parametrize("source", ["$h + 1.5", "$h - 1.5", "$h * 1.5", "$h / 3", "$h // 1.5", "$h % 1.5"])
def test_an_integer_too_large_for_a_fraction(source: str) -> None:
    with pytest.raises(ExpressionTypeError, match="infinite or not a number"):
        evaluate(source, {"$h": 10**400})


def test_an_object_of_many_keys_does_not_list_them() -> None:
    with pytest.raises(ReferenceMissing) as caught:
        evaluate("$o.zzz", {"$o": {f"key{n}": n for n in range(50)}})
    assert caught.value.hint is None


def test_methods_and_attributes_of_python_objects_are_out_of_reach() -> None:
    class Thing:
        secret = "s"

    data: dict[str, Any] = {"$t": Thing(), "$s": "text"}
    for source in ("$t.secret", "$t.__class__", "$t['secret']", "$s.upper", "$s['__len__']"):
        with pytest.raises(ReferenceMissing):
            compile_expression(source).evaluate(Names(data))
