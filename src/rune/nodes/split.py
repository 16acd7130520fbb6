"""The split node: one branch for each item of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from rune.core.errors import NodeError
from rune.core.expressions import Expression, to_text
from rune.core.expressions.values import kind_of
from rune.core.node import NodeType, Role, StepContext
from rune.core.outcome import FanOut, Outcome, Policy, Source

__all__ = ["RangeSource", "Split"]

Positive = Annotated[int, Meta(ge=1)]


_LONGEST_TEXT = 200
"""Characters of a label or a key."""


class RangeSource(Struct, frozen=True, kw_only=True):
    """Whole numbers as items, made as they are needed."""

    range: Annotated[
        int | Annotated[list[int], Meta(min_length=1, max_length=3)],
        Meta(description="`n`, `[stop]`, `[start, stop]` or `[start, stop, step]`, without the stop itself."),
    ]


class Split(NodeType, kw_only=True):
    """Run what follows once for each item of a list, up to the aggregator."""

    name: ClassVar = "split"
    role: ClassVar = Role.SPLIT
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    input_array: Annotated[Any, Meta(description="The list, such as `$fetch.body.users`.")] = None
    source: Annotated[RangeSource | None, Meta(description="Items that are made rather than given.")] = None
    batch_size: Annotated[
        Positive | Literal["auto"],
        Meta(description="Items that travel in one message; 1 is RFC 004 to the letter."),
    ] = "auto"
    max_concurrency: Annotated[int | None, Meta(description="Items in flight at most.", ge=1)] = None
    on_item_error: Annotated[
        Literal["collect", "fail_fast", "allow_partial"],
        Meta(description="Collect errors with the results, fail at the first, or fail if no item succeeds."),
    ] = "collect"
    tolerated_failures: Annotated[
        int | str | None,
        Meta(description="Failed items before the whole fails: a number, or a share such as `10%`."),
    ] = None
    label: Annotated[
        Expression | None, Meta(description="Expression of `$item` and `$index`: how to show an item.")
    ] = None
    key: Annotated[
        Expression | None, Meta(description="Expression of `$item` and `$index`: what an item is.")
    ] = None

    def __post_init__(self) -> None:
        if self.source is not None and self.input_array is not None:
            raise ValueError("a split takes `input_array` or `source`, not both")
        if self.source is not None:
            _span(self.source)
        if self.tolerated_failures is not None:
            if self.on_item_error == "fail_fast":
                raise ValueError("`fail_fast` tolerates no failure; leave out `tolerated_failures`")
            _tolerated(self.tolerated_failures, 0)

    async def run(self, context: StepContext) -> Outcome:
        items, source = self._items()
        return FanOut(
            source,
            policy=self._policy(len(items)),
            batch=0 if self.batch_size == "auto" else self.batch_size,
            window=self.max_concurrency or 0,
            labels=_texts(self.label, items, context),
            keys=_texts(self.key, items, context),
        )

    def _items(self) -> tuple[Sequence[Any], Source]:
        if self.source is not None:
            span = _span(self.source)
            if self.label is not None or self.key is not None:
                # What is said of each item is as much as the items: they are stored together.
                return span, Source(items=list(span))
            return span, Source(start=span.start, stop=span.stop, stride=span.step)
        if not isinstance(self.input_array, list):
            raise NodeError(
                f"`input_array` is {kind_of(self.input_array)}, not an array; name a list, "
                "such as `$fetch.body.users`",
                "SPLIT_NOT_ARRAY",
                {"type": kind_of(self.input_array)},
            )
        return self.input_array, Source(items=self.input_array)

    def _policy(self, total: int) -> Policy:
        if self.on_item_error == "fail_fast":
            return Policy(tolerated=0)
        tolerated = None if self.tolerated_failures is None else _tolerated(self.tolerated_failures, total)
        return Policy(tolerated=tolerated, need_success=self.on_item_error == "allow_partial")


def _span(source: RangeSource) -> range:
    bounds = source.range if isinstance(source.range, list) else [source.range]
    return range(*bounds)


def _tolerated(given: int | str, total: int) -> int:
    """A count, or a share of the items rounded down; ValueError if it is neither."""
    text = str(given).strip()
    number = text.removesuffix("%").strip()
    share = text.endswith("%")
    try:
        count = float(number) if share else int(number)
    except ValueError:
        count = -1
    if count < 0 or (share and not count <= 100):
        raise ValueError(f"`tolerated_failures` is a count or a share such as `10%`, not {given!r}")
    return int(total * count / 100) if share else int(count)


def _texts(expression: Expression | None, items: Sequence[Any], context: StepContext) -> list[str] | None:
    if expression is None:
        return None
    return [
        _short(to_text(context.evaluate(expression, {"$item": item, "$index": index})))
        for index, item in enumerate(items)
    ]


def _short(text: str) -> str:
    """A text that travels with every message of its item."""
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
