"""Run one Task: run the node for its branches, let `plan` decide, carry out what it says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.context import Context
from rune.core.errors import EngineError, ErrorInfo, MessageError, StateLost, ValueMissing
from rune.core.ids import derive
from rune.core.messages import NULL, Branch, Caller, Task, branches_of, encode, scope_of
from rune.core.node import Gathered, NodeType
from rune.core.operations import Commit, End, Expire, Operation, Settle, Timer
from rune.core.outcome import Done, Failed, FanOut
from rune.core.ports import Broker, Delivery, State
from rune.core.step import Deadline, Limits, Step, followed
from rune.core.workflow import Node, Workflow
from rune.engine.adopting import Adoption
from rune.engine.apart import Apart
from rune.engine.calling import Calls, caller_name
from rune.engine.carrying import Carrier
from rune.engine.fanout import Items
from rune.engine.flows import Flows
from rune.engine.joins import Joins
from rune.engine.passing import Passing
from rune.engine.reading import reader
from rune.engine.running import Attempt, Runner
from rune.engine.seeding import Seeds, sow
from rune.engine.statuses import Statuses
from rune.engine.values import Values
from rune.settings import Settings

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
        self.paused: frozenset[str] = frozenset()
        """Executions whose Tasks are parked."""
        self.on_end: Callable[[str], None] = lambda execution: None
        """Called when this engine has ended an execution."""
        self.on_rest: Callable[[], None] = lambda: None
        """Called, in whatever handles a delivery, when that only waits for other executions."""
        self._runner = runner
        self._settings = settings
        self._limits = Limits(settings.timeout)
        self._clock = clock
        self._born = clock()
        self._flows = Flows(compile, self.values)
        self._items = Items(self.values)
        self._adoption = Adoption(state, self.values, clock)
        self._joins = Joins(state, self.values)
        self._statuses = Statuses(broker, clock)
        self._calls = Calls(state, broker, self.values, self._flows, self.start, clock)
        runner.let_call(self._calls)
        self._phases: Mapping[str, Callable[[Delivery, Step], Awaitable[None]]] = {
            "gather": self._gather,
            "wake": self._wake,
            "answer": self._answer,
            "expire": self._expire,
            "refill": self._refill,
        }
        self._carrier = Carrier(
            state,
            broker,
            calls=self._calls,
            values=self.values,
            items=self._items,
            statuses=self._statuses,
            clock=clock,
            retention=settings.retention,
            on_end=lambda execution: self.on_end(execution),
        )
        self._apart = Apart(
            state,
            broker,
            values=self.values,
            runner=runner,
            carrier=self._carrier,
            settings=settings,
            clock=clock,
            on_rest=lambda: self.on_rest(),
        )
        self._passing = Passing(self._flows, runner, self.values, self._statuses, self._limits, clock)

    @property
    def counts(self) -> Mapping[tuple[type[NodeType], type], int]:
        """Steps that have ended or rest, by the type of their node and of their outcome."""
        return self._statuses.counts

    @property
    def ended(self) -> dict[str, None]:
        """Executions known to have ended: their Tasks are dropped unseen."""
        return self._carrier.ended

    # --- beginning ---

    async def start(
        self,
        flow: Workflow,
        execution: str,
        values: Mapping[str, Raw],
        *,
        priority: int = 0,
        whole: int = 0,
        root: str = "",
        seeds: Seeds = (),
        caller: Caller | None = None,
    ) -> None:
        """Start an execution; to start it again is to start it once.

        A definition of at most `whole` bytes travels with its Tasks, a larger one is stored by its hash. One
        with a `root` shares the ids of that execution's steps, and does not run those that are among `seeds`.
        One with a `caller` tells that how it ends.
        """
        for name, value in values.items():
            self.values.check(value, f"the value of {name}")
        travels = 0 < len(flow.definition) <= whole
        definition = "" if travels else await self.values.store(execution, flow.definition)
        self._flows.keep(flow.definition if travels else definition, flow)
        if root:
            await sow(self.state, execution, seeds)
        if caller is not None:
            await self.values.put(execution, {caller_name(execution): msgspec.json.encode(caller)})
        first = derive(root or execution, "~start")
        context = await self.values.fold(execution, Context(dict(values)))
        entries = flow.entries
        if len(entries) > 1:
            commit = Commit(first, (), [Settle(len(entries) - 1)])
            (answer,) = await self.state.apply(execution, [commit])
            if answer.gone:
                return
        task = Task(
            workflow_id=flow.id,
            execution_id=execution,
            current_node="",
            accumulated_context=context.inline(),
            refs=context.refs,
            workflow_definition=Raw(flow.definition) if travels else NULL,
            definition=definition,
            started_at=self._clock(),
            priority=priority,
            root=root,
            epoch=self.state.epoch,
            caller=caller,
        )
        await self.broker.publish([_entry(flow, task, first, node, i) for i, node in enumerate(entries)])

    # --- one delivery ---

    def at_once(self, delivery: Delivery) -> Task | Step | None:
        """Do a plain step: the Task that follows, to be published. None is for `handle`.

        Where an item reaches its aggregator, by this or with its next step, that step is for `arrive`.
        """
        if not self._is_current(delivery):
            return None
        task = delivery.task
        follows = self._passing.successor(task)
        if follows is None:
            return self._passing.arrival(task)
        # To arrive is State's work: a message would only carry it to a worker that asks for the same.
        return (self._passing.arrival(follows) if follows.pool == task.pool else None) or follows

    def _is_current(self, delivery: Delivery) -> bool:
        task, execution = delivery.task, delivery.task.execution_id
        if delivery.redelivered or execution in self.ended or execution in self.paused:
            return False
        return not task.epoch or task.epoch == self.state.epoch

    async def arrive(self, steps: Sequence[Step]) -> list[Task]:
        """Let items of one execution reach their aggregator with one State call; what is to be published."""
        self._statuses.running(steps)
        return await self._carrier.conclude(steps, await self._runner.run_pure(steps, self.values))

    async def handle(self, delivery: Delivery) -> None:
        """Do all that this delivery asks for, then acknowledge it."""
        task = delivery.task
        if task.execution_id in self.ended:
            await self.broker.finish(delivery)
            return
        try:
            if task.epoch and task.epoch != self.state.epoch:
                await self._check_epoch(task)
            await self._handle(delivery, task)
        except StateLost as lost:
            await self._fail_lost(task, str(lost))
            await self.broker.finish(delivery)
        except ValueMissing:
            if not await self._has_ended(task):
                raise
            # It is late: what it refers to went with its execution.
            await self.broker.finish(delivery)

    async def _has_ended(self, task: Task) -> bool:
        standings = await self.state.standings([task.execution_id])
        return standings.get(task.execution_id) == "ended"

    async def _check_epoch(self, task: Task) -> None:
        # We may be the ones who are behind.
        await self.state.check()
        if task.epoch != self.state.epoch:
            raise StateLost(f"State was emptied while {task.execution_id} was running")

    async def _fail_lost(self, task: Task, reason: str) -> None:
        """End an execution that State has lost: nothing else ever would."""
        error = msgspec.json.encode(ErrorInfo(reason, "STATE_LOST", None, task.current_node))
        commit = Commit(derive(task.execution_id, "~lost"), (), [End("failed", error)], task.started_at)
        (answer,) = await self.state.apply(task.execution_id, [commit])
        await self._carrier.end(task, answer)

    async def _handle(self, delivery: Delivery, task: Task) -> None:
        if task.phase == "cancel":
            await self._cancel(delivery)
            return
        if task.execution_id in self.paused and await self._park(task):
            await self.broker.finish(delivery)
            return
        flow = await self._flows.of(task)
        node = flow.nodes.get(task.current_node)
        if node is None:
            raise MessageError(f"the workflow has no node '{task.current_node}'")
        if node.pool and not task.pool:
            # Written by hand, and put where everybody takes from.
            await self.broker.finish(delivery, [msgspec.structs.replace(task, pool=node.pool)])
            return
        steps = self._steps(await self._adoption.adopted(task, flow), flow, node)
        if task.phase == "run":
            await self._run(delivery, steps)
        else:
            await self._phases[task.phase](delivery, steps[0])

    def _steps(self, task: Task, flow: Workflow, node: Node) -> list[Step]:
        paths = flow.paths(task.entry)
        now = self._clock()
        return [Step(flow, paths, node, task, branch, now, self._limits) for branch in branches_of(task)]

    # --- running ---

    async def _run(self, delivery: Delivery, steps: list[Step]) -> None:
        if delivery.redelivered and len(steps) > 1:
            # One of them may be what killed a worker: from here on each travels alone.
            apart = [
                s.task_for(s.node.id, s.branch, attempt=s.task.attempt, expires=s.task.expires) for s in steps
            ]
            await self.broker.finish(delivery, apart)
            return
        self._statuses.running(steps)
        node = steps[0].node
        # A redriven execution may have on record what it has not run.
        asks = delivery.redelivered or (steps[0].task.root != "" and not node.deterministic)
        if node.type.pure and not asks:
            attempts = await self._runner.run_pure(steps, self.values)
            await self.broker.finish(delivery, await self._carrier.conclude(steps, attempts))
        elif node.type.effects or asks:
            await self._apart.leased(delivery, steps)
        elif len(steps) == 1:
            attempt = await self._runner.run(steps[0], self.values, self.state, None)
            await self.broker.finish(delivery, await self._carrier.conclude(steps, [attempt]))
        else:
            await self._apart.unleased(delivery, steps)

    # --- the other phases ---

    async def _wake(self, delivery: Delivery, step: Step) -> None:
        key = f"${step.node.id}"
        context = step.branch.context
        layers = await self.values.load(step.task.execution_id, context.needs(frozenset({key})))
        if not context.has(key, layers.__getitem__):
            raise MessageError("a Task that wakes a branch which never slept")
        # That it slept is on record; that it woke needs none.
        attempt = Attempt(Done(context.raw(key, layers.__getitem__)), step.now, replayed=True)
        await self.broker.finish(delivery, await self._carrier.conclude([step], [attempt]))

    async def _answer(self, delivery: Delivery, step: Step) -> None:
        outcome = await self._calls.answer(step)
        retry, number = step.node.retry, step.task.attempt
        if isinstance(outcome, Failed) and retry is not None and number < retry.attempts:
            attempt = Attempt(outcome, step.now, retry.rest(number))
        else:
            # That it called is on record; how that ended needs none.
            attempt = Attempt(outcome, step.now, replayed=True)
        await self.broker.finish(delivery, await self._carrier.conclude([step], [attempt]))

    async def _gather(self, delivery: Delivery, step: Step) -> None:
        opened = await self._joins.opened(step)
        if opened is None:
            # It has run already: if it closed something, it gets the old answer, and publishes again.
            await self.broker.finish(delivery, await self._carrier.drop([step]))
            return
        step, outcome = opened
        if isinstance(outcome, Gathered):
            self._statuses.opened(step, outcome)
        else:
            self._statuses.running([step])
        if isinstance(outcome, Gathered) and outcome.pages is not None:
            attempt = await self._runner.gather(step, self.values, outcome)
        elif isinstance(outcome, Gathered):
            (attempt,) = await self._runner.run_pure([step], self.values, outcome)
        else:
            attempt = Attempt(outcome, step.now, replayed=True)
        await self.broker.finish(delivery, await self._carrier.conclude([step], [attempt]))

    async def _refill(self, delivery: Delivery, step: Step) -> None:
        fan_out = _details(step.task, FanOut)
        start, stop = step.task.cursor or (0, len(fan_out.source))
        if start < stop:
            await self.broker.finish(delivery, await self._items.tasks(step, fan_out, start, stop))
        elif (reading := reader(step, fan_out)) is not None:
            await self._apart.leased(delivery, [reading])
        else:
            await self.broker.finish(delivery)

    async def _expire(self, delivery: Delivery, step: Step) -> None:
        task = step.task
        deadline = _details(task, Deadline)
        timer = Timer(task.step, None, encode(task), sleeping=False)
        expire = Expire(deadline.target, timer, deadline.idle, self._born)
        commit = Commit(task.step, scope_of(step.branch.lineage), [expire])
        (answer,) = await self.state.apply(task.execution_id, [commit])
        tasks = followed(answer).tasks
        for merge in answer.opened:
            branch = Branch(merge, step.branch.lineage, Context({}))
            tasks.append(step.task_for(step.node.id, branch, phase="gather"))
        await self.broker.finish(delivery, tasks)

    async def _cancel(self, delivery: Delivery) -> None:
        task = delivery.task
        reason = msgspec.json.decode(task.details) or "cancelled"
        ending = [End("halted", reason=reason)]
        commit = Commit(derive(task.execution_id, "~cancel"), (), ending, task.started_at)
        (answer,) = await self.state.apply(task.execution_id, [commit])
        await self._carrier.end(task, answer)
        await self.broker.finish(delivery)

    async def _park(self, task: Task) -> bool:
        data = encode(task)
        # Of one split there may be several that publish its items, each other ones.
        many = task.twigs or task.cursor or not task.step
        name = derive(data.decode()) if many else f"{task.step}:{task.phase}"
        return await self.state.park(task.execution_id, name, data)

    async def fail(self, task: Task, error: EngineError) -> bool:
        """Fail the scope of a Task that nobody can work on; False if it has ended anyway."""
        alive = False
        info = ErrorInfo(error.message, error.code, error.details, task.current_node)
        data = msgspec.json.encode(info)
        for branch in branches_of(task):
            place = scope_of(branch.lineage)
            operation: Operation = Settle(-1, error=data) if place else End("failed", data)
            commit = Commit(branch.step, place, [operation], task.started_at)
            (answer,) = await self.state.apply(task.execution_id, [commit])
            if not answer.gone:
                alive = True
                self._statuses.lost(task, branch, info)
            await self.broker.publish(followed(answer).tasks)
            await self._carrier.end(task, answer)
        return alive


def _entry(flow: Workflow, task: Task, first: str, node: str, i: int) -> Task:
    """The Task of one of the nodes that an execution starts with."""
    edge = next((e for e in flow.incoming[node] if flow.nodes[e.src].trigger), None)
    return msgspec.structs.replace(
        task,
        current_node=node,
        step=derive(first, edge.id if edge else node),
        edge=edge.id if edge else "",
        from_node=edge.src if edge else None,
        path=f".{i}" if len(flow.entries) > 1 else "",
        pool=flow.nodes[node].pool,
    )


def _details(task: Task, type: Any) -> Any:
    try:
        return msgspec.json.decode(task.details, type=type)
    except msgspec.MsgspecError as error:
        raise MessageError(f"details of a Task of phase '{task.phase}': {error}") from error
