"""From items to Tasks: reading a source in chunks, and putting branches into messages of the right size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rune.core.context import Context, Layer, Ref, weight
from rune.core.ids import derive
from rune.core.messages import Branch, Frame, Task, Twig
from rune.core.outcome import IN_FLIGHT, FanOut, Source
from rune.core.step import Step
from rune.core.workflow import Edge
from rune.engine.seeding import edits_of
from rune.engine.values import FAN_OUT_INLINE, Values

__all__ = ["CHUNK", "Items", "pack", "single"]

CHUNK = 4096
"""Items that one Task of a split publishes; it leaves the rest to the next."""
_LARGEST_BATCH = 256
_LARGEST_LEASED = 64
"""The same of items that run side by side: a worker holds those of all its messages at once."""
_BATCH_BYTES = 48 * 1024
_ALONG = 8 * 1024
"""Bytes of a lazy source's description, and of a position in it, that travel with every portion."""

_encode = msgspec.json.Encoder().encode


class _Stored(Struct, omit_defaults=True):
    """A fixed list of items, or a portion of a lazy source, as it is stored."""

    items: list[Raw]
    labels: list[str] | None = None
    keys: list[str] | None = None
    before: str = ""
    """The hash of the portion before this one, for whoever comes late."""
    before_at: int = 0
    """The index of its first item."""


_stored_decoder = msgspec.json.Decoder(_Stored)


