"""Executions that are started by others: how they begin, how their end is told, and who ends them early.

A call has a key, and the child's id follows from the caller's id and the key: to start it twice is to start
it once. Before the child starts, a timer that is never due is armed under the key. When the child ends, its
result becomes a value of the caller; then the timer is due, or gone where no branch sleeps in it. So whoever
finds no timer was told before, and whoever finds the value has nothing to start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from rune.core.context import Context, Ref
from rune.core.errors import EngineError, ErrorInfo, NodeError, ValueMissing
from rune.core.ids import child_of, content_hash, derive, is_child
from rune.core.messages import NULL, Branch, Caller, CompletionMessage, Task, decode_task, encode
from rune.core.operations import Arm, Timer
from rune.core.outcome import Call, Done, Failed
from rune.core.plan import call_key
from rune.core.ports import Broker, State
from rune.core.references import follow, hashes_in
from rune.core.result import final_output
from rune.core.step import Step
from rune.core.workflow import Workflow
from rune.engine.adopting import WHOLE
from rune.engine.flows import Flows
from rune.engine.hearing import Hearing
from rune.engine.values import LARGE, Values, expand

__all__ = ["Calls", "Ended", "caller_name"]

_URGENT = 10
"""The priority of what ends an execution."""


class Ended(Struct, frozen=True, omit_defaults=True):
    """How a child has ended, as its caller is told."""

    status: str
    error: ErrorInfo | None = None
    reason: str | None = None
    result: Raw = NULL
    stored: Ref | None = None
    """Where the result is, if it is too large to stand here."""

    def failure(self, call: Caller) -> NodeError | None:
        """What it means to the caller, if it is not good."""
        if self.status == "completed":
            return None
        why = self.error.message if self.error else self.reason
        details: dict[str, Any] = {"child": child_of(call.execution, call.key), "status": self.status}
        if self.error is not None:
            details["error"] = msgspec.to_builtins(self.error)
        message = f"the workflow {call.workflow!r} {'has failed' if self.error else 'was ended'}"
        return NodeError(f"{message}: {why}" if why else message, "CHILD_FAILED", details)


class Start(Protocol):
    """What starts an execution."""

    async def __call__(
        self,
        flow: Workflow,
        execution: str,
        values: dict[str, Raw],
        *,
        priority: int,
        whole: int,
        caller: Caller,
    ) -> None: ...


class Calls:
    """Starts children, tells their callers, and ends those whose callers have ended."""

    def __init__(
        self,
        state: State,
        broker: Broker,
        values: Values,
        flows: Flows,
        start: Start,
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._broker = broker
        self._values = values
        self._flows = flows
        self._start = start
        self._clock = clock
        self._hearing = Hearing(self._ended)

    # --- a branch that sleeps meanwhile ---

    async def place(self, step: Step, call: Call) -> None:
        """Start the child of a branch that sleeps; if it has ended, wake the branch."""
        caller = _caller(step, call_key(step.branch.step, step.task.attempt), call.workflow)
        if await self._find(caller.execution, caller.key) is not None:
            timer = await self._state.timer(caller.execution, caller.key)
            if timer is not None:
                await self._wake(timer)
            return
        given = call.input
        if call.stored:
            given = Raw(await self._values.fetch(caller.execution, call.stored))
        await self._begin(step, caller, given)

    async def answer(self, step: Step) -> Done | Failed:
        """What the child of a branch that was woken has come to."""
        key = call_key(step.branch.step, step.task.attempt)
        ended = await self._find(step.task.execution_id, key)
        if ended is None:
            raise ValueMissing("the result of a call is gone", {"call": key})
        caller = _caller(step, key, _name_in(step.task))
        error = ended.failure(caller)
        if error is not None:
            return Failed(ErrorInfo(error.message, error.code, error.details, step.node.id))
        details = {"child": child_of(caller.execution, key), "workflow": caller.workflow}
        if ended.stored is not None:
            refs = (msgspec.structs.replace(ended.stored, key=f"${step.node.id}"),)
            return Done(None, refs=refs, details=details)
        return Done(ended.result, details=details)

    # --- a node that waits for it ---

    async def begin(self, step: Step, caller: Caller, given: Raw) -> None:
        """Start a child for a step that goes on running, unless it has ended already."""
        if await self._find(caller.execution, caller.key) is not None:
            return
        if caller.workflow not in step.flow.called:
            raise EngineError(f"the definition carries no workflow {caller.workflow!r}", "WORKFLOW_UNKNOWN")
        self._values.check(given, "the input")
        branch = Branch(step.branch.step, step.branch.lineage, Context({}))
        name = Raw(msgspec.json.encode(caller.workflow))
        task = step.task_for(step.node.id, branch, phase="answer", details=name)
        timer = Timer(caller.key, None, encode(task), sleeping=False)
        (answer,) = await self._state.apply(caller.execution, [step.commit([Arm(timer)])])
        if answer.gone or answer.dropped:
            raise EngineError("what calls has ended", "CALLER_ENDED")
        await self._begin(step, caller, given)

    async def result(self, caller: Caller) -> Raw:
        """Wait for the end of a child; its result, or NodeError."""
        ended = await self._hearing.hear(caller.execution, caller.key)
        error = ended.failure(caller)
        if error is not None:
            raise error
        if ended.stored is not None:
            return Raw(await self._values.fetch(caller.execution, ended.stored.hash))
        return ended.result

    async def cancel(self, callers: Iterable[Caller]) -> None:
        """End children that nobody waits for any more."""
        await self._broker.publish([_cancel(caller) for caller in callers])

    # --- the end of either ---

    async def caller_of(self, task: Task) -> Caller | None:
        """Who called the execution that ends with this Task."""
        if task.caller is not None or not is_child(task.execution_id):
            return task.caller
        # A Task from outside, such as one that cancels, does not say.
        data = await self._values.find(task.execution_id, caller_name(task.execution_id))
        return None if data is None else msgspec.json.decode(data, type=Caller)

    async def orphans(self, task: Task) -> AsyncIterator[list[Task]]:
        """What ends the children that an execution which has ended leaves behind, some at a time."""
        flow = self._flows.known(task)
        if flow is not None and not flow.called:
            return
        cursor = ""
        while True:
            timers, cursor = await self._state.undue(task.execution_id, cursor)
            resting = [(timer.id, decode_task(timer.task)) for timer in timers if b'"answer"' in timer.task]
            found = [
                _cancel(Caller(task.execution_id, key, _name_in(asleep)))
                for key, asleep in resting
                if asleep.phase == "answer"
            ]
            if found:
                yield found
            if not cursor:
                return

    async def tell(self, task: Task, completion: CompletionMessage) -> None:
        """Tell whoever called how it ended, once; to repeat it changes nothing."""
        caller = completion.caller
        if caller is None:
            return
        timer = await self._state.timer(caller.execution, caller.key)
        if timer is not None:
            result = await self._result(task, completion)
            ended, values = self._told(completion, result)
            await self._carry(completion.execution_id, caller.execution, bytes(result))
            data = {_result_name(caller.key): msgspec.json.encode(ended), **values}
            await self._values.put(caller.execution, data)
            if timer.sleeping:
                await self._wake(timer)
            else:
                await self._state.discharge([timer])
        self._hearing.told(caller.execution, caller.key)

    async def _result(self, task: Task, completion: CompletionMessage) -> Raw:
        if completion.status != "completed":
            return NULL
        layers = await self._values.load(task.execution_id, completion.refs)
        context = expand(completion.refs, layers) | completion.final_context
        return final_output(context, await self._flows.of(task))

    def _told(self, completion: CompletionMessage, result: Raw) -> tuple[Ended, dict[str, bytes]]:
        data = bytes(result)
        try:
            self._values.check(result, f"the result of {completion.execution_id}")
        except EngineError as error:
            return Ended("failed", ErrorInfo(error.message, error.code, error.details)), {}
        ended = Ended(completion.status, completion.error, completion.reason, result)
        if len(data) <= LARGE:
            return ended, {}
        stored = Ref(content_hash(data), len(data), "")
        return msgspec.structs.replace(ended, result=NULL, stored=stored), {stored.hash: data}

    # --- pieces ---

    async def _begin(self, step: Step, caller: Caller, given: Raw) -> None:
        child = child_of(caller.execution, caller.key)
        await self._carry(caller.execution, child, bytes(given))
        flow = self._flows.compiled(bytes(step.flow.called[caller.workflow]))
        # There may be many of them: what is small is not stored for each.
        await self._start(
            flow, child, {"$trigger": given}, priority=step.task.priority, whole=WHOLE, caller=caller
        )

    async def _find(self, execution: str, key: str) -> Ended | None:
        return (await self._ended(execution, [key])).get(key)

    async def _ended(self, execution: str, keys: Sequence[str]) -> dict[str, Ended]:
        """How those of an execution's calls have ended that have."""
        names = {_result_name(key): key for key in keys}
        found = await self._state.get(execution, list(names))
        return {names[name]: msgspec.json.decode(data, type=Ended) for name, data in found.items()}

    async def _wake(self, timer: Timer) -> None:
        await self._state.wake(timer.execution, timer.id, timer.task, self._clock())

    async def _carry(self, source: str, target: str, data: bytes) -> None:
        """Give one execution the values of another that JSON refers to, and those they refer to in turn."""
        async for _, found in follow(hashes_in(data), partial(self._state.get, source)):
            if found:
                await self._values.put(target, found)


def caller_name(execution: str) -> str:
    """The value of an execution that says who called it."""
    return derive(execution, "~caller")


def _result_name(key: str) -> str:
    """The value of a caller that says how a child has ended."""
    return derive(key, "~result")


def _caller(step: Step, key: str, workflow: str) -> Caller:
    return Caller(step.task.execution_id, key, workflow)


def _name_in(task: Task) -> str:
    """The name of the workflow that the branch in a Task has called."""
    return msgspec.json.decode(task.details, type=str)


def _cancel(caller: Caller) -> Task:
    return Task(
        workflow_id="-",
        execution_id=child_of(caller.execution, caller.key),
        current_node="",
        accumulated_context={},
        phase="cancel",
        details=Raw(msgspec.json.encode(f"its caller {caller.execution} waits for it no more")),
        priority=_URGENT,
        caller=caller,
    )
