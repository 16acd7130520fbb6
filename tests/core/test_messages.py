"""The messages on the wire: what others write by hand runs, what Rune writes comes back as it was."""

from __future__ import annotations

import contextlib
import string
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from rune.core.context import Ref
from rune.core.errors import ErrorInfo, MessageError
from rune.core.messages import (
    NULL,
    CompletionMessage,
    Frame,
    NodeStatusMessage,
    Task,
    Twig,
    branches_of,
    decode_task,
    encode,
    scope_of,
)
from tests.core.graphs import plain, raw, raws

RFC_001: dict[str, Any] = {
    "workflow_id": "wf_email_notification",
    "execution_id": "exec_20251009_123456",
    "current_node": "http_fetch_user",
    "workflow_definition": {"nodes": [{"id": "http_fetch_user"}], "edges": []},
    "accumulated_context": {"$trigger": {"user_id": "user_123", "timestamp": "2025-10-09T12:34:56Z"}},
}
RFC_004: dict[str, Any] = {
    "workflow_id": "wf",
    "execution_id": "exec_123",
    "current_node": "process_order_item",
    "workflow_definition": {},
    "accumulated_context": {},
    "lineage_stack": [
        {"split_node_id": "users", "branch_id": "exec_123_users_5", "item_index": 5, "total_items": 100},
        {"split_node_id": "orders", "branch_id": "exec_123_orders_2", "item_index": 2, "total_items": 5},
    ],
}
"""RFC 004 §3.1, with the required fields of RFC 001 filled in."""


def read(message: dict[str, Any]) -> Task:
    return decode_task(msgspec.json.encode(message))


# --- written by hand ---


def test_a_message_with_exactly_the_fields_of_rfc_001_is_read() -> None:
    task = read(RFC_001)
    assert (task.workflow_id, task.current_node, task.phase) == (
        "wf_email_notification",
        "http_fetch_user",
        "run",
    )
    assert plain(task.workflow_definition) == RFC_001["workflow_definition"]
    assert plain(task.accumulated_context) == RFC_001["accumulated_context"]
    assert plain(task) == RFC_001


def test_a_lineage_of_rfc_004_and_the_from_node_of_rfc_005_are_read() -> None:
    task = read({**RFC_004, "from_node": "fetch"})
    (branch,) = branches_of(task)
    assert branch.from_node == "fetch"
    assert [(frame.split_node_id, frame.item_index, frame.total_items) for frame in branch.lineage] == [
        ("users", 5, 100),
        ("orders", 2, 5),
    ]
    assert plain(task) == {**RFC_004, "from_node": "fetch"}


def test_fields_nobody_knows_are_ignored() -> None:
    assert read({**RFC_001, "trace_id": "t", "lineage_stack": []}) == read(RFC_001)


def test_what_is_null_is_empty_or_not_there() -> None:
    empty = {**RFC_001, "accumulated_context": {}}
    assert read({**empty, "lineage_stack": None, "from_node": None, "step": None}) == read(empty)
    assert read({**empty, "accumulated_context": None, "lineage_stack": None}) == read(empty)


def test_a_branch_written_by_hand_gets_the_same_names_each_time() -> None:
    (one,), (again,) = branches_of(read(RFC_004)), branches_of(read(RFC_004))
    assert (one.step, one.lineage) == (again.step, again.lineage)
    assert one.step
    assert all(frame.barrier for frame in one.lineage)


def test_items_written_by_hand_share_the_barriers_of_the_items_around_them() -> None:
    def lineage(outer: int, inner: int) -> tuple[Frame, ...]:
        stack = [dict(frame) for frame in RFC_004["lineage_stack"]]
        stack[0]["item_index"], stack[1]["item_index"] = outer, inner
        return branches_of(read({**RFC_004, "lineage_stack": stack}))[0].lineage

    one, sibling, cousin = lineage(5, 2), lineage(5, 3), lineage(6, 2)
    assert one[0].barrier == sibling[0].barrier == cousin[0].barrier
    assert one[1].barrier == sibling[1].barrier != cousin[1].barrier
    assert scope_of(one) != scope_of(sibling)


# --- refused ---


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\x00\xff",
        b'{"workflow_id": "wf"}',
        b'{"workflow_id": "\xff"}',
        msgspec.json.encode({**RFC_001, "execution_id": 5}),
        msgspec.json.encode({**RFC_001, "accumulated_context": []}),
        msgspec.json.encode({**RFC_001, "phase": "fly"}),
        msgspec.json.encode({**RFC_001, "phase": "fly", "lineage_stack": None}),
        msgspec.json.encode({**RFC_001, "execution_id": None}),
        msgspec.json.encode({**RFC_001, "lineage_stack": [{}]}),
        msgspec.json.encode({**RFC_001, "twigs": [["step"]]}),
        msgspec.json.encode(RFC_001)[:-1],
        msgspec.json.encode(RFC_001) + b"}",
    ],
)
def test_bytes_that_are_no_task_are_a_message_error(data: bytes) -> None:
    with pytest.raises(MessageError, match="not a NodeExecutionMessage"):
        decode_task(data)


def test_a_message_nested_beyond_reason_is_a_message_error() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(MessageError):
        decode_task(msgspec.json.encode({**RFC_001, "accumulated_context": {"$a": Raw(deep)}}))


def test_a_value_that_is_not_utf_8_is_a_message_error_before_anybody_reads_it() -> None:
    with pytest.raises(MessageError):
        decode_task(msgspec.json.encode({**RFC_001, "accumulated_context": {"$a": Raw(b'"\xff"')}}))


def test_a_batch_without_a_lineage_is_a_message_error() -> None:
    with pytest.raises(MessageError):
        branches_of(read({**RFC_001, "twigs": [["step", 0, {}]]}))


