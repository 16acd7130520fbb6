"""The split node: one branch for each item of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.expressions import Expression, to_text
from rune.core.expressions.values import kind_of
from rune.core.naming import short_key, short_label
from rune.core.node import NodeType, Portion, Role, StepContext
from rune.core.outcome import FanOut, Outcome, Policy, Source
from rune.core.sources import Descriptor, span_of
from rune.core.workflow import Retry

__all__ = ["Split"]

Positive = Annotated[int, Meta(ge=1)]


class Split(NodeType, kw_only=True):
    """Run what follows once for each item of a list, up to the aggregator.

    The items of a `source` are read in portions, while those before them are worked on: files (`lines`,
    `jsonl`, `csv`), rows (`sql`) and pages of a web service (`pages`) may be larger than memory.
    """

    name: ClassVar = "split"
    role: ClassVar = Role.SPLIT
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    input_array: Annotated[Any, Meta(description="The list, such as `$fetch.body.users`.")] = None
    source: Annotated[
        Descriptor | None,
        Meta(
            description="Items that are made or read rather than given: one of `range`, `lines`, `jsonl`, "
            "`csv`, `sql`, `pages`."
        ),
    ] = None
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
        if self.tolerated_failures is not None:
            if self.on_item_error == "fail_fast":
                raise ValueError("`fail_fast` tolerates no failure; leave out `tolerated_failures`")
            _tolerated(self.tolerated_failures, 0)
            if self._lazy and str(self.tolerated_failures).strip().endswith("%"):
                raise ValueError("a share of items that are read is not known; give a count")

    @property
    def _lazy(self) -> bool:
        return self.source is not None and self.source.lazy

    def retry_policy(self) -> Retry | None:
        if not self._lazy:
            return None
        from rune.nodes._sources import RETRY

        return RETRY

    async def run(self, context: StepContext) -> Outcome:
        items, source = self._items()
        return FanOut(
            source,
            policy=self._policy(len(items)),
            batch=0 if self.batch_size == "auto" else self.batch_size,
            window=self.max_concurrency or 0,
            labels=None if self._lazy else _texts(self.label, short_label, items, context),
            keys=None if self._lazy else _texts(self.key, short_key, items, context),
        )

    async def read(
        self, context: StepContext, source: Mapping[str, Any], position: Any, index: int, wanted: int
    ) -> Portion:
        from rune.nodes._sources import read_portion

        portion = await read_portion(source, context, position, wanted)
        return msgspec.structs.replace(
            portion,
            labels=_texts(self.label, short_label, portion.items, context, index),
            keys=_texts(self.key, short_key, portion.items, context, index),
        )

    def _items(self) -> tuple[Sequence[Any], Source]:
        if self.source is not None:
            span = span_of(self.source)
            if span is None:
                return (), Source(lazy=self.source.fixed())
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


def _texts(
    expression: Expression | None,
    cut: Callable[[str], str],
    items: Sequence[Any],
    context: StepContext,
    start: int = 0,
) -> list[str] | None:
    if expression is None:
        return None
    return [
        cut(to_text(context.evaluate(expression, {"$item": item, "$index": index})))
        for index, item in enumerate(items, start)
    ]
