"""The log of a playbook's execution, page by page, in the playbook's own words."""

from __future__ import annotations

from collections.abc import Sequence

from rune.core.workflow import Workflow
from rune.history import History
from rune.history.asking import Conditions
from rune.history.events import Event
from rune.history.paging import Page, after, cursor_after, paged
from rune.master.taxonomy import Taxonomy

__all__ = ["list_projected"]

_AT_A_TIME = 1_000
"""Events of the engine that are read at a time."""
_LOOKED_AT = 10_000
"""Events of the engine after which a page ends even if little of them, or nothing, is told."""


async def list_projected(
    history: History, execution: str, flow: Workflow, *, cursor: str | None, limit: int, node: str | None
) -> Page[Event]:
    """Events as the playbook tells them; a page may end in the middle of what one of the engine told.

    One of the events of one node may have fewer than `limit`, or none, and go on.
    """
    seq, part = after(cursor, int, int) if cursor is not None else (0, 0)
    types = {id: one.type.name for id, one in flow.nodes.items()}
    found: list[tuple[Event, int]] = []
    if part:
        # Some of what the last one told is still to be told.
        seq -= 1
    last, more = seq + _LOOKED_AT, True
    while more and seq < last and len(found) <= limit:
        page = await history.events.list(execution, after_seq=seq, limit=_AT_A_TIME)
        taxonomy = Taxonomy(types, await _keys(history, execution, page.items))
        for event in page.items:
            told = [one for one in taxonomy.told(event) if node is None or one.node == node]
            found += [(one, at) for at, one in enumerate(told[part:], part + 1)]
            seq, part = event.seq, 0
        more = page.next is not None
    pairs = paged(found, limit, lambda pair: (pair[0].seq, pair[1]))
    next = cursor_after(seq, 0) if more and len(found) <= limit else pairs.next
    return Page([event for event, _ in pairs.items], next)


async def _keys(history: History, execution: str, events: Sequence[Event]) -> dict[tuple[str, int], str]:
    """What the items of these events call their elements, by barrier and number."""
    items = {(event.barrier, event.item) for event in events if event.item is not None}
    if not items:
        return {}
    where = Conditions()
    where.add("execution_id = ?", execution)
    where.one_of("barrier", sorted({barrier for barrier, _ in items}))
    where.one_of("item_index", sorted({item for _, item in items}))
    sql = f"SELECT barrier, item_index, key FROM history_item WHERE {where} AND key <> ''"
    rows = await history.database.fetch(sql, *where.args)
    return {(row["barrier"], row["item_index"]): row["key"] for row in rows}
