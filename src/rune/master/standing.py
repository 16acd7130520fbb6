"""Which steps of an earlier execution stand, and as what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rune.core.context import Ref
from rune.core.ids import content_hash
from rune.core.messages import scope_of
from rune.core.node import Role
from rune.core.operations import Seed
from rune.core.outcome import Done, Failed, Sleep
from rune.core.playbook.routing import END
from rune.core.scope import unwrapped
from rune.core.workflow import Workflow
from rune.engine.values import LARGE
from rune.history.executions import Execution
from rune.history.steps import StepRecord

__all__ = ["LABEL", "Selection", "Wish", "behind", "seed_of", "wish_of"]

LABEL = "redrive"
"""The label that says what an execution was made for, so that it can be started again."""
_MEANING = ("type", "parameters", "credentials", "error", "retry", "output", "pool", "trigger")
"""What of a node, as written, decides what it does."""


class Wish(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is to run again: if nothing is said, all that failed and was not dealt with by the workflow."""

    fork: str = ""
    """This node and all that lies behind it, whatever came of them."""
    node: str = ""
    """Of what failed in items, only steps of this node."""
    barrier: str = ""
    """Of what failed in items, only items of this split."""
    items: tuple[int, ...] | None = None
    """Only these of them."""
    edits: dict[int, Raw] = {}
    """Items of the split that become others, and run again from their beginning."""
    edited: dict[str, dict[int, Raw]] = {}
    """What earlier redrives made of items, by barrier: it holds from then on."""
    given: bool = False
    """The input is another."""

    def all_edits(self) -> dict[str, dict[int, Raw]]:
        """What becomes of items, by barrier."""
        own = {self.barrier: {**self.edited.get(self.barrier, {}), **self.edits}} if self.edits else {}
        return {**self.edited, **own}


def wish_of(execution: Execution) -> Wish:
    """What an execution was made for; nothing, if it was not made of another."""
    label = execution.labels.get(LABEL)
    return Wish() if label is None else msgspec.json.decode(label, type=Wish)


class Selection:
    """Says which steps stand, one at a time."""

    def __init__(self, wish: Wish, flow: Workflow, before: bytes) -> None:
        """`before` is the definition that the steps ran under."""
        self._wish = wish
        self._items = None if wish.items is None else frozenset(wish.items)
        changed = _changed(before, flow)
        self.again = {id for id in flow.nodes if id in changed} | behind(flow, wish.fork)
        """The nodes all of whose steps run again."""
        self.late: frozenset[str] = frozenset()
        """The nodes behind any that run again, where it matters that they come to be met only later."""
        self._flow = flow

    def stands(self, step: StepRecord) -> bool:
        """Whether a step has an outcome that is to be kept.

        What a pure node gives is computed again, rather than kept: so it is out of the question here.
        """
        node = self._flow.nodes.get(step.node_id)
        if node is None or node.id in self.again or node.deterministic or node.role is not Role.PLAIN:
            return False
        if self._is_edited(step) or (node.id in self.late and _was_skipped(step)):
            return False
        if step.status == "failed":
            return self._failure_stands(step, handled=node.error.type != "halt" or _went_on(step))
        return step.status == "success" or _rests(step)

    def _is_edited(self, step: StepRecord) -> bool:
        edits, barrier = self._wish.edits, self._wish.barrier
        return any(frame.barrier == barrier and frame.item_index in edits for frame in step.lineage)

    def _failure_stands(self, step: StepRecord, *, handled: bool) -> bool:
        wish = self._wish
        if wish.node == step.node_id:
            return False
        if handled:
            return True
        # What fails the whole execution would do so again.
        if not step.lineage or not (wish.node or wish.barrier):
            return False
        return not (wish.barrier and self._is_chosen(step))

    def _is_chosen(self, step: StepRecord) -> bool:
        barrier, items = self._wish.barrier, self._items
        return any(
            frame.barrier == barrier and (items is None or frame.item_index in items)
            for frame in step.lineage
        )


def behind(flow: Workflow, node: str) -> set[str]:
    """A node, and all that can be reached from it."""
    seen = {node} & flow.nodes.keys()
    todo = list(seen)
    while todo:
        for edge in flow.outgoing[todo.pop()]:
            if edge.dst not in seen:
                seen.add(edge.dst)
                todo.append(edge.dst)
    return seen


