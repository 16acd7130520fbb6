"""From the innermost item of a step to its whole lineage."""

from __future__ import annotations

from collections.abc import Iterable

from rune.core.messages import Frame
from rune.history.bulk import Table, find
from rune.history.database import Database, Row

__all__ = ["Lineages"]

_SPLIT = Table(
    "history_split",
    (
        *(("execution_id", "text"), ("barrier", "text"), ("node_id", "text")),
        *(("scope", "text"), ("scope_item", "int"), ("total", "int")),
    ),
    2,
)
_ITEM = Table(
    "history_item",
    (
        *(("execution_id", "text"), ("barrier", "text"), ("item_index", "int")),
        *(("label", "text"), ("key", "text")),
    ),
    3,
)


class Lineages:
    """Walks from splits to the splits around them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(
        self, execution: str, places: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[Frame, ...]]:
        """The lineage of each (barrier, item), from the outermost in; unknown ones are left out."""
        wanted = set(places)
        splits: dict[str, Row] = {}
        items = set(wanted)
        missing = {barrier for barrier, _ in wanted}
        while missing:
            found = await find(self._database, _SPLIT, [(execution, barrier) for barrier in missing])
            splits |= {row["barrier"]: row for row in found}
            items |= {(row["scope"], row["scope_item"]) for row in found if row["scope"]}
            missing = {row["scope"] for row in found if row["scope"]} - splits.keys()
        texts = {
            (row["barrier"], row["item_index"]): (row["label"], row["key"])
            for row in await find(self._database, _ITEM, [(execution, *item) for item in items])
        }
        return {
            place: tuple(_frames(execution, place, splits, texts)) for place in wanted if place[0] in splits
        }


def _frames(
    execution: str,
    place: tuple[str, int],
    splits: dict[str, Row],
    texts: dict[tuple[str, int], tuple[str, str]],
) -> list[Frame]:
    barrier, item = place
    split = splits.get(barrier)
    if split is None:
        return []
    outer = _frames(execution, (split["scope"], split["scope_item"]), splits, texts)
    above = outer[-1].branch_id if outer else execution
    label, key = texts.get(place, ("", ""))
    node = split["node_id"]
    return [*outer, Frame(node, item, f"{above}_{node}_{item}", split["total"], barrier, label, key)]
