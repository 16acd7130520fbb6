"""What Rune has in RabbitMQ: exchanges, queues, bindings, and who may do what; a description without I/O.

Whoever may write to an exchange reaches every queue bound to it, so each kind of message has its own, named
as its queue is, and nobody needs the default exchange.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from rune.core.ids import EVERYBODY, POOL

__all__ = [
    "COMPLETION",
    "CONTROL",
    "DEAD",
    "DEAD_LETTERS",
    "EXECUTION",
    "STATUS",
    "TIMEOUT",
    "Binding",
    "Exchange",
    "Queue",
    "Topology",
    "User",
    "delay_exchange",
    "describe",
    "describe_pool",
    "pool_queue",
]

EXECUTION = "workflow.execution"
TIMEOUT = "workflow.timeout.process"
STATUS = "workflow.node.status"
COMPLETION = "workflow.completion"
CONTROL = "workflow.control"
DEAD_LETTERS = "workflow.execution.dlx"
DEAD = "workflow.execution.dead"

_HOUR = 3_600_000
_DAY = 24 * _HOUR
_PRIORITIES = 10
_NEVER = 2**31 - 1


class Exchange(Struct, frozen=True):
    """Where messages are published; always durable."""

    name: str
    type: Literal["direct", "fanout"] = "direct"


class Queue(Struct, frozen=True):
    """Where messages wait; always durable."""

    name: str
    arguments: dict[str, Any] = {}


class Binding(Struct, frozen=True):
    """Which messages of an exchange a queue gets."""

    exchange: str
    queue: str
    key: str = ""


class User(Struct, frozen=True):
    """A role and its permissions: patterns of names."""

    name: str
    configure: str
    write: str
    read: str


class Topology(Struct, frozen=True):
    """Everything there is."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]
    users: tuple[User, ...]


def pool_queue(pool: str) -> str:
    """The queue of a pool of workers; the empty name is everybody's, too."""
    if pool in ("", EVERYBODY):
        return EXECUTION
    if not re.fullmatch(POOL, pool):
        raise ValueError(
            f"'{pool}' cannot be a pool's name: letters, digits, - and _; not dead, dlx or retry"
        )
    return f"{EXECUTION}.{pool}"


def delay_exchange(delay: float) -> str:
    """The exchange, and the queue behind it, where messages rest for `delay` seconds."""
    milliseconds = round(delay * 1000)
    name = f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"
    return f"{EXECUTION}.retry.{name}"


def describe(
    *, pools: Iterable[str] = (), retry_delays: Sequence[float] = (5, 25, 125), quorum: bool = False
) -> Topology:
    """The topology; `quorum` asks for replicated queues, which have no priorities."""
    work = [*(pool_queue(pool) for pool in ("", *pools)), TIMEOUT]
    delays = [delay_exchange(delay) for delay in retry_delays]
    return Topology(
        exchanges=(
            Exchange(EXECUTION),
            *(Exchange(name, "fanout") for name in delays),
            Exchange(DEAD_LETTERS, "fanout"),
            Exchange(STATUS),
            Exchange(COMPLETION),
            Exchange(CONTROL, "fanout"),
        ),
        queues=(
            *(_work_queue(name, quorum) for name in work),
            *(_delay_queue(delay, quorum) for delay in retry_delays),
            Queue(DEAD, _kind(quorum)),
            # Statuses are transient, which a quorum queue would not honour.
            Queue(STATUS, {"x-message-ttl": _HOUR, "x-max-priority": _PRIORITIES}),
            Queue(COMPLETION, {"x-message-ttl": 7 * _DAY} | _ranked(quorum)),
        ),
        bindings=(
            *(Binding(EXECUTION, name, name) for name in work),
            # Through a delay and back a message keeps its key: the name of the queue it came from.
            *(Binding(name, name) for name in delays),
            Binding(DEAD_LETTERS, DEAD),
            Binding(STATUS, STATUS, STATUS),
            Binding(COMPLETION, COMPLETION, COMPLETION),
        ),
        users=_users(work, delays),
    )


def describe_pool(pool: str, *, quorum: bool = False) -> tuple[Queue, Binding]:
    """What one more pool adds to the topology."""
    name = pool_queue(pool)
    return _work_queue(name, quorum), Binding(EXECUTION, name, name)


def _kind(quorum: bool) -> dict[str, Any]:
    # State counts starts: a broker that gives up what was delivered often, as newer ones do, would also lose
    # what was only prefetched, or looked at.
    return {"x-queue-type": "quorum", "x-delivery-limit": _NEVER} if quorum else {}


def _ranked(quorum: bool) -> dict[str, Any]:
    return _kind(True) if quorum else {"x-max-priority": _PRIORITIES}


def _safely(quorum: bool) -> dict[str, Any]:
    """Have dead-lettering wait for confirms, where that can be had."""
    return {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"} if quorum else {}


def _work_queue(name: str, quorum: bool) -> Queue:
    dead = {"x-message-ttl": _DAY, "x-dead-letter-exchange": DEAD_LETTERS}
    return Queue(name, dead | _ranked(quorum) | _safely(quorum))


def _delay_queue(delay: float, quorum: bool) -> Queue:
    back = {"x-message-ttl": round(delay * 1000), "x-dead-letter-exchange": EXECUTION}
    return Queue(delay_exchange(delay), back | _kind(quorum) | _safely(quorum))


def _users(work: list[str], delays: list[str]) -> tuple[User, ...]:
    """RFC 001 §10.3: who may create, write to and read what."""
    ears = rf"{re.escape(CONTROL)}\..+"
    results = [EXECUTION, *delays, DEAD_LETTERS, STATUS, COMPLETION, CONTROL]
    return (
        # A worker may create nothing but the queue by which it hears what is said to all.
        User("rune-worker", f"^{ears}$", _names(results, ears), _names([*work, CONTROL], ears)),
        User("rune-scheduler", "^$", _names([EXECUTION, STATUS]), "^$"),
        User(
            "rune-master",
            "^$",
            _names([EXECUTION, CONTROL, DEAD_LETTERS]),
            _names([STATUS, COMPLETION, DEAD]),
        ),
    )


def _names(names: Iterable[str], *patterns: str) -> str:
    return f"^({'|'.join([*(re.escape(name) for name in names), *patterns])})$"