class Items:
    """Reads the items of a fan-out and makes their Tasks."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._last: tuple[str, _Stored] | None = None
        """The stored list read last: a fan-out reads its own again and again."""

    async def fixed(self, execution: str, fan_out: FanOut) -> FanOut:
        """The same fan-out, its items stored if one Task cannot publish them all."""
        source = fan_out.source
        if source.lazy is not None:
            data = _encode(source.lazy)
            if len(data) > _ALONG:
                hash = await self._values.store(execution, data)
                source = msgspec.structs.replace(source, lazy={}, lazy_stored=hash)
            return msgspec.structs.replace(fan_out, source=source, window=fan_out.window or IN_FLIGHT)
        if source.items is None or (len(source.items) <= CHUNK and not fan_out.window):
            return fan_out
        data = _encode({"items": source.items, "labels": fan_out.labels, "keys": fan_out.keys})
        stored = Source(stored=await self._values.store(execution, data), stop=len(source.items))
        return msgspec.structs.replace(fan_out, source=stored, labels=None, keys=None)

    async def portion(self, execution: str, fan_out: FanOut) -> FanOut:
        """The same fan-out, the portion of its source that was just read stored behind those before it."""
        source = fan_out.source
        items, known = source.items or [], source.stop
        if items:
            data = _encode(
                {
                    "items": items,
                    "labels": fan_out.labels,
                    "keys": fan_out.keys,
                    "before": source.stored,
                    "before_at": source.at,
                }
            )
            stored = await self._values.store(execution, data)
            source = msgspec.structs.replace(source, stored=stored, at=known, stop=known + len(items))
        position = _encode(source.position)
        if len(position) > _ALONG:
            hash = await self._values.store(execution, position)
            source = msgspec.structs.replace(source, position=None, position_stored=hash)
        source = msgspec.structs.replace(source, items=None)
        return msgspec.structs.replace(fan_out, source=source, labels=None, keys=None)

    async def edited(self, step: Step, fan_out: FanOut) -> FanOut:
        """The same fan-out with the items that were edited before the execution started."""
        source, read = fan_out.source, step.task.phase == "refill"
        if source.items is None and (source.stored or source.lazy is not None):
            # What is stored was edited before; what is read lazily is edited as it is read.
            return fan_out
        split = step.task.step if read else step.branch.step
        edits = await self._values.find(step.task.execution_id, edits_of(split))
        if edits is None:
            return fan_out
        given = range(source.start, source.stop, source.stride) if source.items is None else source.items
        changed = msgspec.json.decode(edits, type=dict[int, Any])
        items = [changed.get(i, item) for i, item in enumerate(given, source.stop if read else 0)]
        edited = msgspec.structs.replace(source, items=items) if read else Source(items=items)
        return msgspec.structs.replace(fan_out, source=edited)

    async def tasks(self, step: Step, fan_out: FanOut, start: int = 0, stop: int | None = None) -> list[Task]:
        """The Tasks of items [start, stop), the last one a Task for the rest if they are many."""
        source = fan_out.source
        total = len(source)
        if stop is None:
            stop = min(total, fan_out.window or total)
        # What an item sees does not depend on how much had been read before it.
        count = Raw(b'{"count":null}') if source.reads else source.count
        rest: list[Task] = []
        node, branch = step.node, step.branch
        context = branch.context.having({f"${node.id}": count})
        if stop - start > 1:
            context = await self._values.fold(step.task.execution_id, context, FAN_OUT_INLINE)
        branch = msgspec.structs.replace(branch, context=context)
        if stop - start > CHUNK:
            cursor = (start + CHUNK, stop)
            stop = start + CHUNK
            details = Raw(_encode(fan_out))
            rest = [step.task_for(node.id, branch, phase="refill", cursor=cursor, details=details)]
        items = await self._read(step.task.execution_id, fan_out, start, stop)
        edges = [edge for edge in step.flow.outgoing[node.id] if not edge.is_error]
        outer = await self._outer(step.task.execution_id, branch)
        known = total if source.lazy is None else None
        children = self._branches(step, branch, items, edges, outer, known, start)
        if any(weight(raw) > FAN_OUT_INLINE for raw in items.items):
            children = await self._values.fold_all(step.task.execution_id, children)
        leased = any(step.flow.nodes[edge.dst].type.effects for edge in edges)
        largest = _LARGEST_LEASED if leased else _LARGEST_BATCH
        tasks = pack(step.task, children, fan_out.batch or _batch_size(total, largest))
        return [*(self._expiring(step, task) for task in tasks), *rest]

    def _expiring(self, step: Step, task: Task) -> Task:
        queue = step.flow.nodes[task.current_node].job.queue
        return msgspec.structs.replace(task, expires=step.now + queue) if queue else task

    async def _read(self, execution: str, fan_out: FanOut, start: int, stop: int) -> _Stored:
        source = fan_out.source
        if source.stored:
            whole, at = await self._stored(execution, source.stored), source.at
            while start < at:
                # Who asks is late: its Task is that of a later portion.
                whole, at = await self._stored(execution, whole.before), whole.before_at
            start, stop = start - at, stop - at
        elif source.items is not None:
            whole = _Stored([Raw(_encode(i)) for i in source.items[start:stop]], fan_out.labels, fan_out.keys)
            return _Stored(whole.items, _cut(whole.labels, start, stop), _cut(whole.keys, start, stop))
        else:
            numbers = range(source.start, source.stop, source.stride)[start:stop]
            return _Stored([Raw(b"%d" % n) for n in numbers])
        return _Stored(
            whole.items[start:stop], _cut(whole.labels, start, stop), _cut(whole.keys, start, stop)
        )

    async def _stored(self, execution: str, hash: str) -> _Stored:
        if self._last is None or self._last[0] != hash:
            data = await self._values.fetch(execution, hash)
            self._last = (hash, _stored_decoder.decode(data))
        return self._last[1]

    async def _outer(self, execution: str, branch: Branch) -> dict[str, Raw]:
        """The enclosing item under a name of its own, so that the new `$item` does not hide it."""
        if not branch.lineage:
            return {}
        layers = await self._values.load(execution, branch.context.needs(frozenset({"$item"})))
        try:
            item = branch.context.raw("$item", layers.__getitem__)
        except KeyError:
            return {}  # A lineage written by hand need not come with its item.
        return {f"$item.{len(branch.lineage) - 1}": item}

    def _branches(
        self,
        step: Step,
        branch: Branch,
        items: _Stored,
        edges: Sequence[Edge],
        outer: dict[str, Raw],
        total: int | None,
        start: int,
    ) -> list[tuple[Edge, Branch]]:
        node, barrier = step.node.id, branch.step
        above = branch.lineage[-1].branch_id if branch.lineage else step.task.execution_id
        shared = Layer({**branch.context.inline(), **outer})
        refs: tuple[Ref, ...] = branch.context.refs
        children: list[tuple[Edge, Branch]] = []
        for j, edge in enumerate(edges):
            path = f".{j}" if len(edges) > 1 else ""
            for at, item in enumerate(items.items):
                i = start + at
                frame = Frame(
                    node,
                    i,
                    f"{above}_{node}_{i}",
                    total,
                    barrier,
                    items.labels[at] if items.labels else "",
                    items.keys[at] if items.keys else "",
                )
                child = Branch(
                    derive(barrier, edge.id, str(i)),
                    (*branch.lineage, frame),
                    Context({"$item": item}, shared, refs, 0, branch.context.writers),
                    path,
                    node,
                    edge.id,
                )
                children.append((edge, child))
        return children


def _cut(texts: list[str] | None, start: int, stop: int) -> list[str] | None:
    return texts[start:stop] if texts else None


def _batch_size(total: int, largest: int) -> int:
    """One item a message for few, so that all workers get some; more for many, to share its cost."""
    return max(1, min(largest, total // 64))


def pack(task: Task, children: Iterable[tuple[Edge, Branch]], batch: int = _LARGEST_BATCH) -> list[Task]:
    """Tasks like `task` for these branches: items of one split that go the same way share one."""
    groups: dict[tuple[object, ...], tuple[Edge, list[Branch]]] = {}
    tasks: list[Task] = []
    for edge, branch in children:
        lineage = branch.lineage
        if not lineage or batch == 1:
            tasks.append(single(task, edge, branch))
            continue
        context = branch.context
        key = (edge.id, lineage[-1].barrier, id(context.shared), context.refs, context.writers, branch.path)
        groups.setdefault(key, (edge, []))[1].append(branch)
    for edge, branches in groups.values():
        tasks += _batches(task, edge, branches, batch)
    return tasks


def _batches(task: Task, edge: Edge, branches: list[Branch], batch: int) -> Iterable[Task]:
    at = 0
    while at < len(branches):
        size, stop = 0, at
        while stop < len(branches) and stop - at < batch:
            size += _travel_size(branches[stop])
            if size > _BATCH_BYTES and stop > at:
                break
            stop += 1
        if stop - at == 1:
            yield single(task, edge, branches[at])
        else:
            yield _several(task, edge, branches[at:stop])
        at = stop


def _travel_size(branch: Branch) -> int:
    """About what a branch adds to a message."""
    top = branch.lineage[-1]
    return branch.context.own_size + len(top.label) + len(top.key) + 100


def single(task: Task, edge: Edge, branch: Branch) -> Task:
    """A Task like `task` for one branch."""
    return Task(
        workflow_id=task.workflow_id,
        execution_id=task.execution_id,
        current_node=edge.dst,
        workflow_definition=task.workflow_definition,
        accumulated_context=branch.context.inline(),
        lineage_stack=branch.lineage,
        from_node=branch.from_node,
        definition=task.definition,
        step=branch.step,
        edge=branch.edge,
        path=branch.path,
        refs=branch.context.refs,
        weight=branch.context.size,
        writers=branch.context.writers,
        entry=task.entry,
        started_at=task.started_at,
        priority=task.priority,
        pool=edge.pool,
        root=task.root,
        epoch=task.epoch,
        caller=task.caller,
    )


def _several(task: Task, edge: Edge, branches: list[Branch]) -> Task:
    first = branches[0]
    top = first.lineage[-1]
    above = top.branch_id[: top.branch_id.rfind("_")]
    shared = Frame(top.split_node_id, -1, above, top.total_items, top.barrier)
    return Task(
        workflow_id=task.workflow_id,
        execution_id=task.execution_id,
        current_node=edge.dst,
        workflow_definition=task.workflow_definition,
        accumulated_context=dict(first.context.shared.raw),
        lineage_stack=(*first.lineage[:-1], shared),
        from_node=first.from_node,
        definition=task.definition,
        edge=first.edge,
        path=first.path,
        refs=first.context.refs,
        writers=first.context.writers,
        twigs=tuple(
            Twig(
                b.step, b.lineage[-1].item_index, dict(b.context.own), b.lineage[-1].label, b.lineage[-1].key
            )
            for b in branches
        ),
        entry=task.entry,
        started_at=task.started_at,
        priority=task.priority,
        pool=edge.pool,
        root=task.root,
        epoch=task.epoch,
        caller=task.caller,
    )
