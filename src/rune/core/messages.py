"""The messages of RFC 001 §6, with RFC 004's lineage, RFC 005's `from_node` and our optional fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from rune.core.context import NOBODY, Context, Layer, Ref, Writers
from rune.core.errors import ErrorInfo, MessageError
from rune.core.ids import POOL, derive

__all__ = [
    "NULL",
    "Branch",
    "Caller",
    "CompletionMessage",
    "Frame",
    "NodeStatusMessage",
    "Phase",
    "Sets",
    "Task",
    "branches_of",
    "decode_task",
    "encode",
    "scope_of",
]

Id = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]+\Z", max_length=200)]
NULL = Raw(b"null")
"""An absent raw value: msgspec has no optional ones."""

if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    # To msgspec, `Raw | None` is null and nothing else.
    MaybeRaw = Raw

Phase = Literal["run", "wake", "answer", "gather", "expire", "refill", "cancel"]


class Caller(Struct, frozen=True, array_like=True, gc=False):
    """Who started an execution by a call, and is told how it ended."""

    execution: str
    key: str
    """Which of its calls it was."""
    workflow: str
    """What it calls the workflow."""


class Frame(Struct, frozen=True, omit_defaults=True, gc=False):
    """One entry of the lineage stack: which split, which item of how many (RFC 004 §3.1)."""

    split_node_id: str
    item_index: int
    branch_id: str = ""
    total_items: int | None = None
    barrier: str = ""
    """The split's step, which names its barrier."""
    label: str = ""
    key: str = ""


class Twig(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One branch of a batch: what it does not share with the others."""

    step: str
    item_index: int
    context: dict[str, Raw]
    label: str = ""
    key: str = ""


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """NodeExecutionMessage: run this node for these branches."""

    workflow_id: Id
    execution_id: Id
    current_node: str
    workflow_definition: Raw = NULL
    accumulated_context: dict[str, Raw]
    lineage_stack: tuple[Frame, ...] = ()
    from_node: str | None = None

    definition: str = ""
    """Hash of the definition, where it does not travel whole."""
    step: str = ""
    edge: str = ""
    path: str = ""
    refs: tuple[Ref, ...] = ()
    writers: Writers = NOBODY
    weight: int = 0
    """Bytes of the context, so that nobody counts them again."""
    twigs: tuple[Twig, ...] = ()
    """The branches of a batch; the fields above are then what they share, the last frame without its item."""
    phase: Phase = "run"
    attempt: int = 1
    cursor: tuple[int, int] | None = None
    """Items [from, to) that a refill publishes; an empty range is to be read on from there."""
    expires: float = 0.0
    """When it has waited too long to be started; 0 is never."""
    entry: str = ""
    """The node at which the execution was started by hand, from which joins count."""
    started_at: float = 0.0
    priority: int = 0
    pool: Annotated[str, Meta(pattern=rf"^({POOL})?\Z")] = ""
    """The workers that take it; empty is everybody."""
    root: str = ""
    """The execution whose steps' ids this one shares, where what that knew of them is reused."""
    epoch: str = ""
    """The life of State in which the execution started: another one knows nothing of it."""
    caller: Caller | None = None
    details: Raw = NULL
    """What the phase needs to know."""


class Branch(Struct, frozen=True, gc=False):
    """One path of control: where it stands and what it knows."""

    step: str
    lineage: tuple[Frame, ...]
    context: Context
    path: str = ""
    from_node: str | None = None
    edge: str = ""


class Sets(Struct, frozen=True, omit_defaults=True, gc=False):
    """Variables of the execution that a step has set."""

    turn: int
    """When, among all that did: who has the later turn has the say."""
    values: MaybeRaw = None
    """By name; where they are large, `ref` says where they are stored."""
    ref: Ref | None = None


class NodeStatusMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What became of one branch at one node."""

    workflow_id: str
    execution_id: str
    node_id: str
    status: Literal["running", "success", "failed", "waiting"]
    output: MaybeRaw = None
    error: ErrorInfo | None = None
    executed_at: str
    duration_ms: int
    node_name: str = ""
    lineage_stack: tuple[Frame, ...] = ()
    details: dict[str, Any] | None = None
    """While waiting: `processed`/`total`, `arrived`/`expected`, `resume_at`, or `child`/`workflow`."""
    step: str = ""
    output_ref: Ref | None = None
    attempt: int = 1
    port: str | None = "out"
    """The port by which it left, where it succeeded, or several with commas; null follows no edge."""
    join: str = ""
    """The step of the join at which this branch arrives, and ends."""
    closes: str = ""
    """The fan-out whose items this step gathers; told when it starts."""
    gathered: tuple[int, int] | None = None
    """How many items that fan-out had, and how many of them were skipped."""
    handled: bool = False
    """It failed, and the execution or the item goes on all the same."""
    sets: Sets | None = None
    caller: Caller | None = None


class CompletionMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of an execution."""

    workflow_id: str
    execution_id: str
    status: Literal["completed", "failed", "halted"]
    final_context: dict[str, Raw]
    completed_at: str
    total_duration_ms: int
    error: ErrorInfo | None = None
    reason: str | None = None
    refs: tuple[Ref, ...] = ()
    """Values of the final context that are too large to travel."""
    caller: Caller | None = None


_encode = msgspec.json.Encoder().encode
_task_decoder = msgspec.json.Decoder(Task)


def encode(message: Task | NodeStatusMessage | CompletionMessage) -> bytes:
    """A message as it travels."""
    return _encode(message)


def decode_task(data: bytes) -> Task:
    """The Task in these bytes; MessageError says what is wrong with them."""
    try:
        # Raw values are skipped, not read: make sure here that they are text.
        text = data.decode()
        try:
            task = _task_decoder.decode(text)
        except msgspec.ValidationError:
            if "null" not in text:
                raise
            task = _task_decoder.decode(_without_nulls(text))
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"not a NodeExecutionMessage: {error}") from error
    if task.twigs and not task.lineage_stack:
        raise MessageError("not a NodeExecutionMessage: twigs without a lineage_stack")
    return task


