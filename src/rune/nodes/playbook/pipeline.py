"""A step of a playbook: run its tasks, once or in a loop of its own, and see where the token goes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from rune.core.errors import ErrorInfo, NodeError
from rune.core.expressions import ExpressionError, to_text
from rune.core.json import as_json
from rune.core.messages import NULL
from rune.core.naming import short_key
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.playbook.collection import Chunk, chunk_of, elements, lazy_of
from rune.core.playbook.identity import identity_of
from rune.core.playbook.memory import Memory
from rune.core.playbook.pipeline import Call, Ended, Rest, run_pipeline
from rune.core.playbook.program import Loop, Program, holds
from rune.core.playbook.reducing import check_shared
from rune.core.playbook.references import LARGE
from rune.core.playbook.routing import read_by, route
from rune.core.playbook.tool import outcome_of_error
from rune.nodes._results import kept, loaded
from rune.nodes._sources import read_items
from rune.nodes.playbook.fanin import ELEMENTS, Elements, Left
from rune.nodes.playbook.looping import Collected, Supply, side_by_side
from rune.nodes.playbook.scope import Token, ToolView, arrived, branch_of, collection_of, skipped, token_of

__all__ = ["Pipeline", "Shard"]

_TOLD = 200
"""Task runs that a step's status tells of, at most."""
_TURN = 0.02
"""Seconds after which a step lets others run."""


class Pipeline(NodeType, kw_only=True):
    """Run a pipeline where the token is, and route it."""

    name: ClassVar = "playbook.pipeline"
    signs: ClassVar = True

    program: Any
    steps: Mapping[str, str]

    async def run(self, context: StepContext) -> Outcome:
        program: Program = self.program
        token = await arrived(context, program)
        memory = Memory(
            await branch_of(context, self.steps).loading(program.reads),
            {"ctx": dict(token.ctx), "vars": dict(program.vars), "args": token.args_of(context)},
        )
        if not holds(program.when, memory):
            return skipped(token)
        run = _Run(program, context, self.steps)
        try:
            async with asyncio.timeout(program.timeout) as limit:
                ended = await run.step(memory)
        except TimeoutError:
            if not limit.expired():
                raise
            error = f"step '{program.step}' took longer than its time-out of {program.timeout:g} s"
            ended = Ended(error=ErrorInfo(error, "STEP_TIMEOUT"))
        return await self._routed(context, memory, ended, run, token.ctx)

    async def _routed(
        self, context: StepContext, memory: Memory, ended: Ended, run: _Run, before: Mapping[str, Any]
    ) -> Outcome:
        program: Program = self.program
        result = await kept(context, ended.result) if program.loop is None else ended.result
        done = "loop.done" if program.loop else "step.done"
        event = "step.failed" if ended.error else done
        if read_by(program.arcs) & {"shared", "_prev", program.step}:
            value = ended.result
            if program.loop is not None and value is not None:
                value = await loaded(context, _plain(value))
                memory.know(shared=value.get("shared", {}))
            memory.know_result(program.step, value)
        way = route(program, memory, event, ended.error)
        token = Token(memory["ctx"], way.args, way.unmet)
        details = {"event": event, "tasks": run.told}
        written = {name: value for name, value in token.ctx.items() if before.get(name, token) is not value}
        return Done(
            token.output(result),
            way.ports,
            working=True,
            error=ended.error or way.unmet,
            details=details,
            sets=written or None,
        )


class Shard(Pipeline, kw_only=True):
    """Run a pipeline for one element of a fanned-out loop; what it gives is gathered."""

    name: ClassVar = "playbook.shard"
    trusted: ClassVar = True

    chunked: bool = False
    """Several elements may share a shard."""

    async def run(self, context: StepContext) -> Outcome:
        program: Program = self.program
        token = token_of(context)
        frame = context.frame
        assert frame is not None
        identity = identity_of(frame.barrier, frame.item_index, frame.key)
        memory = Memory(
            await branch_of(context, self.steps).loading(program.reads),
            {
                "ctx": dict(token.ctx),
                "vars": dict(program.vars),
                "args": token.args_of(context),
                "shard": identity,
            },
        )
        run = _Run(program, context, self.steps)
        item = context.value("$item")
        chunk = chunk_of(item) if self.chunked else None
        place = None if chunk is None else Elements(chunk.at, len(chunk.elements()), chunk.of)
        itself = {**identity, **({ELEMENTS: msgspec.to_builtins(place)} if place else {})}
        try:
            async with asyncio.timeout(program.timeout) as limit:
                left = await run.shard(memory, chunk or Chunk(frame.item_index, [item]), place)
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"the shard took longer than {program.timeout:g} s"
            raise NodeError(message, "STEP_TIMEOUT", itself, tells={"tasks": run.told}) from error
        except NodeError as error:
            # A shard is tried again as a whole. Which elements it had is not for a task to say.
            said = {name: detail for name, detail in (error.details or {}).items() if name != ELEMENTS}
            details = {**said, **itself}
            raise NodeError(error.message, error.code, details, tells={"tasks": run.told}) from error
        return Done(left, details={**identity, "tasks": run.told})


