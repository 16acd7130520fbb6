"""What happened in a playbook, in the playbook's own words: a projection of the engine's log of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from rune.core.playbook.identity import identity_of, step_of
from rune.history.events import Event

__all__ = ["Taxonomy"]


class Taxonomy:
    """Tells each event of the log as none, one or several events of the playbook.

    `types` are the types of the nodes that the playbook became, `keys` what the shards call their elements.
    """

    def __init__(self, types: Mapping[str, str], keys: Mapping[tuple[str, int], str]) -> None:
        self._types = types
        self._keys = keys
        self._tellers = {
            "playbook.pipeline": self._pipeline,
            "playbook.enter": self._enter,
            "playbook.open": self._open,
            "playbook.shard": self._shard,
            "playbook.join": self._join,
        }

    def told(self, event: Event) -> list[Event]:
        """One event of the engine in the words of the playbook."""
        if not event.node:
            kind = "started" if event.kind == "running" else event.kind
            return [replace(event, kind=f"playbook.{kind}")]
        tell = self._tellers.get(self._types.get(event.node, ""))
        step = step_of(event.node)
        if tell is None:
            return []
        # That all tokens live in one item of a split is the engine's business.
        barrier, item = (event.barrier, event.item) if tell == self._shard else ("", None)
        return [replace(one, node=step, barrier=barrier, item=item) for one in tell(event)]

    def _pipeline(self, event: Event) -> Iterator[Event]:
        if event.kind == "running":
            yield replace(event, kind="step.started")
        elif event.kind in ("success", "failed"):
            details = dict(event.details or {})
            yield from _tasks(event, {})
            yield _ended(event, details)

    def _enter(self, event: Event) -> Iterator[Event]:
        details = event.details or {}
        if event.kind == "running":
            yield replace(event, kind="step.started")
        elif "event" in details or event.kind == "failed":
            yield _ended(event, details)

    def _open(self, event: Event) -> Iterator[Event]:
        if event.kind == "success":
            count = (event.details or {}).get("count")
            details = {"loop_id": event.step, "shards": count}
            yield replace(event, kind="loop.fanout.started", details=details)
        elif event.kind == "failed":
            yield _ended(event, {})

    def _shard(self, event: Event) -> Iterator[Event]:
        details = event.details or {}
        identity = self._identity(event)
        if event.kind == "running":
            if event.attempt == 1:
                yield replace(event, kind="loop.shard.enqueued", at=_since(event), details=identity)
            yield replace(event, kind="loop.shard.started", details=identity)
        elif event.kind in ("success", "failed"):
            yield from _tasks(event, identity)
            if "retry_at" in details:
                again = {**identity, "retry_at": details["retry_at"]}
                yield replace(event, kind="loop.shard.enqueued", attempt=event.attempt + 1, details=again)
            else:
                kind = "loop.shard.done" if event.kind == "success" else "loop.shard.failed"
                yield replace(event, kind=kind, details=identity)

    def _join(self, event: Event) -> Iterator[Event]:
        details = event.details or {}
        if event.kind in ("success", "failed") and "fanin" in details:
            about = {"loop_id": details["loop_id"], **details["fanin"]}
            yield replace(event, kind="loop.fanin.completed", details=about)
            yield _ended(event, {"loop_id": details["loop_id"], "event": details["event"]})

    def _identity(self, event: Event) -> dict[str, Any]:
        index = event.item or 0
        return identity_of(event.barrier, index, self._keys.get((event.barrier, index), ""))


def _ended(event: Event, details: Mapping[str, Any]) -> Event:
    """How a step ended, as its arcs are asked about it."""
    kind = details.get("event") or ("step.failed" if event.kind == "failed" else "step.done")
    rest = {name: value for name, value in details.items() if name not in ("event", "tasks", "working")}
    return replace(event, kind=kind, details=rest or None)


def _tasks(event: Event, identity: Mapping[str, Any]) -> Iterator[Event]:
    """The tasks that a step ran, each as it started and as it was done."""
    for task in (event.details or {}).get("tasks", ()):
        about = {**identity, "task": task["task"], "tool": task["kind"]}
        started = replace(event, attempt=task["attempt"], duration_ms=0, error=None)
        yield replace(started, kind="task.started", at=task["at"], details=about)
        yield replace(
            started,
            kind="task.processed",
            at=task["at"] + task["duration_ms"] / 1000,
            duration_ms=task["duration_ms"],
            details={**about, "status": task["status"]},
        )


def _since(event: Event) -> float:
    """When a shard that has started was put into the queue."""
    queued = (event.details or {}).get("queued_at")
    return datetime.fromisoformat(queued).timestamp() if queued else event.at
