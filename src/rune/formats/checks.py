"""What is wrong with a graph as a whole: ways that lead round, nowhere, or into and out of splits at once."""

from __future__ import annotations

from collections.abc import Iterable

from rune.core.node import Role
from rune.core.paths import Scoping, cycle, scoping
from rune.core.workflow import Workflow
from rune.formats.shape import Problems, RawWorkflow

__all__ = ["MAX_PATHS", "check_joins", "check_ways"]

MAX_PATHS = 1_000_000
"""Arrivals that one merge may have to expect."""


def check_ways(flow: Workflow, raw: RawWorkflow, problems: Problems) -> bool:
    """Cycles, entries and what they reach; whether the graph is one that joins can be counted on."""
    where = {node.id: node.path for node in raw.nodes}
    if not flow.nodes:
        problems.error("E023", "the workflow has no nodes", ("nodes",))
        return False
    round_trip = cycle(flow)
    if round_trip:
        at = round_trip.index(next(id for id in flow.nodes if id in round_trip))
        round_trip = round_trip[at:] + round_trip[:at]
        way = " → ".join([*round_trip, round_trip[0]])
        problems.error("E022", f"the workflow goes round in a cycle: {way}", where[round_trip[0]])
        return False
    if not flow.entries:
        problems.error("E023", "nothing follows the trigger: there is no node to start with", ("nodes",))
        return False
    reached = reachable(flow, flow.entries)
    for node in flow.nodes.values():
        if node.trigger and flow.incoming[node.id]:
            message = f"trigger {node.id!r} has edges into it, but an execution begins behind it"
            problems.warn("W008", message, where[node.id])
        if node.id not in reached and not node.trigger:
            problems.warn("W004", f"nothing leads to {node.id!r}: it never runs", where[node.id])
    return True


def check_joins(flow: Workflow, raw: RawWorkflow, problems: Problems) -> None:
    """Splits, aggregators and merges of a graph without cycles."""
    where = {node.id: node.path for node in raw.nodes}
    found = scoping(flow)
    for id in found.unopened:
        problems.error("E027", f"{id!r} gathers the items of a split, but stands in none", where[id])
    for split, first, second in found.doubled:
        message = f"{first!r} and {second!r} both gather the items of split {split!r}"
        problems.error("E028", message, where[second], "let both ways meet before one aggregator")
    for id, one, other in found.clashes:
        message = (
            f"{id!r} is reached at two depths of splits: "
            f"by {_way(found, one, id)} ({_depth(flow, found, one)}) "
            f"and by {_way(found, other, id)} ({_depth(flow, found, other)})"
        )
        problems.error("E029", message, where[id])
    if found.unopened or found.doubled or found.clashes:
        return
    for id, expected in flow.paths().expected.items():
        node = flow.nodes[id]
        if expected > MAX_PATHS:
            message = f"merge {id!r} would wait for {_large(expected)} arrivals, more than {MAX_PATHS:,}"
            problems.error("E030", message, where[id], "merge earlier on the way")
        elif len(flow.incoming[id]) < 2:
            problems.warn(
                "W002", f"merge {id!r} has only one edge into it: there is nothing to join", where[id]
            )
        need = node.parameters.constant.need() if node.parameters and node.parameters.constant else None
        if need is not None and need > expected:
            message = f"merge {id!r} waits for {need} arrivals, but at most {_large(expected)} can come"
            problems.error("E035", message, (*where[id], "parameters"))


def reachable(flow: Workflow, start: Iterable[str]) -> set[str]:
    """The nodes that edges lead to from `start`, with these."""
    seen = set(start)
    todo = list(seen)
    while todo:
        for edge in flow.outgoing[todo.pop()]:
            if edge.dst not in seen:
                seen.add(edge.dst)
                todo.append(edge.dst)
    return seen


def _way(found: Scoping, last: str, id: str) -> str:
    """The first way that was found to `last`, and on to `id`; a long one without its middle."""
    way = [last]
    while way[-1] in found.via:
        way.append(found.via[way[-1]])
    way.reverse()
    if len(way) > 6:
        way = [*way[:2], "…", *way[-3:]]
    return " → ".join([*way, id])


def _depth(flow: Workflow, found: Scoping, id: str) -> str:
    scope = found.scope[id]
    role = flow.nodes[id].role
    if role is Role.SPLIT:
        scope = (*scope, id)
    elif role is Role.GATHER:
        scope = scope[:-1]
    return "in " + " in ".join(repr(split) for split in reversed(scope)) if scope else "in no split"


def _large(number: int) -> str:
    return f"{number:,}" if number < 10**12 else "very many"
