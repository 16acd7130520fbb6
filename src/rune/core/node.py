"""What a node type is: typed parameters, a few facts about itself, and `run`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

if TYPE_CHECKING:
    from rune.core.expressions import Expression
    from rune.core.messages import Frame
    from rune.core.outcome import Failed, Outcome
    from rune.core.workflow import Retry

__all__ = ["Gathered", "NodeType", "Portion", "Role", "StepContext"]


class Role(Enum):
    """What a node type means for the shape of the graph."""

    PLAIN = "plain"
    SPLIT = "split"
    """Opens a scope for each item."""
    GATHER = "gather"
    """Closes the scope of the enclosing split."""
    MERGE = "merge"
    """Joins branches of one scope."""


class Gathered(msgspec.Struct, frozen=True):
    """What a barrier or a merge held when it opened."""

    results: msgspec.Raw = msgspec.Raw(b"[]")
    """A JSON array: one entry an item, in order; or one payload a live arrival, in edge order."""
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    folds: tuple[tuple[float | int, int, float | int, float | int], ...] = ()
    """(sum, count, least, greatest) of each folded number."""
    winner: str | None = None
    """The node whose branch opened a merge that did not wait for all."""
    failed_as: Failed | None = None
    """Where the node type `streams`: how the fan-out as a whole failed, for the node to judge."""
    pages: Callable[[], AsyncIterator[list[tuple[int, bytes]]]] | None = None
    """Where the type `streams`: the items' results as JSON, in order, some at a time; not those skipped."""


class Portion(msgspec.Struct, frozen=True):
    """Some items of a lazy source, and where to read on."""

    items: list[Any]
    position: Any = None
    """Where the next portion begins, as JSON; None: there is no more."""
    labels: list[str] | None = None
    keys: list[str] | None = None


class StepContext(Protocol):
    """What a running node sees of the world."""

    @property
    def step(self) -> str:
        """This step's id."""

    @property
    def key(self) -> str:
        """The idempotency key of its effects: the step's id, in the executions that are redriven another."""

    @property
    def execution_id(self) -> str: ...
    @property
    def workflow_id(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def node_name(self) -> str: ...
    @property
    def attempt(self) -> int:
        """From 1."""

    @property
    def last_attempt(self) -> bool: ...
    @property
    def gathered(self) -> Gathered | None:
        """Set when the node runs because its barrier or merge has opened."""

    @property
    def edge(self) -> str:
        """The edge along which the branch came."""

    @property
    def frame(self) -> Frame | None:
        """The item it is in: the innermost one."""

    @property
    def barrier(self) -> str:
        """The barrier that has opened, when the node runs because one has."""

    def value(self, name: str) -> Any:
        """The value of a name such as `$fetch`, among those the node reads; KeyError if there is none."""

    def evaluate(self, expression: Expression, names: Mapping[str, Any] | None = None) -> Any:
        """Evaluate an expression in this branch, with `names` (such as `$item`) laid over it."""

    def previous(self) -> msgspec.Raw:
        """The output of the node before, or the working payload it left, as JSON bytes."""

    def now(self) -> float:
        """Seconds since the epoch."""

    async def credential(self, reference: str | None = None) -> Mapping[str, Any]:
        """The credential of a reference, without one the node's own; {} when the node names none."""

    async def keep(self, data: bytes) -> tuple[str, bytes]:
        """Store JSON with the execution: its reference `rune:<hash>`, and what was stored, masked."""

    async def fetch(self, reference: str) -> bytes:
        """The JSON behind a reference."""

    async def load(self, reference: str) -> Any:
        """The value behind a reference; it is shared with other steps, and not to be changed."""

    async def variables(self) -> dict[str, Any]:
        """The variables of the execution, as steps have set them so far."""

    async def call(self, workflow: str, input: Any, key: str = "") -> Any:
        """Run another workflow, one that the definition carries, and wait for its result.

        `key` tells several calls of one step apart. NodeError, with the code CHILD_FAILED, if it does not end
        well. Only a node that runs under a lease may do this; it takes no room of the worker while it waits.
        """

    def service(self, name: str) -> Any:
        """A resource that the worker shares among steps, such as the pooled HTTP client."""

    def log(self, level: str, message: str) -> None:
        """Write one line to the worker's log, with secrets masked."""


class NodeType(msgspec.Struct, kw_only=True):
    """One kind of node. Its fields are its parameters; an instance holds those of one step, resolved.

    A field of type `Expression` is compiled, not resolved: the node evaluates it itself.
    """

    name: ClassVar[str] = ""
    """What a definition calls it."""
    role: ClassVar[Role] = Role.PLAIN
    ports: ClassVar[tuple[str, ...]] = ("out",)
    """The ports it may end at, besides `error`; empty when its parameters decide."""
    pure: ClassVar[bool] = False
    """A function of its parameters, and of what it gathers: it may run twice, and leaves no record. It never
    waits, but where it `streams`, and then only for what is kept with the execution."""
    effects: ClassVar[bool] = True
    """It changes the world outside: it runs under a lease."""
    trusted: ClassVar[bool] = False
    """Its output is known to be JSON, and is not looked through for what JSON cannot hold."""
    verbatim: ClassVar[tuple[str, ...]] = ()
    """Parameters that are taken as written, whatever looks like a template in them."""
    signs: ClassVar[bool] = False
    """It asks for credentials by itself: what it gives is looked through for them."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Names it evaluates by itself, besides those in its parameters: the engine has their values at hand."""
    streams: ClassVar[bool] = False
    """Of a gathering node: once its barrier has opened it reads the results page by page, and may wait."""
    trigger: ClassVar[bool] = False
    """It starts executions: one begins with what follows it."""
    calls: ClassVar[str] = ""
    """The parameter that names the workflow it calls, if it calls one: it is written out, not a template."""
    numeric_strings: ClassVar[bool] = False
    """In its expressions, numbers compare as numbers also when one side is a numeric string."""

    @classmethod
    def edge_ports(cls, parameters: Mapping[str, Any]) -> Mapping[tuple[str | int, ...], str]:
        """Where in the parameters, as written, edge ids stand, and the port that each of them means."""
        return {}

    async def run(self, context: StepContext) -> Outcome:
        """Do the work of one step."""
        raise NotImplementedError

    async def read(
        self, context: StepContext, source: Mapping[str, Any], position: Any, index: int, wanted: int
    ) -> Portion:
        """Of a split: some items of the lazy source that it described, from a position on.

        `index` is that of the first of them; about `wanted` are of use. A position of None is the beginning.
        The parameters are resolved for each reading; `source` stays as it was when the fan-out opened.
        What was read first counts, however often a worker dies over it. Retries are those of the node; a
        reading that fails for good fails the join. An execution that is redriven reads the source again:
        what it reuses of items goes by their indices, so it fits only a source that has not changed.
        """
        raise NotImplementedError

    def retry_policy(self) -> Retry | None:
        """How this step wants to be retried, where the definition does not say."""
        return None

    def need(self) -> int | None:
        """Of a merge: how many live arrivals open it; None is all that can come."""
        return None

    def keeps_results(self) -> bool:
        """Of an aggregator: whether the items' results are kept, or only folded."""
        return True
