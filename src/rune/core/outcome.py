"""What a node may answer: a closed set, and all the engine knows of node types."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.context import Ref
from rune.core.errors import ErrorInfo

__all__ = [
    "IN_FLIGHT",
    "Arrive",
    "Call",
    "Done",
    "Failed",
    "FanOut",
    "Join",
    "Outcome",
    "Policy",
    "Sleep",
    "Source",
]

IN_FLIGHT = 4 * 4096
"""Of very many items, those in flight at most, where nothing else is said: in a queue they take room."""


class Done(msgspec.Struct, frozen=True, tag="done", omit_defaults=True, gc=False):
    """The node has ended well; the branch goes on along the edges of `port`."""

    output: Any = None
    port: str | tuple[str, ...] | None = "out"
    """One port or several; None follows no edge at all."""
    working: bool = False
    """The output is `{"$json": payload}` and becomes the branch's working payload."""
    refs: tuple[Ref, ...] = ()
    """Where the output is stored, once the engine found it too large to travel."""
    reused: bool = False
    """It was not found here, but by an earlier execution of the same root."""
    error: ErrorInfo | None = None
    """It has failed, and has itself found the port to go on along: told as `failed`."""
    details: dict[str, Any] | None = None
    """What else its status tells."""
    sets: dict[str, Any] | None = None
    """Variables of the execution that it sets, when it is recorded."""


class Failed(msgspec.Struct, frozen=True, tag="failed", omit_defaults=True):
    """The node has failed for good; its error policy applies."""

    error: ErrorInfo
    engine: bool = False
    """The engine could not go on, rather than the node: `halt` then ends as `failed`, not `halted`."""
    reused: bool = False
    details: dict[str, Any] | None = None
    """As above."""


class Sleep(msgspec.Struct, frozen=True, tag="sleep", omit_defaults=True):
    """The branch rests until `until` (seconds since the epoch), or for ever until released from outside."""

    until: float | None
    output: Any = None


class Call(msgspec.Struct, frozen=True, tag="call", omit_defaults=True):
    """The branch rests until another execution, started for it, has ended; its result is the output."""

    workflow: str
    """The name of one of those that the definition carries."""
    input: Any = None
    stored: str = ""
    """Hash of the input, once the engine found it too large to travel."""


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the items of a fan-out come from: a list by value, a stored list, a range, or a lazy source."""

    items: list[Any] | None = None
    stored: str = ""
    """Hash of a stored list of items; of a lazy source, of the portion read last."""
    start: int = 0
    stop: int = 0
    stride: int = 1
    lazy: dict[str, Any] | None = None
    """What to read items from, portion by portion: the split's own description, fixed when it opens."""
    lazy_stored: str = ""
    """Hash of that description, once the engine found it too large to travel with every portion."""
    position: Any = None
    """Of a lazy source: where the next portion begins; None at first."""
    position_stored: str = ""
    """Hash of the position, as above."""
    at: int = 0
    """Of a lazy source: the index of the first item of the stored portion."""
    reads: int = 0
    """Of a source that is or was lazy: how often it was read."""

    @property
    def count(self) -> msgspec.Raw:
        """What is told of it: how many items there are, null while nobody knows."""
        return msgspec.Raw(b'{"count":null}' if self.lazy is not None else b'{"count":%d}' % len(self))

    def __len__(self) -> int:
        if self.items is not None:
            return len(self.items)
        return len(range(self.start, self.stop, self.stride))


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """When failed items fail the whole fan-out."""

    tolerated: int | None = None
    """More failures than this fail it at once; None tolerates any number."""
    need_success: bool = False
    """It fails at its end if no item succeeded and one failed."""


class FanOut(msgspec.Struct, frozen=True, tag="fanout", omit_defaults=True):
    """The branch becomes one branch an item; a barrier keeps its place until they have ended."""

    source: Source
    policy: Policy = Policy()
    batch: int = 0
    """Items that share one Task; 0 leaves it to the engine."""
    window: int = 0
    """Items in flight at most; 0 is no limit."""
    labels: list[str] | None = None
    keys: list[str] | None = None


class Arrive(msgspec.Struct, frozen=True, tag="arrive", omit_defaults=True, gc=False):
    """The item's branch has reached its barrier with this result."""

    result: Any = None
    folds: tuple[float | int, ...] = ()
    """Numbers the barrier folds (sum, count, least, greatest) in constant space, by position."""


class Join(msgspec.Struct, frozen=True, tag="join", omit_defaults=True, gc=False):
    """The branch has reached a merge."""


Outcome = Done | Failed | Sleep | Call | FanOut | Arrive | Join
