"""What a join holds once it has opened: items' results in order, or branches' contexts in edge order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.context import Context, Ref
from rune.core.errors import ErrorInfo, MessageError
from rune.core.node import Gathered, Role
from rune.core.operations import BarrierView, MergeView
from rune.core.outcome import Done, Failed
from rune.core.ports import State
from rune.core.scope import output_name, unwrapped
from rune.core.step import Snapshot, Step
from rune.core.workflow import Node
from rune.engine.values import Values, expand

__all__ = ["Joins"]

_PAGE = 4096
_PAGE_BYTES = 4 << 20
"""Results that are read at a time, and about how many bytes of them."""


class Joins:
    """Reads barriers and merges that have opened."""

    def __init__(self, state: State, values: Values) -> None:
        self._state = state
        self._values = values

    async def opened(self, step: Step) -> tuple[Step, Gathered | Done | Failed] | None:
        """The step that follows the join, and what it finds there; None if it is gone."""
        if step.node.role is Role.MERGE:
            return await self._merge(step)
        return await self._barrier(step)

    # --- fan-outs ---

    async def _barrier(self, step: Step) -> tuple[Step, Gathered | Done | Failed] | None:
        execution = step.task.execution_id
        barrier = msgspec.json.decode(step.task.details)
        if not isinstance(barrier, str):
            raise MessageError("a Task that gathers without the name of its barrier")
        view = await self._state.barrier(execution, barrier)
        if view is None:
            return None
        failed = _failed_items(step.node, view) if view.failure else None
        counts = (view.total, view.succeeded, view.failed, view.skipped, view.folds)
        if step.node.type.streams:
            pages = partial(self._pages, execution, barrier, view.total)
            return step, Gathered(Raw(b"[]"), *counts, pages=pages, failed_as=failed)
        if failed is not None:
            return step, failed
        if step.node.role is Role.SPLIT:
            # No aggregator: the branch ends with its last item.
            return step, Done(Raw(b'{"count":%d}' % view.total), port=None)
        results = b"[]"
        if step.node.parameters.constant.keeps_results():
            results = await self._results(execution, barrier, view.total)
        return step, Gathered(Raw(results), *counts)

    async def _results(self, execution: str, barrier: str, total: int) -> bytes:
        """The results joined as bytes, null where an item was skipped."""
        slots: list[bytes] = [b"null"] * total
        async for page in self._pages(execution, barrier, total):
            for item, data in page:
                slots[item] = data
        return b"[" + b",".join(slots) + b"]"

    async def _pages(
        self, execution: str, barrier: str, total: int
    ) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The results in order, about as many at a time as are neither too many nor too large."""
        start, limit = 0, _PAGE // 10
        while start < total:
            page = await self._state.slots(execution, barrier, start, limit)
            yield page
            start += limit
            size = sum(len(data) for _, data in page)
            limit = max(1, min(_PAGE, 2 * limit, limit * _PAGE_BYTES // (size + 1)))

    # --- merges ---

    async def _merge(self, step: Step) -> tuple[Step, Gathered | Done | Failed] | None:
        execution = step.task.execution_id
        view = await self._state.merge(execution, step.task.step)
        if view is None:
            return None
        brought = _in_order(view)
        context = await self._united(step, [snapshot for _, snapshot in brought])
        path = min((snapshot.path for _, snapshot in brought), default="", key=_path_key)
        branch = msgspec.structs.replace(
            step.branch, context=await self._values.fold(execution, context), path=path
        )
        step = msgspec.structs.replace(step, branch=branch)
        if view.failed:
            return step, _failed_merge(step.node, view.failed, len(brought), view.expected)
        payloads = [await self._payload(step, snapshot) for _, snapshot in brought]
        winner = next((snapshot.from_node for id, snapshot in brought if id == view.winner), None)
        return step, Gathered(Raw(b"[" + b",".join(payloads) + b"]"), len(brought), winner=winner)

    async def _payload(self, step: Step, snapshot: Snapshot) -> bytes:
        """What an arrival brings: the output of the node it came from."""
        key = output_name(step.flow, snapshot.from_node)
        context = Context(snapshot.context, refs=snapshot.refs)
        layers = await self._values.load(step.task.execution_id, context.needs(frozenset({key})))
        if not context.has(key, layers.__getitem__):
            return b"null"
        output = context.raw(key, layers.__getitem__)
        return bytes(unwrapped(output) if snapshot.writers[0] == snapshot.from_node else output)

    async def _united(self, step: Step, brought: Sequence[Snapshot]) -> Context:
        """The common ancestors' values plus what each arrival added, in edge order."""
        refs = _common([snapshot.refs for snapshot in brought])
        own: dict[str, Raw] = {}
        writers: dict[str, str] = {}
        for snapshot in brought:
            added = snapshot.refs[len(refs) :]
            layers = await self._values.load(step.task.execution_id, added)
            values = expand(added, layers) | snapshot.context
            for name, writer in zip(("$json", "$error"), snapshot.writers, strict=True):
                if name in own and name in values and step.paths.leads_to(writer, writers[name]):
                    # It had this from the common ancestors; another branch has written it since.
                    del values[name]
                elif name in values:
                    writers[name] = writer
            own |= values
        return Context(own, refs=refs, writers=(writers.get("$json", ""), writers.get("$error", "")))


def _in_order(view: MergeView) -> list[tuple[str, Snapshot]]:
    """The arrivals by the edge they came along, then by path."""
    brought = [(a.order, a.step, msgspec.json.decode(a.payload, type=Snapshot)) for a in view.arrivals]
    brought.sort(key=lambda entry: (entry[0], _path_key(entry[2].path), entry[1]))
    return [(step, snapshot) for _, step, snapshot in brought]


def _common(chains: Sequence[tuple[Ref, ...]]) -> tuple[Ref, ...]:
    """What all chains of references begin with."""
    if not chains:
        return ()
    shortest = min(chains, key=len)
    for i, ref in enumerate(shortest):
        if any(chain[i] != ref for chain in chains):
            return shortest[:i]
    return shortest


def _path_key(path: str) -> tuple[int, ...]:
    return tuple(int(part) for part in path.split(".") if part)


def _failed_items(node: Node, view: BarrierView) -> Failed:
    failed, total, error = view.failed, view.total, view.first_error
    if view.failure == "source" and error is not None:
        return msgspec.json.decode(error, type=Failed)
    details: dict[str, Any] = {"failed": failed, "total": total}
    if view.failure == "timeout":
        message = "timed out before every item had ended"
        return Failed(ErrorInfo(message, "AGGREGATOR_TIMEOUT", details, node.id), engine=True)
    if error is not None:
        details["first_error"] = msgspec.json.decode(error)
    message = f"{failed} of {total} items failed, which is more than the split tolerates"
    return Failed(ErrorInfo(message, "ITEMS_FAILED", details, node.id))


def _failed_merge(node: Node, why: str, arrived: int, expected: int) -> Failed:
    details = {"arrived": arrived, "expected": expected}
    if why == "timeout":
        message = "timed out waiting for its branches"
        return Failed(ErrorInfo(message, "MERGE_TIMEOUT", details, node.id), engine=True)
    message = f"only {arrived} branches can still reach it, fewer than it needs"
    return Failed(ErrorInfo(message, "MERGE_IMPOSSIBLE", details, node.id))
