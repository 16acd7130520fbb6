"""Run a node's own code for one step, and turn whatever it does into an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.json import decode

from rune.core.context import Layer, Ref
from rune.core.errors import EngineError, InfrastructureError, NodeError
from rune.core.expressions import Expression, ExpressionError
from rune.core.ids import derive
from rune.core.json import as_json
from rune.core.messages import Caller, Frame
from rune.core.node import Gathered, NodeType
from rune.core.outcome import Call, Done, Failed, Outcome
from rune.core.playbook.references import hash_of, reference
from rune.core.ports import State
from rune.core.scope import BranchScope, context_names
from rune.core.step import Step
from rune.core.workflow import Retry
from rune.engine.reading import read_on
from rune.engine.renewing import kept_alive
from rune.engine.sealing import decode_outcome, sealed, told
from rune.engine.slots import Slot, Slots
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
        self.calls: Calls | None = None
        """How its steps call other workflows; the engine's."""

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
            context = _Context(self, step, values, _scope(step, layers), gathered)
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
            context = _Context(self, step, values, _scope(step, layers), gathered, slot=slot)
            parameters: NodeType = node.parameters.constant or node.parameters.resolve(context.scope)
            policy = node.retry or parameters.retry_policy()
            context.last_attempt = policy is None or context.attempt >= policy.attempts
            reading = step.task.phase == "refill"
            work = read_on(step, parameters, context) if reading else parameters.run(context)
            outcome = await context.through(work)
            return self._concluded(step, outcome, values, started)
        except InfrastructureError:
            raise
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return self._failed(step, error, started, policy)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - node code may raise anything
            return self._failed(step, error, started, policy)

    async def _kept_alive(self, step: Step, state: State, work: Awaitable[Attempt]) -> Attempt:
        """Renew the lease for as long as the step runs."""
        lease = step.node.job.lease or self._settings.lease

        def renew() -> Awaitable[bool]:
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


class _Context(Struct, eq=False, gc=False):
    """The StepContext of one step."""

    _runner: Runner
    _step: Step
    _values: Values
    scope: BranchScope
    gathered: Gathered | None = None
    last_attempt: bool = True
    slot: Slot | None = None
    given_up: list[Caller] = []
    """Calls whose end the node does not wait for any more."""

    @property
    def attempt(self) -> int:
        return self._step.task.attempt

    @property
    def step(self) -> str:
        return self._step.branch.step

    @property
    def key(self) -> str:
        # Steps of the same root share their ids; an effect of another execution is another effect.
        step, task = self._step.branch.step, self._step.task
        return derive(task.execution_id, step) if task.root else step

    @property
    def execution_id(self) -> str:
        return self._step.task.execution_id

    @property
    def workflow_id(self) -> str:
        return self._step.task.workflow_id

    @property
    def node_id(self) -> str:
        return self._step.node.id

    @property
    def node_name(self) -> str:
        return self._step.node.name

    def evaluate(self, expression: Expression, names: Mapping[str, Any] | None = None) -> Any:
        return expression.evaluate(_Over(names, self.scope) if names else self.scope)

    def previous(self) -> Raw:
        return self.scope.previous()

    def now(self) -> float:
        return self._runner._clock()

    @property
    def edge(self) -> str:
        return self._step.branch.edge

    @property
    def frame(self) -> Frame | None:
        return self._step.branch.lineage[-1] if self._step.branch.lineage else None

    @property
    def barrier(self) -> str:
        task = self._step.task
        return decode(task.details, type=str) if task.phase == "gather" else ""

    def value(self, name: str) -> Any:
        return self.scope.lookup(name)

    async def credential(self, reference: str | None = None) -> Mapping[str, Any]:
        reference = reference or self._step.node.credentials
        return await self._runner._credentials.resolve(reference) if reference else {}

    async def keep(self, data: bytes) -> tuple[str, bytes]:
        node = self._step.node
        if node.credentials or node.type.signs:
            data = self._runner._credentials.mask.data(data)
        self._values.check(Raw(data), "a result")
        return reference(await self._values.store(self.execution_id, data)), data

    async def fetch(self, reference: str) -> bytes:
        return await self._values.fetch(self.execution_id, hash_of(reference))

    async def load(self, reference: str) -> Any:
        ref = Ref(hash_of(reference), 0, "a result")
        return (await self._values.load(self.execution_id, [ref]))[ref].value(ref.key)

    async def variables(self) -> dict[str, Any]:
        return await self._values.variables(self.execution_id)

    async def call(self, workflow: str, input: Any, key: str = "") -> Any:
        calls, node = self._runner.calls, self._step.node
        if calls is None or self.slot is None or not self._step.fence:
            raise EngineError("only a node that runs under a lease may call", "NODE_OUTCOME")
        given = as_json(input)
        if node.credentials or node.type.signs:
            given = Raw(self._runner._credentials.mask.data(bytes(given)))
        name = derive(self.step, "~call", str(self.attempt), key)
        caller = await calls.begin(self._step, name, workflow, given)
        try:
            async with self.slot.lent():
                return decode(await calls.result(caller))
        except asyncio.CancelledError:
            self.given_up.append(caller)
            raise

    async def through(self, work: Awaitable[Outcome]) -> Outcome:
        """Do the node's work, then end what it has called and does not wait for any more."""
        try:
            return await work
        finally:
            # Whoever takes over from a worker that stops goes on with them.
            if self.given_up and self._runner.calls is not None and not _is_cancelled():
                await self._runner.calls.cancel(self.given_up)

    def service(self, name: str) -> Any:
        return self._runner.service(name)

    def log(self, level: str, message: str) -> None:
        number = getattr(logging, level.upper(), logging.INFO)
        text = self._runner._credentials.mask.text(message)
        _log.log(number, "%s: %s", self.node_name, text, extra={"execution": self.execution_id})


def _scope(step: Step, layers: Mapping[Ref, Layer]) -> BranchScope:
    return BranchScope(step.flow, step.task.execution_id, step.branch, layers)


class _Over:
    """Names laid over a scope."""

    __slots__ = ("_names", "_scope")

    def __init__(self, names: Mapping[str, Any], scope: BranchScope) -> None:
        self._names = names
        self._scope = scope

    def lookup(self, name: str) -> Any:
        return self._names[name] if name in self._names else self._scope.lookup(name)

    def names(self) -> list[str]:
        return [*self._names, *self._scope.names()]


def _is_cancelled() -> bool:
    """Whether we are being stopped, rather than the node having let somebody else's cancellation out."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _at_once(coroutine: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
    coroutine.close()
    raise EngineError("a pure node waited for something", "NODE_NOT_PURE")
