"""Outcomes and errors in the form in which they leave the worker."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from rune.core.errors import EngineError, ErrorInfo, NodeError
from rune.core.expressions import ExpressionError, compile_expression
from rune.core.outcome import Arrive, Done, Failed, FanOut, Join, Outcome, Sleep, Source
from rune.core.secrets import Mask
from rune.core.workflow import Node
from rune.engine.sealing import decode_outcome, sealed, told
from tests.core.graphs import Gather, Meet, Plain, Scatter, node, plain, raw

MASK = Mask()
MASK.learn({"password": "hunter2"})


def holding(type: Any = Plain) -> Node:
    """A node with a credential."""
    return msgspec.structs.replace(node("a", type), credentials="mail")


def undecided(**fields: Any) -> Node:
    """A node whose outcome is recorded."""
    return msgspec.structs.replace(node("a"), deterministic=False, **fields)


@pytest.mark.parametrize(
    ("type", "outcome"),
    [
        (Plain, Done({"sent": ["hunter2"]})),
        (Plain, Sleep(None, {"sent": "hunter2"})),
        (Plain, Failed(ErrorInfo("no hunter2", "NO", {"sent": "hunter2"}))),
        (Gather, Arrive({"sent": "hunter2"}, (1,))),
        (Scatter, FanOut(Source(items=[1, "hunter2"]), labels=["a", "hunter2"])),
    ],
)
def test_every_outcome_of_a_node_with_a_credential_is_masked(type: Any, outcome: Outcome) -> None:
    kept = msgspec.json.encode(sealed(holding(type), outcome, MASK.data))
    assert b"***" in kept
    assert b"hunter2" not in kept
    assert decode_outcome(kept)


def test_what_a_node_sets_is_masked() -> None:
    made = sealed(undecided(credentials="mail"), Done(1, sets={"sent": ["hunter2"]}), MASK.data)
    assert isinstance(made, Done)
    assert made.sets == {"sent": ["***"]}


def test_a_node_that_is_not_recorded_may_set_nothing() -> None:
    with pytest.raises(EngineError, match="sets variables") as raised:
        sealed(node("a"), Done(1, sets={"x": 1}), MASK.data)
    assert raised.value.code == "NODE_OUTCOME"
    assert sealed(node("a"), Done(1, sets={}), MASK.data)


def test_a_node_may_not_set_what_json_cannot_hold() -> None:
    with pytest.raises(NodeError, match="returned"):
        sealed(undecided(), Done(1, sets={"x": math.nan}), MASK.data)


def test_a_node_without_a_credential_is_not_searched() -> None:
    assert sealed(node("a"), Done("hunter2"), MASK.data) == Done(raw("hunter2"))


def test_a_failure_that_is_returned_is_of_its_node() -> None:
    failed = sealed(node("a"), Failed(ErrorInfo("no", "NO", {"x": object()})), MASK.data)
    assert isinstance(failed, Failed)
    assert (failed.error.node, failed.error.code) == ("a", "NO")
    msgspec.json.encode(failed)


@pytest.mark.parametrize("items", [[math.nan], [{1}], [{"a": b"x"}], [{1: 2}]])
def test_items_that_json_cannot_hold_are_refused(items: list[Any]) -> None:
    with pytest.raises(NodeError, match="returned"):
        sealed(node("s", Scatter), FanOut(Source(items=items)), MASK.data)


@pytest.mark.parametrize(
    ("type", "outcome", "why"),
    [
        (Plain, FanOut(Source()), "only a split may fan out"),
        (Gather, FanOut(Source()), "only a split may fan out"),
        (Scatter, Arrive(1), "only an aggregator may gather"),
        (Plain, Join(), "only a merge may join"),
    ],
)
def test_an_outcome_must_fit_the_role_of_its_node(type: Any, outcome: Outcome, why: str) -> None:
    with pytest.raises(NodeError, match=why) as raised:
        sealed(node("a", type), outcome, MASK.data)
    assert raised.value.code == "NODE_OUTCOME"


def test_a_join_needs_nothing() -> None:
    assert sealed(node("m", Meet), Join(), MASK.data) == Join()


def test_an_error_of_an_expression_has_its_code_and_its_hint() -> None:
    with pytest.raises(ExpressionError) as raised:
        compile_expression("$a ** 2")
    info = told(node("a"), raised.value, MASK.data)
    assert (info.code, info.node) == (raised.value.code, "a")
    assert raised.value.message in info.message


def test_an_error_of_a_node_with_a_credential_is_masked() -> None:
    info = told(holding(), NodeError("sent hunter2", "NO", {"header": "Bearer hunter2"}), MASK.data)
    assert plain(info) == {
        "message": "sent ***",
        "code": "NO",
        "details": {"header": "Bearer ***"},
        "node": "a",
    }


def test_a_number_that_is_a_secret_does_not_break_the_error() -> None:
    mask = Mask()
    mask.learn({"pin": "1234"})
    info = told(holding(), NodeError("refused", "NO", {"pin": 1234, "status": 401}), mask.data)
    assert info.details == {"pin": "***", "status": 401}
