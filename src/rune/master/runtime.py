"""What the master asks of the engine that runs executions, wherever it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Raw, Struct

from rune.core.holding import Holding, Member, Standing
from rune.core.messages import CompletionMessage, NodeStatusMessage
from rune.core.operations import Seed, Timer
from rune.core.ports import DeadLetter
from rune.core.workflow import Workflow
from rune.engine.seeding import Seeds

__all__ = [
    "DeadLetter",
    "Holding",
    "Member",
    "QueueDepth",
    "Runtime",
    "Seed",
    "Seeds",
    "Standing",
    "StatusBatch",
    "Timer",
]


class StatusBatch(Struct, frozen=True):
    """Statuses that came together; `done` is awaited once they are stored, or they come again."""

    messages: list[NodeStatusMessage]
    done: Callable[[], Awaitable[None]]


class QueueDepth(Struct, frozen=True):
    """How much waits in one queue, and how many take from it."""

    name: str
    ready: int
    consumers: int = 0


class Runtime(Protocol):
    """The engine: `rune dev` has one in its own process, `rune master` one behind RabbitMQ and Redis."""

    # --- executions ---

    async def start(
        self,
        flow: Workflow,
        execution: str,
        values: Mapping[str, Raw],
        *,
        priority: int = 0,
        root: str = "",
        seeds: Seeds = (),
    ) -> None:
        """Start an execution with these values, such as `$trigger`; to repeat it changes nothing.

        `root` is the execution whose steps' ids it shares, `seeds` what is known of them already.
        """

    async def cancel(
        self, execution: str, reason: str, *, workflow: str = "-", started_at: float = 0.0
    ) -> None:
        """Ask for an execution's end, as `halted` with the reason; its completion says when it has ended."""

    async def pause(self, execution: str) -> bool:
        """Let nothing further of an execution start; False if it is not alive."""

    async def resume(self, execution: str) -> bool:
        """Let a paused execution go on; False if it is not alive."""

    async def wake(self, execution: str, step: str, payload: Raw) -> bool:
        """End the wait of a step that rests until it is called; False if it does not, or was called before.

        The payload becomes `payload` in the output of the wait.
        """

    # --- looking ---

    async def holding(self, execution: str, limit: int = 100) -> Holding | None:
        """What keeps an execution alive, at most `limit` of each kind; None if State does not know it."""

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        """`alive` or `ended`; those that State does not know, or knows no more, are left out."""

    async def values(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """Stored values by their hashes; what is missing is left out."""

    # --- listening ---

    def statuses(self) -> AsyncIterator[StatusBatch]:
        """Statuses, at least once each."""

    def completions(self) -> AsyncIterator[CompletionMessage]:
        """Completions, each until `completed` is called for it."""

    async def completed(self, completion: CompletionMessage) -> None:
        """Acknowledge a completion."""

    # --- the system ---

    async def letters(self, after: str = "", limit: int = 100) -> list[DeadLetter]:
        """Dead letters, the oldest first, from the one behind `after` on."""

    async def letter(self, id: str) -> DeadLetter | None:
        """One dead letter."""

    async def redrive_letter(self, id: str) -> bool:
        """Put a dead letter back into the queue it came from; False if there is none."""

    async def drop_letter(self, id: str) -> bool:
        """Forget a dead letter; False if there is none."""

    async def queues(self) -> list[QueueDepth]:
        """The queues of messages."""

    async def members(self) -> list[Member]:
        """The workers and schedulers that are there."""

    async def timers(self, limit: int = 100) -> list[Timer]:
        """The timers that are due next."""
