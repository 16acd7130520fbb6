"""Reading lazy sources: a step of its own for each portion, so that a portion is read once for all.

A fan-out over a lazy source opens without items. Whenever all that are known have been published and its
window has room, State has somebody read on. The outcome of that is the same fan-out, with what is known now.
"""

from __future__ import annotations

import msgspec

from rune.core.errors import NodeError
from rune.core.ids import derive
from rune.core.json import as_json
from rune.core.node import NodeType, Portion, StepContext
from rune.core.outcome import FanOut
from rune.core.step import Step
from rune.engine.fanout import CHUNK

__all__ = ["read_on", "reader"]

_FEWEST = 100
"""Items that are of use, however small the window: what is read at once is stored at once."""

_decode = msgspec.json.Decoder(FanOut).decode


def reader(step: Step, fan_out: FanOut) -> Step | None:
    """The step that reads a fan-out on, of a Task that asks for it; None if it has been read on since."""
    known, _ = step.task.cursor or (0, 0)
    source = fan_out.source
    if source.lazy is None or known != len(source):
        return None
    id = derive(step.branch.step, "~read", str(source.reads))
    return msgspec.structs.replace(step, branch=msgspec.structs.replace(step.branch, step=id))


async def read_on(step: Step, split: NodeType, context: StepContext) -> FanOut:
    """What is known of a fan-out after one more portion: its items are new, all else of it is as before."""
    fan_out = _decode(step.task.details)
    source = fan_out.source
    wanted = min(CHUNK, max(_FEWEST, fan_out.window))
    portion = await split.read(context, source.lazy or {}, source.position, len(source), wanted)
    _check(portion)
    known = msgspec.structs.replace(
        source,
        items=portion.items,
        lazy=source.lazy if portion.position is not None else None,
        position=portion.position,
        reads=source.reads + 1,
    )
    return msgspec.structs.replace(fan_out, source=known, labels=portion.labels, keys=portion.keys)


def _check(portion: Portion) -> None:
    """Refuse what cannot be worked on."""
    if not isinstance(portion, Portion):
        raise NodeError(f"read {type(portion).__name__}, which is no Portion", "NODE_OUTCOME")
    for texts in (portion.labels, portion.keys):
        if texts is not None and len(texts) != len(portion.items):
            message = f"read {len(portion.items)} items with {len(texts)} labels or keys"
            raise NodeError(message, "NODE_OUTCOME")
    as_json(portion.position)
