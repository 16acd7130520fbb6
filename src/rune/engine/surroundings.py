"""What a step sees of the world while its node runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.json import decode

from rune.core.context import Ref
from rune.core.errors import EngineError
from rune.core.expressions import Expression
from rune.core.ids import derive
from rune.core.json import as_json
from rune.core.messages import Caller, Frame
from rune.core.node import Gathered
from rune.core.outcome import Outcome
from rune.core.references import hash_of, reference
from rune.core.scope import BranchScope, Over
from rune.core.step import Step
from rune.engine.slots import Slot
from rune.engine.values import Values

if TYPE_CHECKING:
    from rune.credentials import Credentials
    from rune.engine.calling import Calls

__all__ = ["Means", "Surroundings", "is_cancelled"]

_log = logging.getLogger("rune.nodes")


class Means(Struct):
    """What all steps of a worker are given to work with."""

    clock: Callable[[], float]
    credentials: Credentials
    service: Callable[[str], Any]
    """A shared resource by its name."""
    calls: Calls | None = None
    """How they call other workflows; the engine's."""


class Surroundings(Struct, eq=False, gc=False):
    """The StepContext of one step."""

    _means: Means
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
        return expression.evaluate(Over(names, self.scope) if names else self.scope)

    def previous(self) -> Raw:
        return self.scope.previous()

    def now(self) -> float:
        return self._means.clock()

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
        return await self._means.credentials.resolve(reference) if reference else {}

    async def keep(self, data: bytes) -> tuple[str, bytes]:
        node = self._step.node
        if node.credentials or node.type.signs:
            data = self._means.credentials.mask.data(data)
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
        calls, node = self._means.calls, self._step.node
        if calls is None or self.slot is None or not self._step.fence:
            raise EngineError("only a node that runs under a lease may call", "NODE_OUTCOME")
        given = as_json(input)
        if node.credentials or node.type.signs:
            given = Raw(self._means.credentials.mask.data(bytes(given)))
        name = derive(self.step, "~call", str(self.attempt), key)
        caller = Caller(self.execution_id, name, workflow)
        try:
            await calls.begin(self._step, caller, given)
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
            if self.given_up and self._means.calls is not None and not is_cancelled():
                await self._means.calls.cancel(self.given_up)

    def service(self, name: str) -> Any:
        return self._means.service(name)

    def log(self, level: str, message: str) -> None:
        number = getattr(logging, level.upper(), logging.INFO)
        text = self._means.credentials.mask.text(message)
        _log.log(number, "%s: %s", self.node_name, text, extra={"execution": self.execution_id})


def is_cancelled() -> bool:
    """Whether we are being stopped, rather than the node having let somebody else's cancellation out."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
