"""Carry out what `plan` decides: ask State, tell the outside, and say what to publish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeGuard

import msgspec

from rune.core.context import Ref, weight
from rune.core.ids import content_hash, derive
from rune.core.messages import Branch, Task, encode
from rune.core.operations import Answer, Commit, Timer, TryAgain
from rune.core.outcome import Call, Done, FanOut, Outcome
from rune.core.plan import pass_on, plan, simply
from rune.core.ports import Broker, State
from rune.core.scope import unwrapped
from rune.core.step import Follow, Plan, Step
from rune.core.workflow import Edge
from rune.engine.calling import Calls
from rune.engine.completion import Completions
from rune.engine.fanout import Items, pack
from rune.engine.running import Attempt
from rune.engine.sealing import decode_outcome
from rune.engine.statuses import Statuses
from rune.engine.values import LARGE, Values, stored_sets

__all__ = ["Carrier"]

_REMEMBERED = 10_000
"""Ended executions whose late Tasks are dropped without a look at State."""


class Carrier:
    """Turns attempts into what follows them."""

    def __init__(
        self,
        state: State,
        broker: Broker,
        *,
        calls: Calls,
        values: Values,
        items: Items,
        statuses: Statuses,
        clock: Callable[[], float],
        retention: float,
        on_end: Callable[[str], None],
    ) -> None:
        self.ended: dict[str, None] = {}
        self._state = state
        self._calls = calls
        self._values = values
        self._items = items
        self._statuses = statuses
        self._clock = clock
        self._on_end = on_end
        self._completions = Completions(state, broker, calls, values, retention)

    async def conclude(self, steps: Sequence[Step], attempts: Sequence[Attempt]) -> list[Task]:
        """Let `plan` decide for each step, ask State for all of them at once, and say what to publish."""
        plans: list[tuple[Step, Plan | Follow]] = []
        for step, attempt in zip(steps, attempts, strict=True):
            outcome = attempt.outcome
            if _too_large(outcome):
                outcome = await self._stored(step, outcome)
            if isinstance(outcome, Done) and outcome.sets and not attempt.replayed:
                ref, data = stored_sets(outcome.sets)
                if ref is not None:
                    await self._values.put(step.task.execution_id, {ref.hash: data})
            plans.append(self._plan(step, attempt, outcome))
        follows = await self._drive(plans)
        self._statuses.concluded(steps, attempts, follows)
        calls = [(step, follow.call) for step, follow in zip(steps, follows, strict=True) if follow.call]
        await asyncio.gather(*(self._calls.place(step, call) for step, call in calls))
        tasks: list[Task] = []
        children: list[tuple[Edge, Branch]] = []
        for step, follow in zip(steps, follows, strict=True):
            tasks += follow.tasks
            children += follow.children
            if follow.fan_out is not None:
                tasks += await self._items.tasks(step, follow.fan_out)
            await self.end(step.task, follow.answer)
        if children:
            children = await self._values.fold_all(steps[0].task.execution_id, children)
            tasks += pack(steps[0].task, children)
        return tasks

    async def drop(self, steps: Sequence[Step]) -> list[Task]:
        """End branches whose item has failed, or say again what they closed."""
        follows = await self._drive([(step, simply()) for step in steps])
        for step, follow in zip(steps, follows, strict=True):
            await self.end(step.task, follow.answer)
        return [task for follow in follows for task in follow.tasks]

    async def end(self, task: Task, answer: Answer) -> None:
        """Say that the execution has ended, if this answer is the one to say so, and bury it."""
        if answer.ending is None:
            return
        await self._completions.announce(task, answer.ending)
        self.ended[task.execution_id] = None
        self._on_end(task.execution_id)
        if len(self.ended) > _REMEMBERED:
            del self.ended[next(iter(self.ended))]

    def _plan(self, step: Step, attempt: Attempt, outcome: Outcome) -> tuple[Step, Plan | Follow]:
        if attempt.retry_in is not None and not attempt.replayed:
            return step, simply(self._again(step, attempt.retry_in))
        # What ran under a lease is recorded, which also ends the lease.
        if not attempt.replayed and (step.fence or not step.node.deterministic):
            step = msgspec.structs.replace(step, recorded=msgspec.json.encode(outcome))
        return step, pass_on(step, outcome) or plan(step, outcome, decode_outcome)

    def _again(self, step: Step, rest: float) -> TryAgain:
        number = step.task.attempt
        due, queue = self._clock() + rest, step.node.job.queue
        expires = due + queue if queue else 0.0
        task = step.again(attempt=number + 1, expires=expires)
        id = derive(step.branch.step, "~again", str(number))
        return TryAgain(number, Timer(id, due, encode(task)))

    async def _stored(self, step: Step, outcome: Done | Call | FanOut) -> Outcome:
        """A large outcome, stored: what is left of it is where."""
        if isinstance(outcome, Call):
            hash = await self._values.store(step.task.execution_id, bytes(outcome.input))
            return msgspec.structs.replace(outcome, input=None, stored=hash)
        if isinstance(outcome, FanOut):
            if step.task.root:
                outcome = await self._items.edited(step, outcome)
            if step.task.phase == "refill":
                return await self._items.portion(step.task.execution_id, outcome)
            return await self._items.fixed(step.task.execution_id, outcome)
        values = {f"${step.node.id}": outcome.output}
        if outcome.working:
            values["$json"] = unwrapped(outcome.output)
        data = {key: bytes(value) for key, value in values.items()}
        refs = tuple(Ref(content_hash(value), len(value), key) for key, value in data.items())
        await self._values.put(
            step.task.execution_id, dict(zip((r.hash for r in refs), data.values(), strict=True))
        )
        return msgspec.structs.replace(outcome, output=None, refs=refs)

    async def _drive(self, plans: Sequence[tuple[Step, Plan | Follow]]) -> list[Follow]:
        """Run plans side by side, each round of questions as one State call."""
        follows: dict[int, Follow] = {}
        answers: dict[int, Answer | None] = dict.fromkeys(range(len(plans)))
        while answers:
            commits: dict[int, Commit] = {}
            for i, answer in answers.items():
                step, deciding = plans[i]
                if isinstance(deciding, Follow):
                    follows[i] = deciding
                    continue
                try:
                    operations = next(deciding) if answer is None else deciding.send(answer)
                except StopIteration as stop:
                    follows[i] = stop.value
                    continue
                commits[i] = step.commit(operations)
            if not commits:
                break
            execution = plans[0][0].task.execution_id
            answered = await self._state.apply(execution, list(commits.values()))
            answers = dict(zip(commits, answered, strict=True))
        return [follows[i] for i in range(len(plans))]


def _too_large(outcome: Outcome) -> TypeGuard[Done | Call | FanOut]:
    """Whether an outcome has to be stored before it is kept or passed on."""
    if isinstance(outcome, Call):
        return not outcome.stored and weight(outcome.input) > LARGE
    if isinstance(outcome, Done):
        return not outcome.refs and weight(outcome.output) > LARGE
    return isinstance(outcome, FanOut)
