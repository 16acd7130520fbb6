"""What an execution has come to: the outputs after which there are no others."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from rune.core.workflow import Workflow

__all__ = ["final_output", "ordered", "payload_of"]


def final_output(context: Mapping[str, Raw], flow: Workflow) -> Raw:
    """What the last nodes that ran gave: the output of one, or those of several by node."""
    values = {id: payload_of(context[f"${id}"]) for id in _last(context, flow)}
    return next(iter(values.values())) if len(values) == 1 else Raw(msgspec.json.encode(values))


def _last(context: Mapping[str, Raw], flow: Workflow) -> list[str]:
    """The nodes with an output after which no other has one."""
    last: list[str] = []
    passed: set[str] = set()
    for id in reversed(ordered(flow)):
        later = any(edge.dst in passed for edge in flow.outgoing[id])
        if f"${id}" in context and not later:
            last.append(id)
        if later or f"${id}" in context:
            passed.add(id)
    return last[::-1]


def payload_of(output: Raw) -> Raw:
    """The working payload itself, where an output is nothing else."""
    if not bytes(output).lstrip().startswith(b'{"$json"'):
        return output
    fields = msgspec.json.decode(output, type=dict[str, Raw])
    return fields["$json"] if list(fields) == ["$json"] else output


def ordered(flow: Workflow) -> list[str]:
    """The nodes from first to last, each branch in one piece where that can be."""
    found: list[str] = []
    seen: set[str] = set()
    for start in reversed(list(flow.nodes)):
        if not flow.incoming[start]:
            _descend(flow, start, seen, found)
    return found[::-1]


def _descend(flow: Workflow, start: str, seen: set[str], found: list[str]) -> None:
    """Add what follows `start`, deepest first, without recursion: a chain may be thousands long."""
    seen.add(start)
    stack = [(start, iter(reversed(flow.outgoing[start])))]
    while stack:
        id, edges = stack[-1]
        edge = next((edge for edge in edges if edge.dst not in seen), None)
        if edge is None:
            found.append(id)
            stack.pop()
        else:
            seen.add(edge.dst)
            stack.append((edge.dst, iter(reversed(flow.outgoing[edge.dst]))))
