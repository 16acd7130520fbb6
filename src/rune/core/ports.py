"""The ports: what the engine asks of a Broker and of State, at the level of meaning.

Every State call may be repeated. A repeated call changes nothing and gets the answer that the first one got,
for as long as that answer can still matter: until the enclosing scope has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from rune.core.messages import CompletionMessage, NodeStatusMessage, Task
from rune.core.operations import (
    Answer,
    BarrierView,
    Commit,
    Lease,
    MergeView,
    Place,
    Seed,
    Timer,
)

if TYPE_CHECKING:
    from rune.core.holding import Holding, Standing

__all__ = ["Broker", "DeadLetter", "Delivery", "State"]


class State(Protocol):
    """Atomic shared working memory of executions.

    StateLost from any call says that State was emptied while the execution was running.
    """

    @property
    def epoch(self) -> str:
        """Which life of State this is: a State that was emptied starts another; empty where it cannot be."""

    async def check(self) -> bool:
        """Look whether State is still in the same life; False if it was emptied."""

    async def apply(self, execution: str, commits: Sequence[Commit]) -> list[Answer]:
        """Carry out each commit atomically, in order; one answer each."""

    async def seed(self, execution: str, seeds: Sequence[Seed]) -> None:
        """Put outcomes on record before their steps, or even their scopes, exist; what stands stays."""

    async def lease(
        self, execution: str, steps: Sequence[tuple[str, Place]], attempt: int, until: float
    ) -> list[Lease]:
        """Ask for the right to run these steps until `until`; each grant counts as a start."""

    async def renew(self, execution: str, step: str, fence: int, until: float) -> bool:
        """Keep a lease; False if it is lost."""

    async def give_back(self, execution: str, steps: Sequence[tuple[str, int]]) -> None:
        """Give (step, fence) leases back unused, as if never started."""

    async def put(self, execution: str, values: Mapping[str, bytes]) -> None:
        """Store values under their hashes, or names that are derived, unless the execution is buried.

        What is stored stays as it is: of two values under one name, the first one counts.
        """

    async def get(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The stored values; what is missing is left out."""

    async def variables(self, execution: str) -> dict[str, bytes]:
        """The variables that the steps of an execution have set so far."""

    async def barrier(self, execution: str, barrier: str) -> BarrierView | None:
        """A closed barrier."""

    async def slots(self, execution: str, barrier: str, start: int, limit: int) -> list[tuple[int, bytes]]:
        """Results of a closed barrier, by item, from `start` on; skipped items are left out."""

    async def merge(self, execution: str, merge: str) -> MergeView | None:
        """A merge that is no longer waiting."""

    async def bury(self, execution: str, keep: Iterable[str], until: float) -> None:
        """Forget an ended execution but for its tombstone and the values `keep`, which go at `until`."""

    async def park(self, execution: str, step: str, task: bytes) -> bool:
        """Keep the Task of a paused execution; False if it is not paused."""

    async def pause(self, execution: str) -> bool:
        """Pause an execution; False if it is not alive."""

    async def unpause(self, execution: str) -> list[bytes]:
        """Resume it: the Tasks that were parked stay parked until `unparked`."""

    async def unparked(self, execution: str) -> None:
        """Forget the parked Tasks of an execution that goes on: they have been published."""

    async def news(self) -> tuple[frozenset[str], frozenset[str]]:
        """The executions that ended lately, and those that are paused."""

    async def live(self) -> list[str]:
        """The executions that have not ended."""

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        """How these executions stand; those that State does not know are left out."""

    async def holding(self, execution: str, limit: int) -> Holding | None:
        """What keeps an execution alive, at most `limit` of each kind; None if it is unknown or buried."""

    async def claim(self, now: float, limit: int, until: float) -> list[Timer]:
        """Take due timers, which nobody else gets before `until`."""

    async def discharge(self, timers: Sequence[Timer]) -> None:
        """Remove timers whose Tasks have been published; a branch that slept in one counts as progress."""

    async def timer(self, execution: str, id: str) -> Timer | None:
        """One timer, if it is armed."""

    async def wake(self, execution: str, timer: str, task: bytes, due: float) -> bool:
        """Have a timer that is never due publish this Task at `due`, another than everybody else's.

        False if there is no such timer, or somebody else was first.
        """

    async def undue(self, execution: str, cursor: str) -> tuple[list[Timer], str]:
        """Some timers of an execution that are never due, and how to go on: "" is the beginning and the end.

        None that stands all the while is missing; one may come twice.
        """

    async def timers(self, limit: int) -> list[Timer]:
        """The timers that are due next, of all executions."""

    async def next_due(self) -> float | None:
        """When the next timer is due."""

    async def armed(self, timeout: float | None) -> None:
        """Return when a timer was armed that is due earlier than those before, or after `timeout` seconds."""


class Delivery(Struct, frozen=True, gc=False):
    """A Task in a worker's hands, until it is finished or given back."""

    tag: int
    task: Task
    redelivered: bool = False
    retries: int = 0


class DeadLetter(Struct, frozen=True):
    """A message nobody can work on, and why."""

    reason: str
    body: bytes
    node: str = ""
    execution: str = ""
    attempt: int = 0
    id: str = ""
    at: float = 0.0
    """When it was given up, where that is known."""


class Broker(Protocol):
    """Moves Tasks, statuses and completions, at least once each."""

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        """Publish, and return when it is safe."""

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        """Publish these Tasks, then acknowledge the delivery."""

    async def retry(self, delivery: Delivery, delay: float) -> None:
        """Deliver this again after `delay` seconds, one retry older."""

    async def give_back(self, delivery: Delivery) -> None:
        """Put a delivery back, as if never taken; one that is finished stays finished."""

    @property
    def listened(self) -> bool:
        """Whether anybody hears statuses; if not, none need be made."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Park a delivery nobody can work on, with the reason."""

    async def letters(self, after: str, limit: int) -> list[DeadLetter]:
        """Dead letters, the oldest first, from the one behind `after` on; they stay where they are."""

    async def letter(self, id: str) -> DeadLetter | None:
        """One dead letter."""

    async def redrive(self, letter: str) -> bool:
        """Put a dead letter back to be delivered; False if there is none. MessageError if it is no Task."""

    async def drop(self, letter: str) -> bool:
        """Forget a dead letter; False if there is none."""

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        """Send statuses; they may be lost in a crash."""

    def deliveries(self, prefetch: int) -> AsyncIterator[Delivery]:
        """Take Tasks, at most `prefetch` unfinished ones at a time."""

    def completions(self) -> AsyncIterator[CompletionMessage]:
        """Completions, each until `completed` is called for it."""

    async def completed(self, completion: CompletionMessage) -> None:
        """Acknowledge a completion."""