class _Run:
    """One run of a step on this worker."""

    def __init__(self, program: Program, context: StepContext, steps: Mapping[str, str]) -> None:
        self._program = program
        self._context = context
        self._steps = steps
        self._due = time.monotonic() + _TURN
        self.told: list[dict[str, Any]] = []
        """The tasks as they were run."""

    async def step(self, memory: Memory) -> Ended:
        """Run the pipeline once, or for each element."""
        loop = self._program.loop
        if loop is None:
            return await self.once(memory)
        try:
            value = await collection_of(self._context, self._steps, loop, memory)
            described = lazy_of(value)
            items = _each(elements(value)) if described is None else read_items(described, self._context)
        except (ExpressionError, NodeError) as error:
            return Ended(error=ErrorInfo(f"`loop.in` cannot be had: {error}", "PLAYBOOK_LOOP"))
        async with aclosing(items):
            return await self._loop(loop, items, memory)

    async def shard(self, memory: Memory, chunk: Chunk, place: Elements | None) -> Left:
        """The results of one element, or of many in turn, and what each adds to what is shared."""
        loop = self._program.loop
        assert loop is not None
        results: list[Raw] = []
        shared: list[Raw] = []
        for at, element in enumerate(chunk.elements(), chunk.at):
            one = _iteration(loop, memory, element, self._program, at)
            if place is not None:
                _name(loop, one, memory["shard"], at)
            ended = await self.once(one)
            if ended.error is not None:
                raise NodeError(ended.error.message, ended.error.code, ended.error.details)
            check_shared(self._program.reducers, one.shared)
            results.append(await kept(self._context, ended.result))
            if one.shared:
                shared.append(as_json(one.shared))
        if place is not None and sum(len(memoryview(raw)) + 1 for raw in results) > LARGE:
            reference = await kept(self._context, results)
            return Left(kept=msgspec.json.decode(reference), shared=shared, elements=place)
        return Left(results, shared=shared, elements=place)

    async def _loop(self, loop: Loop, items: AsyncIterator[Any], memory: Memory) -> Ended:
        """Each element in turn, or several at a time; after a failure no more are started."""
        program = self._program
        in_flight = loop.in_flight if loop.parallel else 1
        collected = Collected(self._context, program.reducers)
        supply = Supply(items, lambda index: collected.room(index, in_flight))

        async def take() -> None:
            while (found := await supply.following()) is not None:
                at, item = found
                one = _iteration(loop, memory, item, program, at)
                result, error = await self._element(loop, one, at)
                # What a failed one wrote for all does not count.
                await collected.put(at, bytes(result), {} if error else one.shared)
                if error is not None:
                    supply.fail(_knowing(error, iter_index=at))

        await side_by_side(in_flight, take)
        return Ended(await collected.whole(), supply.failure or collected.error)

    async def _element(self, loop: Loop, one: Memory, at: int) -> tuple[Raw, ErrorInfo | None]:
        """What one iteration gave, as it is kept, and the error if it failed."""
        try:
            _name(loop, one, identity_of(self._context.step, at, ""), at)
            ended = await self.once(one)
            if ended.error is None:
                check_shared(self._program.reducers, one.shared)
            return await kept(self._context, ended.result), ended.error
        except NodeError as error:
            return NULL, ErrorInfo(error.message, error.code, error.details)

    async def once(self, memory: Memory) -> Ended:
        """Run the tasks, as the rules say."""
        try:
            _take_args(self._program, memory)
        except ExpressionError as error:
            return Ended(error=ErrorInfo(f"the step's `args`: {error}", "PLAYBOOK_ARGS"))
        deciding = run_pipeline(self._program.tasks, memory)
        visits: Counter[str] = Counter()
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
                await self._pause()
                answer = await self._call(asked, memory, visits)

    async def _pause(self) -> None:
        """Let others run now and then: tasks that never wait would keep the worker to themselves."""
        now = time.monotonic()
        if now > self._due:
            self._due = now + _TURN
            await asyncio.sleep(0)

    async def _call(self, call: Call, memory: Memory, visits: Counter[str]) -> dict[str, Any]:
        at, started = self._context.now(), time.perf_counter()
        try:
            tool = call.task.parameters.resolve(memory)
            visit = _visit(call, memory, visits)
            view = ToolView(self._context, memory, call.task.label, visit, call.attempt)
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


async def _each(items: Iterable[Any]) -> AsyncGenerator[Any, None]:
    for item in items:
        yield item


def _iteration(loop: Loop, memory: Memory, item: Any, program: Program, index: int = 0) -> Memory:
    bare = {loop.iterator: item} if program.old_names and loop.iterator not in memory else {}
    return memory.within(iter={loop.iterator: item}, _index=index, **bare)


def _name(loop: Loop, one: Memory, shard: Mapping[str, Any], index: int) -> None:
    """Let an iteration know what it is, as one that has a shard to itself does."""
    try:
        key = str(index) if loop.key is None else short_key(to_text(loop.key.resolve(one)))
    except ExpressionError as error:
        raise NodeError(f"`fanout.key`: {error}", "PLAYBOOK_LOOP") from error
    one.know(shard={**shard, "iter_index": index, "iter_key": key})


def _visit(call: Call, memory: Memory, visits: Counter[str]) -> str:
    """Which visit of a task this is, for the idempotency key: an attempt more is the same visit."""
    label = call.task.label
    visits[label] += call.attempt == 1
    return f"{memory['_index']}.{label}.{visits[label]}"


def _take_args(program: Program, memory: Memory) -> None:
    """The step's own arguments, over those that the token brought."""
    if program.args is not None:
        memory.know(args={**memory["args"], **program.args.resolve(memory)})
    if program.old_names:
        memory.know(input_data=memory["args"])


def _plain(result: Any) -> Any:
    """The result of a loop, with its list as one."""
    return msgspec.json.decode(msgspec.json.encode(result))


def _knowing(error: ErrorInfo, **details: Any) -> ErrorInfo:
    return msgspec.structs.replace(error, details={**(error.details or {}), **details})