def _without_nulls(text: str) -> bytes:
    """A message in which nothing is null: some languages write so what is empty, or not there."""
    fields = msgspec.json.decode(text, type=dict[str, Raw])
    given = {name: value for name, value in fields.items() if bytes(value) != b"null"}
    if "accumulated_context" in fields:
        given.setdefault("accumulated_context", Raw(b"{}"))
    return msgspec.json.encode(given)


def scope_of(lineage: tuple[Frame, ...]) -> tuple[tuple[str, int], ...]:
    """Where a lineage stands: (barrier, item) from the outermost in."""
    return tuple((frame.barrier, frame.item_index) for frame in lineage)


def branches_of(task: Task) -> list[Branch]:
    """The branches a Task carries. A Task written by hand gets its missing names derived."""
    lineage = _named(task)
    if not task.twigs:
        step = task.step or derive(task.execution_id, "~hand", task.current_node, repr(scope_of(lineage)))
        context = Context(task.accumulated_context, refs=task.refs, counted=task.weight, writers=task.writers)
        return [Branch(step, lineage, context, task.path, task.from_node, task.edge)]
    shared = Layer(task.accumulated_context)
    outer, top = lineage[:-1], lineage[-1]
    return [
        Branch(
            twig.step,
            (
                *outer,
                Frame(
                    top.split_node_id,
                    twig.item_index,
                    f"{top.branch_id}_{twig.item_index}",
                    top.total_items,
                    top.barrier,
                    twig.label,
                    twig.key,
                ),
            ),
            Context(twig.context, shared, task.refs, 0, task.writers),
            task.path,
            task.from_node,
            task.edge,
        )
        for twig in task.twigs
    ]


def _named(task: Task) -> tuple[Frame, ...]:
    if all(frame.barrier for frame in task.lineage_stack):
        return task.lineage_stack
    named: list[Frame] = []
    for frame in task.lineage_stack:
        barrier = frame.barrier or derive(
            task.execution_id, *(f"{f.barrier}.{f.item_index}" for f in named), frame.split_node_id
        )
        named.append(msgspec.structs.replace(frame, barrier=barrier))
    return tuple(named)