def _changed(before: bytes, flow: Workflow) -> set[str]:
    """The nodes that are not what they were; all of them where the definition has no list of nodes."""
    if before == flow.definition:
        return set()
    old, new = _written(before), _written(flow.definition)
    return {id for id in flow.nodes if id not in old or id not in new or old[id] != new[id]}


def _written(definition: bytes) -> dict[str, Any]:
    written = msgspec.json.decode(definition)
    nodes = written.get("nodes")
    if not isinstance(nodes, list):
        return {}
    # One that calls is another if what it calls is.
    called = written.get("workflows") or {}
    return {
        node["id"]: {
            **{name: node.get(name) for name in _MEANING},
            "called": [called.get(value) for value in _texts(node.get("parameters"))],
        }
        for node in nodes
    }


def _texts(parameters: Any) -> list[str]:
    values = parameters.values() if isinstance(parameters, dict) else ()
    return [value for value in values if isinstance(value, str)]


def _went_on(step: StepRecord) -> bool:
    """Whether a node that failed found a port to go on along by itself."""
    return (step.output is not None or step.output_hash is not None) and step.port != END


def _was_skipped(step: StepRecord) -> bool:
    """Whether a step of a playbook did nothing, for what it found among the variables."""
    return (step.details or {}).get("event") == "step.skipped"


def _rests(step: StepRecord) -> bool:
    """Whether a branch was asleep in the step until some time."""
    return (
        step.status in ("waiting", "stopped")
        and step.output is not None
        and isinstance((step.details or {}).get("resume_at"), str)
    )


# --- outcomes ---


def seed_of(step: StepRecord, outputs: Mapping[str, bytes], *, late: bool = False) -> Seed | None:
    """What stands of a step; None if its output is not to be had, so that it runs again.

    The variables that one set which comes `late` are set when it does.
    """
    place = scope_of(step.lineage)
    if step.status == "failed" and not _went_on(step):
        if step.error is None:
            return None
        return Seed(step.step, place, msgspec.json.encode(Failed(step.error, reused=True)))
    output = _value(step.output, step.output_hash, outputs)
    sets = _value(step.sets, step.sets_hash, outputs)
    if output is None or (sets is None and step.turn is not None):
        return None
    if step.status in ("waiting", "stopped"):
        until = datetime.fromisoformat((step.details or {})["resume_at"]).timestamp()
        return Seed(step.step, place, msgspec.json.encode(Sleep(until, output)))
    details = dict(step.details or {})
    working = bool(details.pop("working", False))
    details.pop("reused", None)
    variables = msgspec.json.decode(sets, type=dict[str, Raw]) if sets is not None else {}
    done = Done(
        output,
        _port(step.port),
        working,
        reused=True,
        error=step.error,
        details=details or None,
        sets=variables or None,
    )
    values: dict[str, bytes] = {}
    if len(bytes(output)) > LARGE:
        done, values = _stored(step, done)
    if sets is not None and len(bytes(sets)) > LARGE:
        values[content_hash(bytes(sets))] = bytes(sets)
    return Seed(
        step.step,
        place,
        msgspec.json.encode(done),
        values,
        tuple((name, bytes(value)) for name, value in variables.items()),
        0 if late else step.turn or 0,
    )


def _value(raw: Raw | None, hash: str | None, found: Mapping[str, bytes]) -> Raw | None:
    """A value that is with its step, or else among those that were found."""
    if raw is not None or hash is None or hash not in found:
        return raw
    return Raw(found[hash])


def _port(port: str | None) -> str | tuple[str, ...] | None:
    return tuple(port.split(",")) if port is not None and "," in port else port


def _stored(step: StepRecord, done: Done) -> tuple[Done, dict[str, bytes]]:
    """A large outcome as the engine keeps it: by reference."""
    data = {f"${step.node_id}": bytes(done.output)}
    if done.working:
        data["$json"] = bytes(unwrapped(done.output))
    refs = tuple(Ref(content_hash(value), len(value), key) for key, value in data.items())
    values = {ref.hash: data[ref.key] for ref in refs}
    return msgspec.structs.replace(done, output=None, refs=refs), values
