"""What names mean to an expression at one branch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.context import Context, Layer, Ref
from rune.core.messages import Branch
from rune.core.scope import BranchScope, context_names, output_name, unwrapped
from tests.core.graphs import Scatter, Start, branch, frame, graph, node, raw, raws

FLOW = graph("t > a > s > b > u > c", nodes=(node("t", Start), node("s", Scatter), node("u", Scatter)))


def scope(of: Branch, layers: dict[Ref, Layer] | None = None) -> BranchScope:
    return BranchScope(FLOW, "exec", of, layers or {})


def test_a_nodes_output_is_called_after_it() -> None:
    at = scope(branch(context={"$a": {"x": 1}}, shared={"$b": 2}))
    assert (at.lookup("$a"), at.lookup("$b")) == ({"x": 1}, 2)
    with pytest.raises(KeyError):
        at.lookup("$c")


def test_a_triggers_output_is_the_payload() -> None:
    at = scope(branch(context={"$trigger": {"x": 1}}))
    assert at.lookup("$t") == at.lookup("$trigger") == at.lookup("$input") == {"x": 1}


def test_input_is_what_the_caller_gave_under_that_name() -> None:
    assert scope(branch(context={"$trigger": 1, "$input": 2})).lookup("$input") == 2


@pytest.mark.parametrize(("from_node", "expected"), [("a", "out of a"), ("t", "payload"), (None, "payload")])
def test_json_and_previous_are_the_output_of_the_node_before(from_node: str | None, expected: str) -> None:
    at = scope(branch(context={"$trigger": "payload", "$a": "out of a"}, from_node=from_node))
    assert at.lookup("$json") == at.lookup("$previous") == expected
    assert msgspec.json.decode(at.previous()) == expected


def wrote(node: str, of: Branch) -> Branch:
    """The branch, `$json` in it being what this node left."""
    context = Context(of.context.own, of.context.shared, of.context.refs, writers=(node, ""))
    return msgspec.structs.replace(of, context=context)


def test_json_is_the_working_payload_where_there_is_one() -> None:
    context = {"$json": [1, 2], "$a": {"$json": [1, 2], "count": 2}, "$b": "other"}
    after_edit = scope(wrote("a", branch(context=context, from_node="a")))
    assert after_edit.lookup("$json") == after_edit.lookup("$previous") == [1, 2]
    assert msgspec.json.decode(after_edit.previous()) == [1, 2]
    later = scope(wrote("a", branch(context=context, from_node="b")))
    assert (later.lookup("$json"), later.lookup("$previous")) == ([1, 2], "other")


def test_index_and_items_are_those_of_the_enclosing_fan_outs() -> None:
    inner = branch(
        context={"$item": "inner"},
        shared={"$item.0": "outer"},
        lineage=(frame("s", 4), frame("u", 7, "b2")),
    )
    at = scope(inner)
    assert (at.lookup("$index"), at.lookup("$item"), at.lookup("$items")) == (7, "inner", ["outer", "inner"])


def test_outside_a_fan_out_there_is_no_index_and_there_are_no_items() -> None:
    at = scope(branch())
    assert at.lookup("$items") == []
    for name in ("$index", "$item"):
        with pytest.raises(KeyError):
            at.lookup(name)


def test_the_execution_and_the_workflow_have_ids() -> None:
    at = scope(branch())
    assert at.lookup("$execution") == {"id": "exec"}
    assert at.lookup("$workflow") == {"id": "wf", "name": "wf"}


def test_stored_values_are_read_like_any_other() -> None:
    ref = Ref("h", 9)
    at = scope(Branch("s", (), Context({}, refs=(ref,)), from_node="a"), {ref: Layer(raws({"$a": 5}))})
    assert at.lookup("$a") == at.lookup("$json") == 5
    assert "$a" in set(at.names())


def test_names_are_what_can_be_looked_up() -> None:
    of = branch(context={"$trigger": 1, "$item": 2}, lineage=(frame("s", 0),))
    names = set(scope(of).names())
    assert {"$trigger", "$item", "$json", "$previous", "$input", "$index", "$execution"} <= names
    for name in names:
        scope(of).lookup(name)


def wanted(*names: str, at: Branch) -> set[str]:
    return set(context_names(frozenset(names), FLOW, at)) - set(names)


def test_names_that_stand_for_others_ask_for_those_too() -> None:
    after_a = branch(from_node="a", lineage=(frame("s", 0), frame("u", 0, "b2")))
    assert wanted("$json", at=after_a) == wanted("$previous", at=after_a) == {"$a"}
    assert wanted("$json", at=branch(from_node="t")) == wanted("$input", at=branch()) == {"$trigger"}
    assert wanted("$t", at=branch()) == {"$trigger"}
    assert wanted("$items", at=after_a) == {"$item.0", "$item"}
    assert wanted("$a", "$index", at=after_a) == set()


def test_the_output_before_has_a_name_of_its_own() -> None:
    assert [output_name(FLOW, id) for id in ("a", "t", None, "gone")] == ["$a", *["$trigger"] * 3]


values = st.none() | st.integers() | st.text() | st.lists(st.integers())


@given(values, values)
def test_a_payload_is_unwrapped_raw_and_decoded_alike(payload: Any, other: Any) -> None:
    output = {"$json": payload, "other": other}
    of = wrote("a", branch(context={"$a": output}, from_node="a"))
    assert msgspec.json.decode(unwrapped(raw(output))) == payload
    assert scope(of).lookup("$previous") == msgspec.json.decode(scope(of).previous()) == payload


@given(values | st.dictionaries(st.sampled_from(["$json", "a", "b"]), values))
def test_data_that_looks_like_a_payload_stays_data(output: Any) -> None:
    of = branch(context={"$a": output}, from_node="a")
    assert scope(of).lookup("$previous") == msgspec.json.decode(scope(of).previous()) == output
