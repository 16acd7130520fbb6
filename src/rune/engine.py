"""Run one Task: run the node for its branches, let `plan` decide, carry out what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rune.completion import Completions
from rune.core.context import Context
from rune.core.errors import EngineError, ErrorInfo, MessageError
from rune.core.ids import derive
from rune.core.messages import Branch, Frame, Task, branches_of, encode, scope_of
from rune.core.node import Gathered, Role
from rune.core.outcome import Done, Failed, FanOut, Outcome
from rune.core.plan import Follow, Limits, Plan, Snapshot, Step, merge_id, plan
from rune.core.ports import (
    Answer,
    Arm,
    Broker,
    Commit,
    Delivery,
    End,
    Expire,
    Open,
    Operation,
    Settle,
    State,
    Timer,
    TryAgain,
)
from rune.core.workflow import Node, Workflow
from rune.fanout import Items, pack
from rune.running import Attempt, Runner
from rune.settings import Settings
from rune.statuses import Statuses
from rune.values import FAN_OUT_INLINE, INLINE, Values, expand

__all__ = ["Engine"]


class Engine:
    """Turns one delivery into statuses and further Tasks."""

    def __init__(
        self,
        state: State,
        broker: Broker,
        compile: Callable[[bytes], Workflow],
        runner: Runner,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self.state = state
        self.broker = broker
        self.values = Values(state, max_value=settings.max_value)
        self.ended: set[str] = set()
        """Executions known to have ended: their Tasks are dropped unseen."""
        self.paused: frozenset[str] = frozenset()
        self._compile = compile
        self._runner = runner
        self._settings = settings
        self._limits = Limits(settings.timeout)
        self._clock = clock
        self._born = clock()
        self._flows: dict[str | bytes, Workflow] = {}
        self._items = Items(self.values)
        self._statuses = Statuses(broker, clock)
        self._completions = Completions(state, broker, self.values, settings.retention)

    # --- beginning ---------------------------------------------------------------------------------------------

    async def start(
        self, flow: Workflow, execution: str, values: Mapping[str, Raw], *, priority: int = 0
    ) -> None:
        """Start an execution; to start it again is to start it once."""
        definition = await self.values.store(execution, flow.definition)
        self._flows[definition] = flow
        root = derive(execution, "start")
        context = await self.values.fold_context(execution, Context(dict(values)))
        entries = flow.entries
        if len(entries) != 1:
            change = Settle(len(entries) - 1, end=b'{"context":{}}')
            answers = await self.state.apply(execution, [Commit(root, (), [change])])
            if answers[0].gone:
                return
        task = Task(
            workflow_id=flow.id,
            execution_id=execution,
            current_node="",
            accumulated_context=context.inline(),
            refs=context.refs,
            definition=definition,
            started_at=self._clock(),
            priority=priority,
        )
        await self.broker.publish([self._entry(flow, task, root, node, i) for i, node in enumerate(entries)])

    def _entry(self, flow: Workflow, task: Task, root: str, node: str, i: int) -> Task:
        edge = next((e for e in flow.incoming[node] if flow.nodes[e.src].trigger), None)
        return msgspec.structs.replace(
            task,
            current_node=node,
            step=derive(root, edge.id if edge else node),
            edge=edge.id if edge else "",
            from_node=edge.src if edge else None,
            path=f".{i}" if len(flow.entries) > 1 else "",
        )

    async def flow(self, task: Task) -> Workflow:
        """The workflow a Task belongs to, compiled once."""
        key: str | bytes = task.definition or bytes(task.workflow_definition)
        flow = self._flows.get(key)
        if flow is None:
            if key == b"null":
                raise MessageError("no workflow_definition")
            data = key if isinstance(key, bytes) else await self.values.fetch(task.execution_id, key)
            flow = self._flows[key] = self._compile(data)
            if len(self._flows) > 1000:
                del self._flows[next(iter(self._flows))]
        return flow

    # --- one delivery ------------------------------------------------------------------------------------------

    async def handle(self, delivery: Delivery) -> None:
        """Do all that this delivery asks for, then acknowledge it."""
        task = delivery.task
        if task.execution_id in self.ended:
            await self.broker.finish(delivery)
            return
        if task.phase == "cancel":
            await self._cancel(delivery)
            return
        if task.execution_id in self.paused and await self._park(task):
            await self.broker.finish(delivery)
            return
        flow = await self.flow(task)
        node = flow.nodes.get(task.current_node)
        if node is None:
            raise MessageError(f"the workflow has no node '{task.current_node}'")
        task = await self._adopted(task, flow)
        match task.phase:
            case "gather":
                await self._gather(delivery, task, flow, node)
            case "expire":
                await self._expire(delivery, task, flow, node)
            case "refill":
                await self._refill(delivery, task, flow, node)
            case "wake":
                await self._wake(delivery, task, flow, node)
            case _:
                await self._run(delivery, task, flow, node)

    def _steps(self, task: Task, flow: Workflow, node: Node) -> list[Step]:
        paths = flow.paths(task.entry)
        now = self._clock()
        return [Step(flow, paths, node, task, branch, now, self._limits) for branch in branches_of(task)]

    async def _adopted(self, task: Task, flow: Workflow) -> Task:
        """A Task as Rune writes them; one written by hand is where its execution starts."""
        if task.step or task.twigs:
            return task
        branch = branches_of(task)[0]
        entry = "" if flow.entries == (task.current_node,) else task.current_node
        context = await self.values.fold_context(task.execution_id, branch.context)
        task = msgspec.structs.replace(
            task,
            step=branch.step,
            lineage_stack=branch.lineage,
            entry=entry,
            accumulated_context=context.inline(),
            refs=context.refs,
            started_at=task.started_at or self._clock(),
        )
        if branch.lineage:
            await self._open_by_hand(task, flow, branch)
        return task

    async def _open_by_hand(self, task: Task, flow: Workflow, branch: Branch) -> None:
        """Open the barriers that a lineage written by hand speaks of."""
        paths = flow.paths(task.entry)
        for depth, frame in enumerate(branch.lineage):
            gather = paths.closer.get(frame.split_node_id, frame.split_node_id)
            if gather not in flow.nodes or frame.total_items is None:
                raise MessageError(f"lineage_stack[{depth}] names no split, or no total_items")
            outer = msgspec.structs.replace(
                branch, step=derive(frame.barrier, "gather"), lineage=branch.lineage[:depth], from_node=None
            )
            step = Step(flow, paths, flow.nodes[gather], task, outer, self._clock())
            release = step.task_for(
                gather, outer, phase="gather", details=Raw(msgspec.json.encode(frame.barrier))
            )
            opening = Open(frame.barrier, frame.total_items, 1, encode(release), published=frame.total_items)
            await self.state.apply(
                task.execution_id, [Commit(frame.barrier, scope_of(outer.lineage), [opening])]
            )

    # --- phases ------------------------------------------------------------------------------------------------

    async def _run(self, delivery: Delivery, task: Task, flow: Workflow, node: Node) -> None:
        steps = self._steps(task, flow, node)
        self._statuses.running(steps)
        if node.type.pure and not delivery.redelivered:
            attempts = await self._runner.run_pure(steps, self.values)
            await self._finish(delivery, await self._conclude(steps, attempts))
            return
        await self._run_apart(delivery, steps)

    async def _run_apart(self, delivery: Delivery, steps: list[Step]) -> None:
        """Run steps that take their time, and pass each on when it has ended."""
        leased = steps[0].node.type.effects or delivery.redelivered
        ready, tasks = await self._leased(steps) if leased else ([(s, 0, None) for s in steps], [])
        running: dict[asyncio.Task[Attempt], Step] = {}
        try:
            for step, fence, record in ready:
                fenced = msgspec.structs.replace(step, fence=fence)
                work = self._runner.run(fenced, self.values, self.state, record)
                running[asyncio.ensure_future(work)] = fenced
            held = False
            while running:
                wait = None if held or not leased else self._settings.hold
                done, _ = await asyncio.wait(running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    await self._hold(delivery, list(running.values()))
                    held = True
                    continue
                ended = [(running.pop(task), task.result()) for task in done]
                tasks += await self._conclude([s for s, _ in ended], [a for _, a in ended])
                if running or held:
                    await self.broker.publish(tasks)
                    tasks = []
            if not held:
                await self._finish(delivery, tasks)
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.gather(*running, return_exceptions=True)

    async def _leased(self, steps: list[Step]) -> tuple[list[tuple[Step, int, bytes | None]], list[Task]]:
        """The steps that may run here, each with its fence or its record; the rest is passed on or dropped."""
        execution = steps[0].task.execution_id
        until = self._clock() + self._settings.lease
        asked = [(step.branch.step, scope_of(step.branch.lineage)) for step in steps]
        leases = await self.state.lease(execution, asked, steps[0].task.attempt, until)
        ready: list[tuple[Step, int, bytes | None]] = []
        dropped: list[Step] = []
        for step, lease in zip(steps, leases, strict=True):
            if lease.record is not None or lease.fence:
                ready.append((step, lease.fence, lease.record))
            elif lease.busy_until is not None:
                await self._come_back(step, lease.busy_until)
            elif lease.dropped:
                dropped.append(step)
        tasks: list[Task] = []
        if dropped:
            follows = await self._drive(execution, [(_nothing(), step) for step in dropped])
            tasks = [task for follow in follows for task in follow.tasks]
        return ready, tasks

    async def _come_back(self, step: Step, at: float) -> None:
        """Somebody else runs this step: look again when their lease ends."""
        branch = step.branch
        task = step.task_for(step.node.id, branch, attempt=step.task.attempt)
        timer = Timer(derive(branch.step, "busy"), at, encode(task), sleeping=False)
        commit = Commit(branch.step, scope_of(branch.lineage), [Arm(timer)])
        await self.state.apply(step.task.execution_id, [commit])

    async def _hold(self, delivery: Delivery, steps: list[Step]) -> None:
        """Give a delivery back that takes long: the lease and a timer at its end watch over the step."""
        at = self._clock() + self._settings.lease
        for step in steps:
            await self._come_back(step, at)
        await self.broker.finish(delivery)

    async def _wake(self, delivery: Delivery, task: Task, flow: Workflow, node: Node) -> None:
        steps = self._steps(task, flow, node)
        attempts = []
        for step in steps:
            key = f"${node.id}"
            layers = await self.values.load(task.execution_id, step.branch.context.needs(frozenset({key})))
            done = Done(step.branch.context.raw(key, layers.__getitem__))
            # That it slept is on record; that it woke needs none.
            attempts.append(Attempt(done, self._clock(), replayed=True))
        await self._finish(delivery, await self._conclude(steps, attempts))

    async def _refill(self, delivery: Delivery, task: Task, flow: Workflow, node: Node) -> None:
        (step,) = self._steps(task, flow, node)
        spec = _details(task, FanOut)
        start, stop = task.cursor or (0, len(spec.source))
        await self._finish(delivery, await self._items.publishable(step, spec, start, stop))

    async def _expire(self, delivery: Delivery, task: Task, flow: Workflow, node: Node) -> None:
        (step,) = self._steps(task, flow, node)
        details = _details(task, Any)
        timer = Timer(task.step, None, encode(task), sleeping=False)
        expire = Expire(details["target"], timer, details["idle"], self._born)
        commit = Commit(task.step, scope_of(step.branch.lineage), [expire])
        (answer,) = await self.state.apply(task.execution_id, [commit])
        tasks = []
        if answer.release is not None:
            tasks.append(msgspec.json.decode(answer.release, type=Task))
        if answer.opened:
            tasks.append(step.task_for(node.id, _at_merge(step, answer.opened[0]), phase="gather"))
        await self._finish(delivery, tasks)

    async def _gather(self, delivery: Delivery, task: Task, flow: Workflow, node: Node) -> None:
        (step,) = self._steps(task, flow, node)
        if node.role is Role.MERGE:
            gathered = await self._merged(step)
        else:
            gathered = await self._collected(step, _details(task, str))
        if gathered is None:
            await self._finish(delivery, [])
            return
        step, outcome = gathered
        self._statuses.running([step])
        if isinstance(outcome, Gathered):
            if node.role is Role.SPLIT:
                attempt = Attempt(Done(Raw(msgspec.json.encode({"count": outcome.total})), None), self._clock())
            else:
                (attempt,) = await self._runner.run_pure([step], self.values, outcome)
        else:
            attempt = Attempt(outcome, self._clock())
        await self._finish(delivery, await self._conclude([step], [attempt]))

    async def _collected(self, step: Step, barrier: str) -> tuple[Step, Gathered | Failed] | None:
        """What a closed barrier holds, joined as bytes in the items' order."""
        view = await self.state.barrier(step.task.execution_id, barrier)
        if view is None:
            return None
        if view.failure:
            return step, _fan_out_failure(step.node, view.failure, view.failed, view.total, view.first_error)
        results = b"[]"
        if _kept(step.node):
            results = await self._joined(step.task.execution_id, barrier, view.total)
        gathered = Gathered(
            Raw(results), view.total, view.succeeded, view.failed, view.skipped, view.folds
        )
        return step, gathered

    async def _joined(self, execution: str, barrier: str, total: int, page: int = 10_000) -> bytes:
        slots: list[bytes] = [b"null"] * total
        at = 0
        while at < total:
            for item, data in await self.state.slots(execution, barrier, at, page):
                slots[item] = data
            at += page
        return b"[" + b",".join(slots) + b"]"

    async def _merged(self, step: Step) -> tuple[Step, Gathered | Failed] | None:
        """What the live arrivals of a merge brought, in edge order."""
        execution = step.task.execution_id
        view = await self.state.merge(execution, step.task.step)
        if view is None:
            return None
        arrivals = sorted(view.arrivals, key=lambda a: (a.order, a.step))
        brought = [msgspec.json.decode(a.payload, type=Snapshot) for a in arrivals]
        winner = next((b.from_node for a, b in zip(arrivals, brought, strict=True) if a.step == view.winner), None)
        branch = msgspec.structs.replace(
            step.branch,
            context=await self._united(execution, brought),
            path=min((s.path for s in brought), default="", key=_path_key),
        )
        (branch,) = await self.values.fold(execution, [branch])
        step = msgspec.structs.replace(step, branch=branch)
        if view.failed:
            return step, _merge_failure(step.node, view.failed, len(arrivals), view.expected)
        payloads = b"[" + b",".join(bytes(s.payload) for s in brought) + b"]"
        return step, Gathered(Raw(payloads), total=len(brought), winner=winner)

    async def _united(self, execution: str, brought: Sequence[Snapshot]) -> Context:
        """The common ancestors' values plus what each arrival added, in edge order."""
        if not brought:
            return Context({})
        refs = brought[0].refs
        for snapshot in brought[1:]:
            n = next((i for i, (a, b) in enumerate(zip(refs, snapshot.refs, strict=False)) if a != b), None)
            refs = refs[: min(len(refs), len(snapshot.refs)) if n is None else n]
        own: dict[str, Raw] = {}
        for snapshot in brought:
            added = snapshot.refs[len(refs) :]
            own |= expand(added, await self.values.load(execution, added)) | snapshot.context
        return Context(own, refs=refs)

    async def _cancel(self, delivery: Delivery) -> None:
        task = delivery.task
        reason = msgspec.json.decode(task.details) or "cancelled"
        end = End("halted", reason=reason)
        (answer,) = await self.state.apply(
            task.execution_id, [Commit(derive(task.execution_id, "cancel"), (), [end])]
        )
        if answer.ending:
            await self._end(task, answer)
        await self.broker.finish(delivery)

    async def fail(self, task: Task, error: EngineError) -> None:
        """Fail the scope of a Task that nobody can work on."""
        info = ErrorInfo(error.message, error.code, error.details, task.current_node)
        data = msgspec.json.encode(info)
        for branch in branches_of(task):
            place = scope_of(branch.lineage)
            operation: Operation = Settle(-1, error=data) if place else End("failed", data)
            (answer,) = await self.state.apply(task.execution_id, [Commit(branch.step, place, [operation])])
            tasks = [msgspec.json.decode(answer.release, type=Task)] if answer.release else []
            await self.broker.publish(tasks)
            if answer.ending:
                await self._end(task, answer)

    async def _park(self, task: Task) -> bool:
        return await self.state.park(task.execution_id, task.step or "hand", encode(task))

    # --- carrying out ------------------------------------------------------------------------------------------

    async def _conclude(self, steps: list[Step], attempts: Sequence[Attempt]) -> list[Task]:
        """Let `plan` decide for each step, ask State for all of them at once, and say what to publish."""
        execution = steps[0].task.execution_id
        plans: list[tuple[Plan, Step]] = []
        for step, attempt in zip(steps, attempts, strict=True):
            again = self._again(step, attempt)
            if again is not None:
                plans.append((again, step))
                continue
            outcome = await self._travelling(execution, step.node, attempt.outcome)
            if not step.node.deterministic and not attempt.replayed:
                step = msgspec.structs.replace(step, recorded=msgspec.json.encode(outcome))
            plans.append((plan(step, outcome, replay), step))
        follows = await self._drive(execution, plans)
        self._statuses.concluded([step for _, step in plans], attempts, follows)
        tasks: list[Task] = []
        children: list[tuple[Any, Branch]] = []
        for (_, step), follow in zip(plans, follows, strict=True):
            tasks += follow.tasks
            children += follow.children
            if follow.fan_out and isinstance(follow.outcome, FanOut):
                tasks += await self._items.publishable(step, follow.outcome, 0, None)
            if follow.ending:
                await self._end(step.task, follow.answer)
        if children:
            folded = await self.values.fold(execution, [branch for _, branch in children], INLINE)
            edges = [edge for edge, _ in children]
            tasks += pack(steps[0].task, zip(edges, folded, strict=True))
        return tasks

    async def _travelling(self, execution: str, node: Node, outcome: Outcome) -> Outcome:
        """The outcome in a form that is small enough to keep and to pass on."""
        if isinstance(outcome, FanOut):
            return await self._items.fixed(execution, outcome)
        return outcome

    async def _drive(self, execution: str, plans: Sequence[tuple[Plan, Step]]) -> list[Follow]:
        """Run plans side by side, each round of questions as one State call."""
        follows: list[Follow | None] = [None] * len(plans)
        answers: dict[int, Answer | None] = dict.fromkeys(range(len(plans)))
        while answers:
            asked: list[int] = []
            commits: list[Commit] = []
            for i, answer in answers.items():
                generator, step = plans[i]
                try:
                    operations = next(generator) if answer is None else generator.send(answer)
                except StopIteration as stop:
                    follows[i] = stop.value
                    continue
                asked.append(i)
                commits.append(Commit(step.branch.step, scope_of(step.branch.lineage), operations))
            if not commits:
                break
            answers = dict(zip(asked, await self.state.apply(execution, commits), strict=True))
        return [follow for follow in follows if follow is not None]

    def _again(self, step: Step, attempt: Attempt) -> Plan | None:
        """A plan to try this step again, if it may."""
        if attempt.retry_in is None or attempt.replayed:
            return None
        number = step.task.attempt
        task = step.task_for(step.node.id, step.branch, attempt=number + 1)
        at = self._clock() + attempt.retry_in
        timer = Timer(derive(step.branch.step, "again", str(number)), at, encode(task))
        return _just(TryAgain(number, timer))

    async def _end(self, task: Task, answer: Answer) -> None:
        """Say that the execution has ended, and bury it."""
        if answer.ending is None:
            return
        await self._completions.announce(task, answer.ending)
        self.ended.add(task.execution_id)
        if len(self.ended) > 10_000:
            self.ended.pop()

    async def _finish(self, delivery: Delivery, tasks: Sequence[Task]) -> None:
        await self.broker.finish(delivery, tasks)


