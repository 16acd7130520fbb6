"""Run a node's own code for one step, and turn whatever it does into an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rune.core.context import Layer, Ref
from rune.core.errors import EngineError, InfrastructureError, NodeError
from rune.core.expressions import ExpressionError
from rune.core.node import Gathered, NodeType
from rune.core.outcome import Call, Done, Failed, Outcome
from rune.core.ports import State
from rune.core.scope import BranchScope, context_names
from rune.core.step import Step
from rune.core.workflow import Retry
from rune.engine.reading import read_on
from rune.engine.renewing import kept_alive
from rune.engine.sealing import decode_outcome, sealed, told
from rune.engine.slots import Slot, Slots
from rune.engine.surroundings import Means, Surroundings, is_cancelled
from rune.engine.values import Values
from rune.settings import Settings

if TYPE_CHECKING:
    from rune.credentials import Credentials
    from rune.engine.calling import Calls

__all__ = ["Attempt", "Runner"]

_log = logging.getLogger("rune.nodes")


class Attempt(Struct, frozen=True, gc=False):
    """How one try of a step came out."""

    outcome: Outcome
    started: float
    retry_in: float | None = None
    """Seconds until it is tried again."""
    replayed: bool = False
    """The outcome was on record already."""


class Runner:
    """Runs node code: pure steps at once, others under a lease and within the concurrency limit."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        services: Mapping[str, Callable[[], Any]],
        credentials: Credentials,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._factories = services
        self._services: dict[str, Any] = {}
        self._credentials = credentials
        self._slots = Slots(settings.concurrency)
        self._means = Means(clock, credentials, self.service)

    def let_call(self, calls: Calls) -> None:
        """Have its steps call other workflows so."""
        self._means.calls = calls

    def service(self, name: str) -> Any:
        """A shared resource, made when it is first asked for."""
        if name not in self._services:
            self._services[name] = self._factories[name]()
        return self._services[name]

    async def close(self) -> None:
        """Close the shared resources."""
        services, self._services = self._services, {}
        for service in services.values():
            await service.close()

    async def run_pure(
        self, steps: Sequence[Step], values: Values, gathered: Gathered | None = None
    ) -> list[Attempt]:
        """Run steps that never wait."""
        attempts: list[Attempt] = []
        started = self._clock()
        layers: Mapping[Ref, Layer] = {}
        loaded: tuple[Ref, ...] | None = None
        names = steps[0].node.parameters.names
        for step in steps:
            if step.branch.context.refs and (loaded is None or step.branch.context.refs != loaded):
                wanted = context_names(names, step.flow, step.branch)
                layers = await values.load(step.task.execution_id, step.branch.context.needs(wanted))
                loaded = step.branch.context.refs
            attempts.append(self.try_pure(step, layers, gathered, started, values))
        return attempts

    def try_pure(
        self,
        step: Step,
        layers: Mapping[Ref, Layer],
        gathered: Gathered | None,
        started: float,
        values: Values,
    ) -> Attempt:
        """Run one step that never waits; the stored `layers` it may read are at hand."""
        node = step.node
        policy: Retry | None = None
        try:
            context = Surroundings(self._means, step, values, _scope(step, layers), gathered)
            parameters: NodeType = node.parameters.constant or node.parameters.resolve(context.scope)
            policy = node.retry or parameters.retry_policy()
            return self._concluded(step, _at_once(parameters.run(context)), values, started)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - node code may raise anything
            return self._failed(step, error, started, policy)

    async def run(
        self,
        step: Step,
        values: Values,
        state: State,
        record: bytes | None,
        on_rest: Callable[[], None] | None = None,
    ) -> Attempt:
        """Run one step, or read its record; `on_rest` is called if it has to wait for other executions."""
        started = self._clock()
        if record is not None:
            return Attempt(decode_outcome(record), started, replayed=True)
        job = step.node.job
        if step.fence >= (job.starts or self._settings.max_starts) > 0:
            error = EngineError(
                f"its worker died {step.fence - 1} times while running it",
                "SHARD_EXPIRED" if job.starts else "WORKER_LOST",
                {"starts": step.fence},
            )
            return self._failed(step, error, started, None)
        work = self._in_turn(step, values, on_rest)
        return await (self._kept_alive(step, state, work) if step.fence else work)

    async def _in_turn(self, step: Step, values: Values, on_rest: Callable[[], None] | None) -> Attempt:
        """Run one step when there is room, unless it has waited too long by then."""
        async with self._slots.taken(on_rest) as slot:
            now, expires = self._clock(), step.task.expires
            if expires and now > expires:
                message = f"it waited for more than {step.node.job.queue:g} s to be started"
                return self._failed(step, NodeError(message, "SHARD_EXPIRED"), now, step.node.retry)
            return await self._try(step, values, slot=slot)

    async def gather(self, step: Step, values: Values, gathered: Gathered) -> Attempt:
        """Run a step that reads what was gathered: that changes no more, so that it needs no lease."""
        return await self._try(step, values, gathered)

    async def _try(
        self, step: Step, values: Values, gathered: Gathered | None = None, slot: Slot | None = None
    ) -> Attempt:
        started = self._clock()
        policy: Retry | None = None
        try:
            branch, node = step.branch, step.node
            wanted = context_names(node.parameters.names, step.flow, branch)
            layers = await values.load(step.task.execution_id, branch.context.needs(wanted))
            context = Surroundings(self._means, step, values, _scope(step, layers), gathered, slot=slot)
            parameters: NodeType = node.parameters.constant or node.parameters.resolve(context.scope)
            policy = node.retry or parameters.retry_policy()
            context.last_attempt = policy is None or context.attempt >= policy.attempts
            reading = step.task.phase == "refill"
            work = read_on(step, parameters, context, values) if reading else parameters.run(context)
            outcome = await context.through(work)
            return self._concluded(step, outcome, values, started)
        except InfrastructureError:
            raise
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return self._failed(step, error, started, policy)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - node code may raise anything
            return self._failed(step, error, started, policy)

    async def _kept_alive(self, step: Step, state: State, work: Awaitable[Attempt]) -> Attempt:
        """Renew the lease for as long as the step runs."""
        lease = step.node.job.lease or self._settings.lease

        def renew() -> Awaitable[bool]:
            # If it is lost, another worker runs the step as well: of what both find, the first counts.
            until = self._clock() + lease
            return state.renew(step.task.execution_id, step.branch.step, step.fence, until)

        return await kept_alive(work, renew, lease / 4)

    def _concluded(self, step: Step, outcome: Outcome, values: Values, started: float) -> Attempt:
        made = sealed(step.node, outcome, self._credentials.mask.data)
        if isinstance(made, Done):
            values.check(made.output, "its output")
        elif isinstance(made, Call):
            values.check(made.input, "the input of the call")
            if made.workflow not in step.flow.called:
                raise EngineError(f"the definition carries no workflow {made.workflow!r}", "WORKFLOW_UNKNOWN")
        return Attempt(made, started)

    def _failed(self, step: Step, error: BaseException, started: float, policy: Retry | None) -> Attempt:
        node = step.node
        if not isinstance(error, NodeError | ExpressionError):
            _log.debug("node %s raised", node.id, exc_info=error)
        info = told(node, error, self._credentials.mask.data)
        retry_in = None
        wanted = node.retry is not None or (isinstance(error, NodeError) and error.retryable)
        if wanted and policy is not None and step.task.attempt < policy.attempts:
            retry_in = policy.rest(step.task.attempt)
        tells = error.tells if isinstance(error, NodeError) else None
        return Attempt(Failed(info, isinstance(error, EngineError), details=tells), started, retry_in)


def _scope(step: Step, layers: Mapping[Ref, Layer]) -> BranchScope:
    return BranchScope(step.flow, step.task.execution_id, step.branch, layers)


def _at_once(coroutine: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
    coroutine.close()
    raise EngineError("a pure node waited for something", "NODE_NOT_PURE")
