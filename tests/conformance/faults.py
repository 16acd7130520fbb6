"""What befalls an engine that runs in the test's own process: crashes at chosen calls of its ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rune.core.messages import CompletionMessage, NodeStatusMessage, Task
from rune.core.ports import Delivery

if TYPE_CHECKING:
    from tests.conformance.inside import Inside

__all__ = ["Crash", "Faults", "FaultyBroker", "FaultyState"]


class Crash(BaseException):
    """The process is gone: nothing that stands in the engine may catch it."""


class Faults:
    """Counts the calls of ports, and ends the process before or after chosen ones."""

    def __init__(self) -> None:
        self.calls = 0
        self.names: list[str] = []
        self.before: set[int] = set()
        self.after: set[int] = set()
        self.dead = False

    def enter(self, name: str) -> int:
        """A call begins; its number."""
        if self.dead:
            raise Crash
        self.calls += 1
        self.names.append(name)
        if self.calls in self.before:
            self.kill()
        return self.calls

    def leave(self, number: int) -> None:
        """The call has done what it does."""
        if self.dead:
            raise Crash
        if number in self.after:
            self.kill()

    def kill(self) -> None:
        """The process dies here."""
        self.dead = True
        raise Crash


class FaultyState:
    """A State whose every call may be the last."""

    def __init__(self, rig: Inside) -> None:
        self._rig = rig

    @property
    def epoch(self) -> str:
        return self._rig.backend.state.epoch

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            faults = self._rig.faults
            await self._rig.yield_to_others()
            number = faults.enter(name)
            result = await getattr(self._rig.backend.state, name)(*arguments, **named)
            faults.leave(number)
            await self._rig.yield_to_others()
            return result

        return call


class FaultyBroker:
    """A Broker that duplicates what it is told to publish, and whose every call may be the last."""

    def __init__(self, rig: Inside) -> None:
        self._rig = rig

    @property
    def listened(self) -> bool:
        return True

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        self._rig.statuses += statuses

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        rig = self._rig
        number = rig.faults.enter("publish")
        sent = rig.sent(tasks)
        await rig.backend.broker.publish(sent, completions)
        rig.published += len(sent)
        rig.completions += completions
        rig.faults.leave(number)
        await rig.yield_to_others()

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        rig = self._rig
        sent = rig.sent(tasks)
        number = rig.faults.enter("finish")
        if sent and (number in rig.faults.after):
            # The worst moment: published, and not acknowledged.
            await rig.backend.broker.publish(sent)
            rig.published += len(sent)
            rig.faults.kill()
        await rig.backend.broker.finish(delivery, sent)
        rig.published += len(sent)
        rig.unfinished.pop(delivery.tag, None)
        rig.faults.leave(number)
        rig.faults.leave(rig.faults.enter("finished"))

    async def retry(self, delivery: Delivery, delay: float) -> None:
        await self._ended("retry", delivery, delay)
        self._rig.published += 1

    async def give_back(self, delivery: Delivery) -> None:
        await self._ended("give_back", delivery)
        self._rig.published += 1

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        await self._ended("dead_letter", delivery, reason)
        self._rig.dead_letters.append(reason)

    async def _ended(self, name: str, delivery: Delivery, *rest: Any) -> None:
        number = self._rig.faults.enter(name)
        await getattr(self._rig.backend.broker, name)(delivery, *rest)
        self._rig.unfinished.pop(delivery.tag, None)
        self._rig.faults.leave(number)