@pytest.mark.parametrize("field", ["workflow_id", "execution_id"])
@pytest.mark.parametrize("id", ["", "a b", "a/b", "ü", "{a}", "a\n", "\na", "x" * 201])
def test_an_id_is_of_letters_digits_dashes_and_underscores(field: str, id: str) -> None:
    with pytest.raises(MessageError, match=field):
        read({**RFC_001, field: id})


@pytest.mark.parametrize("id", ["a", "-", "_", "Wf-1_b", "x" * 200])
def test_other_ids_are_taken(id: str) -> None:
    assert read({**RFC_001, "workflow_id": id}).workflow_id == id


# --- there and back ---

texts = st.text(max_size=10)
ids = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=20)
indexes = st.integers(0, 2**40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
contexts = st.dictionaries(texts.map("${}".format), values.map(raw), max_size=3)
frames = st.builds(Frame, ids, indexes, texts, st.none() | indexes, ids, texts, texts)
twigs = st.builds(Twig, ids, indexes, contexts, texts, texts)
tasks = st.builds(
    Task,
    workflow_id=ids,
    execution_id=ids,
    current_node=texts,
    workflow_definition=values.map(raw),
    accumulated_context=contexts,
    lineage_stack=st.lists(frames, min_size=1, max_size=3).map(tuple),
    from_node=st.none() | ids,
    definition=texts,
    step=texts,
    edge=texts,
    path=st.sampled_from(["", ".0", ".1.2"]),
    refs=st.lists(st.builds(Ref, ids, indexes, texts), max_size=2).map(tuple),
    twigs=st.lists(twigs, max_size=3).map(tuple),
    phase=st.sampled_from(["run", "wake", "gather", "expire", "refill", "cancel"]),
    attempt=st.integers(1, 1000),
    cursor=st.none() | st.tuples(indexes, indexes),
    entry=texts,
    started_at=st.floats(0, 2e9),
    priority=st.integers(0, 10),
    details=values.map(raw),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(tasks)
def test_a_task_comes_back_as_it_was_sent(task: Task) -> None:
    assert decode_task(encode(task)) == task


@given(st.binary())
def test_no_bytes_raise_anything_but_a_message_error(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        decode_task(data)


def test_what_is_absent_does_not_travel() -> None:
    task = Task(workflow_id="w", execution_id="e", current_node="n", accumulated_context={})
    keys = ["workflow_id", "execution_id", "current_node", "accumulated_context"]
    assert list(plain(task)) == keys
    assert decode_task(encode(task)).details == NULL


# --- batches ---


def test_a_batch_is_one_branch_for_each_twig() -> None:
    task = Task(
        workflow_id="w",
        execution_id="e",
        current_node="n",
        accumulated_context=raws({"$a": 1, "$b": 1}),
        lineage_stack=(
            Frame("outer", 4, "e_outer_4", 9, "b0"),
            Frame("inner", -1, "e_outer_4_inner", 3, "b1"),
        ),
        from_node="inner",
        edge="inner-n",
        path=".1",
        refs=(Ref("h", 9),),
        twigs=(
            Twig("s0", 0, raws({"$item": "x", "$b": 2}), "first", "k0"),
            Twig("s2", 2, raws({"$item": "z"})),
        ),
    )
    first, second = branches_of(decode_task(encode(task)))
    assert (first.step, second.step) == ("s0", "s2")
    assert first.lineage == (
        Frame("outer", 4, "e_outer_4", 9, "b0"),
        Frame("inner", 0, "e_outer_4_inner_0", 3, "b1", "first", "k0"),
    )
    assert second.lineage[-1] == Frame("inner", 2, "e_outer_4_inner_2", 3, "b1")
    assert plain(first.context.inline()) == {"$a": 1, "$b": 2, "$item": "x"}
    assert plain(second.context.inline()) == {"$a": 1, "$b": 1, "$item": "z"}
    for branch in (first, second):
        assert (branch.path, branch.from_node, branch.edge) == (".1", "inner", "inner-n")
        assert branch.context.refs == (Ref("h", 9),)
    assert first.context.shared is second.context.shared


def test_a_step_that_has_a_name_keeps_it() -> None:
    (branch,) = branches_of(read({**RFC_001, "step": "s1", "path": ".0", "edge": "e1"}))
    assert (branch.step, branch.path, branch.edge) == ("s1", ".0", "e1")


# --- the other messages ---


def test_a_status_has_the_fields_of_rfc_001() -> None:
    status = NodeStatusMessage(
        workflow_id="w",
        execution_id="e",
        node_id="n",
        status="failed",
        error=ErrorInfo("no", "HTTP_TIMEOUT", {"url": "u"}),
        executed_at="2025-10-09T12:35:30Z",
        duration_ms=30000,
    )
    assert msgspec.json.decode(encode(status)) == {
        "workflow_id": "w",
        "execution_id": "e",
        "node_id": "n",
        "status": "failed",
        "error": {"message": "no", "code": "HTTP_TIMEOUT", "details": {"url": "u"}},
        "executed_at": "2025-10-09T12:35:30Z",
        "duration_ms": 30000,
    }


def test_a_completion_has_the_fields_of_rfc_001() -> None:
    completion = CompletionMessage(
        workflow_id="w",
        execution_id="e",
        status="completed",
        final_context=raws({"$trigger": {}}),
        completed_at="2025-10-09T12:35:45Z",
        total_duration_ms=4523,
    )
    assert msgspec.json.decode(encode(completion)) == {
        "workflow_id": "w",
        "execution_id": "e",
        "status": "completed",
        "final_context": {"$trigger": {}},
        "completed_at": "2025-10-09T12:35:45Z",
        "total_duration_ms": 4523,
    }
