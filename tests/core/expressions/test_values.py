"""Kinds, truth and text of JSON values."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import ExpressionTypeError, kind_of, to_text, truth
from rune.core.expressions.values import UNDEFINED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-12, "-12"),
        (2**70, "1180591620717411303424"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (1e16, "1e16"),
        (1e-7, "1e-7"),
        ([1, "a", None, {"b": True}], '[1,"a",null,{"b":true}]'),
        ({"é": "ü"}, '{"é":"ü"}'),
        ([], "[]"),
    ],
)
def test_to_text(value: Any, text: str) -> None:
    assert to_text(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")], {"a": float("nan")}])
def test_what_json_cannot_hold_has_no_text(value: Any) -> None:
    with pytest.raises(ExpressionTypeError, match="infinite or not a number"):
        to_text(value)


def test_what_is_no_json_has_no_text() -> None:
    for value in ([object()], {"a": "\ud800"}):
        with pytest.raises(ExpressionTypeError, match="cannot be written as JSON"):
            to_text(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "boolean"),
        (1, "number"),
        (1.5, "number"),
        ("", "string"),
        ([], "array"),
        ({}, "object"),
        (UNDEFINED, "undefined"),
        (b"", "value of type bytes"),
    ],
)
def test_kind_of(value: Any, kind: str) -> None:
    assert kind_of(value) == kind


@pytest.mark.parametrize(
    ("value", "plain", "words"),
    [
        (None, False, False),
        (0, False, False),
        ([], False, False),
        (UNDEFINED, False, False),
        ("", False, False),
        ("0", True, False),
        ("no", True, False),
        ("None", True, False),
        ("false", True, False),
        (" FALSE ", True, False),
        ("yes", True, True),
        ([0], True, True),
    ],
)
def test_truth(value: Any, plain: bool, words: bool) -> None:
    assert truth(value) is plain
    assert truth(value, words=True) is words


def test_undefined_names_itself() -> None:
    assert repr(UNDEFINED) == "UNDEFINED"
