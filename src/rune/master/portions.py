"""Statuses in portions whose values can be held in memory: what is large they only refer to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Raw, Struct

from rune.core.context import Ref
from rune.core.messages import NodeStatusMessage
from rune.core.playbook.references import results_in

__all__ = ["Portion", "portions", "referred"]


class Portion(Struct, eq=False):
    """Some statuses, and what they refer to."""

    messages: list[NodeStatusMessage] = []
    refs: dict[str, set[str]] = {}
    """The hashes of the values, by execution."""
    weight: int = 0
    """Bytes of outputs and variables that are in the messages themselves."""


def portions(messages: Iterable[NodeStatusMessage], many: int, size: int) -> Iterator[Portion]:
    """Up to `many` messages each, which refer to up to `size` bytes if they are more than one.

    There is always a last portion: an empty one, if there are no messages.
    """
    portion, held = Portion(), 0
    for message in messages:
        sizes = referred(message)
        more = sum(sizes.values())
        if portion.messages and (len(portion.messages) >= many or held + more > size):
            yield portion
            portion, held = Portion(), 0
        portion.messages.append(message)
        portion.weight += _carried(message)
        held += more
        if sizes:
            portion.refs.setdefault(message.execution_id, set()).update(sizes)
    yield portion


def referred(message: NodeStatusMessage) -> dict[str, int]:
    """The values that a status refers to: their sizes, as far as they are known, by hash."""
    named = _named(message.output, message.output_ref)
    return named if message.sets is None else named | _named(message.sets.values, message.sets.ref)


def _named(raw: Raw | None, ref: Ref | None) -> dict[str, int]:
    if ref is not None:
        return {ref.hash: ref.size}
    return results_in(bytes(raw)) if raw is not None else {}


def _carried(message: NodeStatusMessage) -> int:
    """The bytes of the output and the variables that are in a status."""
    values = (message.output, message.sets.values if message.sets is not None else None)
    return sum(len(bytes(raw)) for raw in values if raw is not None)
