"""Statuses in portions: as many, and as much that they refer to, as can be held."""

from __future__ import annotations

from rune.core.context import Ref
from rune.core.messages import NodeStatusMessage, Sets
from rune.core.playbook.references import result_ref
from rune.core.references import reference
from rune.master.portions import portions, referred
from tests.history.statuses import status

A, B = "a" * 40, "b" * 40


def large(step: str, size: int) -> NodeStatusMessage:
    """A step with an output that is stored elsewhere."""
    return status(step, "success", output_ref=Ref(f"{step:0>40}", size))


def split(messages: list[NodeStatusMessage], many: int = 1_000, size: int = 100) -> list[list[str | None]]:
    """The steps in each portion."""
    return [[message.step for message in portion.messages] for portion in portions(messages, many, size)]


def test_there_is_always_a_last_portion() -> None:
    assert split([]) == [[]]
    assert split([status("a")]) == [["a"]]


def test_a_portion_has_so_many_messages() -> None:
    assert split([status(str(n)) for n in range(5)], many=2) == [["0", "1"], ["2", "3"], ["4"]]


def test_a_portion_refers_to_so_many_bytes_unless_one_message_does_to_more() -> None:
    sizes = {"1": 60, "2": 40, "3": 1, "4": 500, "5": 100, "6": 0}
    messages = [large(step, size) for step, size in sizes.items()]
    assert split(messages) == [["1", "2"], ["3"], ["4"], ["5", "6"]]


def test_a_status_refers_to_what_its_output_and_its_variables_name() -> None:
    named = {"big": result_ref(reference(A), b"[1]", [1])}
    message = status("a", "success", output=named, sets=Sets(1, ref=Ref(B, 70_000)))
    assert referred(message) == {A: 3, B: 70_000}
    (portion,) = portions([message, status("b", "success", output=1)], 10, 100_000)
    assert portion.refs == {"exec_1": {A, B}}
    assert portion.weight == len(bytes(message.output or b"")) + 1
