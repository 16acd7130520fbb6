"""A step of a playbook: run its tasks, once or in a loop of its own, and see where the token goes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from rune.core.errors import ErrorInfo, NodeError
from rune.core.expressions import ExpressionError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.playbook.collection import Chunk, elements
from rune.core.playbook.memory import Memory
from rune.core.playbook.pipeline import Call, Ended, Rest, run_pipeline
from rune.core.playbook.program import Loop, Program, holds
from rune.core.playbook.routing import route
from rune.core.playbook.tool import outcome_of_error
from rune.nodes.playbook.scope import Token, ToolView, branch_of, skipped, token_of

__all__ = ["Pipeline", "Shard"]

_TOLD = 200
"""Task runs that a step's status tells of, at most."""


class Pipeline(NodeType, kw_only=True):
    """Run a pipeline where the token is, and route it."""

    name: ClassVar = "playbook.pipeline"
    signs: ClassVar = True

    program: Any
    steps: Mapping[str, str]

    async def run(self, context: StepContext) -> Outcome:
        program: Program = self.program
        token = token_of(context)
        memory = Memory(
            branch_of(context, self.steps),
            {"ctx": dict(token.ctx), "vars": dict(program.vars), "args": token.args_of(context)},
        )
        if not holds(program.when, memory):
            return skipped(token)
        run = _Run(program, context)
        try:
            async with asyncio.timeout(program.timeout):
                ended = await run.step(memory)
        except TimeoutError:
            error = f"step '{program.step}' took longer than its time-out of {program.timeout:g} s"
            ended = Ended(error=ErrorInfo(error, "STEP_TIMEOUT"))
        return self._routed(memory, ended, run)

    def _routed(self, memory: Memory, ended: Ended, run: _Run) -> Outcome:
        program: Program = self.program
        done = "loop.done" if program.loop else "step.done"
        event = "step.failed" if ended.error else done
        memory.know(**{"_prev": ended.result, program.step: ended.result})
        way = route(program, memory, event, ended.error)
        token = Token(memory["ctx"], way.args, way.unmet)
        details = {"event": event, "tasks": run.told}
        return Done(
            token.output(ended.result),
            way.ports,
            working=True,
            error=ended.error or way.unmet,
            details=details,
        )


class Shard(Pipeline, kw_only=True):
    """Run a pipeline for one element of a fanned-out loop; what it gives is gathered."""

    name: ClassVar = "playbook.shard"

    async def run(self, context: StepContext) -> Outcome:
        program: Program = self.program
        token = token_of(context)
        frame = context.frame
        assert frame is not None
        identity = {
            "loop_id": frame.barrier,
            "shard_id": f"{frame.barrier}.{frame.item_index}",
            "iter_index": frame.item_index,
            "iter_key": frame.key or str(frame.item_index),
        }
        memory = Memory(
            branch_of(context, self.steps),
            {"ctx": dict(token.ctx), "vars": {}, "args": token.args_of(context), "shard": identity},
        )
        run = _Run(program, context)
        try:
            async with asyncio.timeout(program.timeout):
                results, shared = await run.shard(memory, context.value("$item"), frame.item_index)
        except TimeoutError as error:
            message = f"the shard took longer than {program.timeout:g} s"
            raise NodeError(message, "STEP_TIMEOUT", identity, tells={"tasks": run.told}) from error
        except NodeError as error:
            # A shard is tried again as a whole.
            details = {**(error.details or {}), **identity}
            raise NodeError(error.message, error.code, details, tells={"tasks": run.told}) from error
        return Done({"results": results, "shared": shared}, details={**identity, "tasks": run.told})


