"""Reading lazy sources: a step of its own for each portion, so that a portion is read once for all.

A fan-out over a lazy source opens without items. Whenever all that are known have been published and its
window still has room, State has somebody read on. The outcome of that is the same fan-out, with what is known
now.
"""

from __future__ import annotations

import msgspec

from rune.core.context import weight
from rune.core.errors import NodeError
from rune.core.ids import derive
from rune.core.json import as_json
from rune.core.node import NodeType, Portion, StepContext
from rune.core.outcome import FanOut
from rune.core.references import reference
from rune.core.step import Step
from rune.engine.fanout import CHUNK
from rune.engine.values import Values

__all__ = ["read_on", "reader"]

_FEWEST = 100
"""Items that are of use, however small the window: what is read at once is stored at once."""
_LARGEST = 64 * 1024 * 1024
"""Bytes of a portion, unless a single value may have more."""

_decode = msgspec.json.Decoder(FanOut).decode


def reader(step: Step, fan_out: FanOut) -> Step | None:
    """The step that reads a fan-out on, of a Task that asks for it; None if it has been read on since."""
    known, _ = step.task.cursor or (0, 0)
    source = fan_out.source
    if source.lazy is None or known != len(source):
        return None
    id = derive(step.branch.step, "~read", str(source.reads))
    return msgspec.structs.replace(step, branch=msgspec.structs.replace(step.branch, step=id))


async def read_on(step: Step, split: NodeType, context: StepContext, values: Values) -> FanOut:
    """What is known of a fan-out after one more portion: its items are new, all else of it is as before."""
    fan_out = _decode(step.task.details)
    source = fan_out.source
    wanted = min(CHUNK, max(_FEWEST, fan_out.window))
    described, position = source.lazy or {}, source.position
    if source.lazy_stored:
        described = await context.load(reference(source.lazy_stored))
    if source.position_stored:
        position = await context.load(reference(source.position_stored))
    portion = await split.read(context, described, position, len(source), wanted)
    _check(portion, values, trusted=split.trusted)
    ended = portion.position is None
    known = msgspec.structs.replace(
        source,
        items=portion.items,
        lazy=None if ended else source.lazy,
        lazy_stored="" if ended else source.lazy_stored,
        position=portion.position,
        position_stored="",
        reads=source.reads + 1,
    )
    return msgspec.structs.replace(fan_out, source=known, labels=portion.labels, keys=portion.keys)


def _check(portion: Portion, values: Values, *, trusted: bool) -> None:
    """Refuse what cannot be worked on."""
    if not isinstance(portion, Portion):
        raise NodeError(f"read {type(portion).__name__}, which is no Portion", "NODE_OUTCOME")
    for texts in (portion.labels, portion.keys):
        if texts is not None and len(texts) != len(portion.items):
            message = f"read {len(portion.items)} items with {len(texts)} labels or keys"
            raise NodeError(message, "NODE_OUTCOME")
    values.check(as_json(portion.position), "the position in its source")
    whole = as_json(portion.items, trusted=trusted)
    if values.fits(whole):
        return
    for item in portion.items:
        values.check(as_json(item, trusted=True), "an item that was read")
    if weight(whole) > _LARGEST:
        message = f"read {weight(whole):,} bytes at once; read fewer items at a time"
        raise NodeError(message, "PORTION_TOO_LARGE", {"bytes": weight(whole), "limit": _LARGEST})