def replay(record: bytes) -> Outcome:
    """A recorded outcome, its output still raw."""
    return decode_outcome(record)


from rune.running import decode_outcome  # noqa: E402


def _details(task: Task, type: Any) -> Any:
    try:
        return msgspec.json.decode(task.details, type=type)
    except msgspec.MsgspecError as error:
        raise MessageError(f"details of a Task of phase '{task.phase}': {error}") from error


def _just(*operations: Operation) -> Plan:
    """A plan that asks for this and publishes nothing but what it released."""
    answer = yield operations
    tasks = [msgspec.json.decode(answer.release, type=Task)] if answer.release is not None else []
    return Follow(tasks=tasks, ending=answer.ending, answer=answer, dropped=answer.gone or answer.dropped)


def _nothing() -> Plan:
    return _just()


def _at_merge(step: Step, merge: str) -> Branch:
    return Branch(merge, step.branch.lineage, Context({}))


def _kept(node: Node) -> bool:
    return node.role is Role.GATHER and bool(node.parameters.constant.keeps_results())


def _path_key(path: str) -> tuple[int, ...]:
    return tuple(int(part) for part in path.split(".") if part)


def _fan_out_failure(node: Node, why: str, failed: int, total: int, error: bytes | None) -> Failed:
    details: dict[str, Any] = {"failed": failed, "total": total}
    if why == "timeout":
        return Failed(ErrorInfo("timed out before every item had ended", "AGGREGATOR_TIMEOUT", details, node.id), True)
    if error is not None:
        details["first_error"] = msgspec.json.decode(error)
    message = f"{failed} of {total} items failed, which is more than its policy tolerates"
    return Failed(ErrorInfo(message, "ITEMS_FAILED", details, node.id))


def _merge_failure(node: Node, why: str, arrived: int, expected: int) -> Failed:
    details = {"arrived": arrived, "expected": expected}
    if why == "timeout":
        return Failed(ErrorInfo("timed out waiting for its branches", "MERGE_TIMEOUT", details, node.id), True)
    message = f"only {arrived} branches can reach it, fewer than it needs"
    return Failed(ErrorInfo(message, "MERGE_IMPOSSIBLE", details, node.id))