class _Run:
    """One run of a step on this worker."""

    def __init__(self, program: Program, context: StepContext) -> None:
        self._program = program
        self._context = context
        self._visits: Counter[tuple[int, str]] = Counter()
        self.told: list[dict[str, Any]] = []
        """The tasks as they were run."""

    async def step(self, memory: Memory) -> Ended:
        """Run the pipeline once, or for each element."""
        loop = self._program.loop
        if loop is None:
            return await self.once(memory)
        try:
            items = elements(loop.source.resolve(memory))
        except (ExpressionError, NodeError) as error:
            return Ended(error=ErrorInfo(f"`loop.in` cannot be had: {error}", "PLAYBOOK_LOOP"))
        return await self._loop(loop, items, memory)

    async def shard(self, memory: Memory, item: Any, index: int) -> tuple[list[Any], list[dict[str, Any]]]:
        """The results of one element, or of a chunk of them in turn, and what each adds to what is shared."""
        loop = self._program.loop
        assert loop is not None
        chunk = Chunk(index, [item])
        if isinstance(item, dict) and "~chunk" in item:
            chunk = msgspec.convert(item, Chunk)
        results, shared = [], []
        for at, element in enumerate(chunk.elements(), chunk.at):
            one = _iteration(loop, memory, element, self._program, at)
            ended = await self.once(one)
            if ended.error is not None:
                details = {**(ended.error.details or {}), "elements": len(chunk.elements())}
                raise NodeError(ended.error.message, ended.error.code, details)
            results.append(ended.result)
            shared.append(one.shared)
        return results, shared

    async def _loop(self, loop: Loop, items: Iterable[Any], memory: Memory) -> Ended:
        """Each element in turn, or several at a time; after a failure no more are started."""
        results: list[Any] = []
        failures: list[ErrorInfo] = []
        source = enumerate(items)

        async def take() -> None:
            for at, item in source:
                results.append(None)
                ended = await self.once(_iteration(loop, memory, item, self._program, at))
                results[at] = ended.result
                if ended.error is not None:
                    failures.append(_knowing(ended.error, iter_index=at))
                if failures:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(loop.in_flight if loop.parallel else 1):
                group.create_task(take())
        result = {"results": results, "count": len(results)}
        return Ended(result, failures[0] if failures else None)

    async def once(self, memory: Memory) -> Ended:
        """Run the tasks, as the rules say."""
        try:
            _take_args(self._program, memory)
        except ExpressionError as error:
            return Ended(error=ErrorInfo(f"the step's `args`: {error}", "PLAYBOOK_ARGS"))
        deciding = run_pipeline(self._program.tasks, memory)
        answer: Any = None
        while True:
            try:
                asked = deciding.send(answer)
            except StopIteration as stop:
                ended: Ended = stop.value
                return ended
            if isinstance(asked, Rest):
                await asyncio.sleep(asked.seconds)
                answer = None
            else:
                answer = await self._call(asked, memory)

    def _visit(self, call: Call, memory: Memory) -> str:
        """Which visit of a task this is, for the idempotency key: an attempt more is the same visit."""
        place = (memory["_index"], call.task.label)
        self._visits[place] += call.attempt == 1
        return f"{place[0]}.{place[1]}.{self._visits[place]}"

    async def _call(self, call: Call, memory: Memory) -> dict[str, Any]:
        at, started = self._context.now(), time.perf_counter()
        try:
            tool = call.task.parameters.resolve(memory)
            view = ToolView(self._context, memory, call.task.label, self._visit(call, memory))
            outcome = {"status": "success", "result": None, "error": None, **await tool.call(view)}
        except NodeError as error:
            outcome = outcome_of_error(error)
        except ExpressionError as error:
            outcome = outcome_of_error(NodeError(error.message, error.code))
        duration = round((time.perf_counter() - started) * 1000)
        outcome["meta"] = {"attempt": call.attempt, "duration_ms": duration}
        if len(self.told) < _TOLD:
            self.told.append(
                {
                    "at": at,
                    "task": call.task.label,
                    "kind": call.task.kind,
                    "status": outcome["status"],
                    **outcome["meta"],
                }
            )
        return outcome


def _iteration(loop: Loop, memory: Memory, item: Any, program: Program, index: int = 0) -> Memory:
    bare = {loop.iterator: item} if program.old_names else {}
    return memory.within(iter={loop.iterator: item}, _index=index, **bare)


def _take_args(program: Program, memory: Memory) -> None:
    """The step's own arguments, over those that the token brought."""
    if program.args is not None:
        memory.know(args={**memory["args"], **program.args.resolve(memory)})
    if program.old_names:
        memory.know(input_data=memory["args"])


def _knowing(error: ErrorInfo, **details: Any) -> ErrorInfo:
    return msgspec.structs.replace(error, details={**(error.details or {}), **details})
