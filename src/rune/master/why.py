"""Why an execution is still running: what holds it, and where its branches were seen last."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from rune.core.errors import MessageError
from rune.core.holding import BarrierOpen, Holding, MergeOpen
from rune.core.ids import child_of, derive
from rune.core.messages import Task, decode_task
from rune.core.operations import Timer
from rune.core.workflow import Edge, Workflow
from rune.history import History
from rune.history.executions import Execution
from rune.history.steps import StepRecord
from rune.master.runtime import Runtime

__all__ = ["Hold", "Position", "Why", "why"]

_SHOWN = 100


class Hold(Struct, frozen=True, kw_only=True):
    """One thing that keeps an execution alive."""

    kind: str
    """`lease`, `timer`, `arrival`, `barrier`, `message`, `paused` or `lost`."""
    node: str | None = None
    step: str | None = None
    scope: str = ""
    """The item it is in, as `barrier.item`; empty outside any split."""
    until: float | None = None
    detail: str = ""


class Position(Struct, frozen=True):
    """Where a branch was seen last."""

    step: str
    node: str
    status: str
    since: float


class Why(Struct, frozen=True):
    """What an execution waits for."""

    status: str
    holds: list[Hold]
    positions: list[Position]


async def why(history: History, runtime: Runtime, execution: Execution, flow: Workflow | None) -> Why:
    """What holds an execution; `flow` is what it runs, where that is known."""
    page = await history.steps.list(execution.id, status=("running", "waiting"), limit=_SHOWN)
    positions = [Position(step.step, step.node_id, step.status, step.at) for step in page.items]
    if execution.ended_at is not None:
        return Why(execution.status, [], [])
    holding = await runtime.holding(execution.id, _SHOWN)
    if holding is None:
        standing = (await runtime.standings([execution.id])).get(execution.id)
        return Why(execution.status, [_unheld(execution, standing)], positions)
    explained = _Explained(history, execution, flow, holding)
    return Why(execution.status, [hold async for hold in explained.holds()], positions)


def _unheld(execution: Execution, standing: str | None) -> Hold:
    if standing == "ended":
        return Hold(kind="message", detail="it has ended; its completion is on its way")
    if execution.status == "pending":
        return Hold(kind="message", detail="it is stored and about to be started")
    if execution.trigger == "wire":
        return Hold(
            kind="message", detail="a message is on its way, or it is lost: State knows nothing of it"
        )
    return Hold(kind="lost", detail="State knows nothing of it; it will be failed soon")


class _Explained:
    """Turns what State holds into words, with the names that the graph and the history know."""

    def __init__(
        self, history: History, execution: Execution, flow: Workflow | None, holding: Holding
    ) -> None:
        self._history = history
        self._execution = execution
        self._flow = flow
        self._holding = holding

    async def holds(self) -> AsyncIterator[Hold]:
        """One by one."""
        holding = self._holding
        if holding.ended:
            yield Hold(kind="message", detail="it has ended, and is about to say so")
        if holding.paused:
            yield Hold(
                kind="paused", detail=f"it is paused; {holding.parked} Tasks are parked until it goes on"
            )
        for lease in holding.leases:
            step = await self._history.steps.get(self._execution.id, lease.step)
            yield Hold(
                kind="lease",
                node=step.node_id if step else None,
                step=lease.step,
                scope=lease.scope,
                until=lease.until,
                detail="a worker runs it, and renews the lease while it does",
            )
        for timer in holding.timers:
            yield _timer(timer)
        for barrier in holding.barriers:
            yield _barrier(barrier)
        for merge in holding.merges:
            yield await self._merge(merge)
        moved = holding.leases or holding.paused or any(timer.sleeping for timer in holding.timers)
        if not moved and not holding.ended:
            yield Hold(kind="message", detail="a message is on its way to a worker, or being handled by one")

    async def _merge(self, merge: MergeOpen) -> Hold:
        node = self._node_of(merge)
        needs = "all that can come" if merge.need is None else f"{merge.need} of them"
        detail = f"{merge.accounted} of {merge.expected} arrivals are accounted for; it needs {needs}"
        if node is not None and self._flow is not None:
            missing = await self._missing(merge, node, self._flow)
            if missing:
                detail += f"; nothing came along {', '.join(missing[:5])} yet"
        return Hold(kind="arrival", node=node, step=merge.merge, scope=merge.scope, detail=detail)

    def _node_of(self, merge: MergeOpen) -> str | None:
        root = self._execution.root or self._execution.id
        merges = self._flow.paths().expected if self._flow is not None else ()
        return next((id for id in merges if derive(root, merge.scope, id) == merge.merge), None)

    async def _missing(self, merge: MergeOpen, node: str, flow: Workflow) -> list[str]:
        """The edges into a merge along which nothing came, and of which nobody said that nothing will."""
        skipped = [flow.edges[e] for e in (a.partition("!")[2] for a in merge.arrivals) if e in flow.edges]
        return [
            edge.id
            for edge in flow.incoming[node]
            if not any(_leads(flow, dead, edge) for dead in skipped) and not await self._came(merge, edge)
        ]

    async def _came(self, merge: MergeOpen, edge: Edge) -> bool:
        barrier, _, item = merge.scope.rpartition(".")
        scope = (barrier, int(item)) if barrier else ("", 0)
        page = await self._history.steps.list(self._execution.id, node=edge.src, scope=scope, limit=_SHOWN)
        steps: list[StepRecord] = list(page.items)
        first = derive(self._execution.root or self._execution.id, "~start")
        came = {derive(first, edge.id), *(derive(step.step, edge.id) for step in steps)}
        return not came.isdisjoint(merge.arrivals)


def _leads(flow: Workflow, dead: Edge, edge: Edge) -> bool:
    return dead.id == edge.id or dead.dst == edge.src or flow.paths().leads_to(dead.dst, edge.src)


def _task(data: bytes) -> Task | None:
    try:
        return decode_task(data)
    except MessageError:
        return None


def _timer(timer: Timer) -> Hold:
    task = _task(timer.task)
    lineage = task.lineage_stack if task else ()
    scope = f"{lineage[-1].barrier}.{lineage[-1].item_index}" if lineage else ""
    return Hold(
        kind="timer",
        node=task.current_node if task else None,
        step=task.step if task else timer.id,
        scope=scope,
        until=timer.due,
        detail=_purpose(task, timer),
    )


def _purpose(task: Task | None, timer: Timer) -> str:
    """What a timer is for."""
    match task.phase if task is not None else "":
        case "wake" if timer.due is None:
            return "it rests until it is called"
        case "wake":
            return "it rests until its time has come"
        case "answer" if task is not None:
            return f"it waits for {child_of(task.execution_id, timer.id)}, which it called"
        case "expire":
            return "the time-out of a join, which is put off while anything happens, unless it was given"
        case "run" | "refill" if timer.sleeping:
            return f"it failed, and rests before attempt {task.attempt if task else 0}"
        case "run" | "refill":
            return "somebody runs it, and may have died: it is looked at again then"
        case _:
            return "a Task that is published at this time"


def _barrier(barrier: BarrierOpen) -> Hold:
    task = _task(barrier.release)
    total = "an unknown number of" if barrier.total is None else barrier.total
    detail = f"{barrier.done} of {total} items have ended, {barrier.failed} of them failed"
    if barrier.missing:
        detail += f"; the first that have not are {', '.join(map(str, barrier.missing))}"
    if barrier.total is not None and barrier.published < barrier.total:
        detail += f"; {barrier.total - barrier.published} have not begun, because of the window"
    return Hold(
        kind="barrier",
        node=task.current_node if task else None,
        step=barrier.barrier,
        scope=barrier.scope,
        detail=detail,
    )
