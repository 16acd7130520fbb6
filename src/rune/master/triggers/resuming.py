"""Links that end a wait: signed, good once, and known to a workflow before it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from rune.core.workflow import Workflow
from rune.history.database import Database, Row
from rune.history.paging import Page, after, paged
from rune.history.triggers import Triggers
from rune.master.runtime import Runtime
from rune.master.triggers.seals import Seals
from rune.master.triggers.tokens import Resumable, read_token, sign
from rune.nodes.wait import Wait

__all__ = ["Links", "NotWaiting", "UnknownLink", "Waiting"]

_KEY = "resume"
_NAME = "$resume"


class UnknownLink(Exception):
    """Nobody has given out such a link."""


class NotWaiting(Exception):
    """Nothing waits for the link."""

    def __init__(self, over: bool) -> None:
        self.over = over
        """It was used, or what it was for has ended; otherwise nothing waits for it yet."""


class Waiting(Struct, frozen=True):
    """A step that waits to be called."""

    execution: str
    step: str
    node: str
    since: float
    item: int | None


class Place(Protocol):
    """Who knows where the master is reached."""

    address: str


class Links:
    """Makes the links of an execution's waits, and ends the waits they are for."""

    def __init__(
        self, database: Database, triggers: Triggers, seals: Seals, runtime: Runtime, place: Place
    ) -> None:
        self._database = database
        self._triggers = triggers
        self._seals = seals
        self._runtime = runtime
        self._place = place
        self._key: bytes | None = None

    async def values(self, flow: Workflow, execution: str) -> dict[str, Raw]:
        """`$resume`: the link of each wait by its node, if the workflow speaks of them."""
        if not any(_NAME in node.parameters.names for node in flow.nodes.values()):
            return {}
        waits = [node.id for node in flow.nodes.values() if issubclass(node.type, Wait)]
        links = {node: await self.link(Resumable(execution, node=node)) for node in waits}
        return {_NAME: Raw(msgspec.json.encode(links))}

    async def link(self, what: Resumable) -> str:
        """The link for one step, or for what waits at a node."""
        return f"{self._place.address}/resume/{sign(what, await self._signing())}"

    async def waiting(self, execution: str, *, limit: int = 50, cursor: str | None = None) -> Page[Waiting]:
        """The steps of an execution that wait to be called, the first to do so first."""
        since, step = after(cursor, float, str) if cursor is not None else (0.0, "")
        rows = await self._database.fetch(_CALLED, execution, since, step, limit + 1)
        page = paged(rows, limit, lambda row: (row["started_at"], row["step"]))
        return Page([_waiting(row) for row in page.items if _is_called(row)], page.next)

    async def find(self, token: str, items: Sequence[int]) -> Waiting:
        """What a link is for, right now; `items` are the ones, from the outermost in, that a node is in."""
        what = read_token(token, [await self._signing()])
        if what is None:
            raise UnknownLink
        item = _ANYWHERE if what.step else _innermost(items)
        rows = await self._database.fetch(_WAITING, what.execution, what.step, what.node, item)
        for row in rows:
            if _is_called(row) and (what.step or await self._path(row) == list(items)):
                return _waiting(row)
        raise NotWaiting(await self._is_over(what, items))

    async def resume(self, waiting: Waiting, payload: Raw) -> None:
        """End a wait; NotWaiting if somebody else has."""
        if not await self._runtime.wake(waiting.execution, waiting.step, payload):
            raise NotWaiting(over=True)

    async def _signing(self) -> bytes:
        if self._key is None:
            self._key = await self._seals.signing_key(self._triggers, _KEY)
        return self._key

    async def _path(self, row: Row) -> list[int]:
        """The items a step is in, from the outermost in."""
        path: list[int] = []
        barrier, item = row["barrier"], row["item_index"]
        while barrier:
            path.insert(0, item)
            split = await self._database.fetch_one(_SPLIT, row["execution_id"], barrier)
            barrier, item = (split["scope"], split["scope_item"]) if split else ("", 0)
        return path

    async def _is_over(self, what: Resumable, items: Sequence[int]) -> bool:
        """Whether it was waited for before, or never will be."""
        head = await self._database.fetch_one(_ENDED, what.execution)
        if what.step or head is None or head["ended_at"] is not None:
            return True
        past = await self._database.fetch(_PAST, what.execution, what.node, _innermost(items))
        return list(items) in [await self._path(row) for row in past]


def _innermost(items: Sequence[int]) -> int:
    """The item that a step itself is in, which leaves few steps of a node to look through."""
    return items[-1] if items else _OUTSIDE


def _is_called(row: Row) -> bool:
    """Whether a step waits for a call, rather than for a time or for others."""
    details = msgspec.json.decode(row["details"] or "null")
    return isinstance(details, dict) and details.get("resume_at", "") is None


def _waiting(row: Row) -> Waiting:
    return Waiting(
        row["execution_id"],
        row["step"],
        row["node_id"],
        row["started_at"],
        row["item_index"] if row["barrier"] else None,
    )


_ANYWHERE, _OUTSIDE = -2, -1
"""In place of an item's number: any item or none, and none."""
_OF_ITEM = "(CAST($N AS BIGINT) = -2 OR ($N = -1 AND barrier = '') OR (barrier <> '' AND item_index = $N))"
_COLUMNS = "execution_id, step, node_id, barrier, item_index, started_at, details"
_CALLED = f"""
SELECT {_COLUMNS} FROM history_step
WHERE execution_id = $1 AND status = 'waiting' AND (started_at, step) > ($2, $3)
    AND details LIKE '%"resume_at":null%'
ORDER BY started_at, step LIMIT $4
"""
_WAITING = f"""
SELECT {_COLUMNS} FROM history_step
WHERE execution_id = $1 AND status = 'waiting' AND ($2 = '' OR step = $2) AND ($3 = '' OR node_id = $3)
    AND {_OF_ITEM.replace("$N", "$4")}
ORDER BY started_at, step LIMIT 1000
"""
_PAST = f"""
SELECT execution_id, barrier, item_index FROM history_step
WHERE execution_id = $1 AND node_id = $2 AND status IN ('success', 'failed')
    AND {_OF_ITEM.replace("$N", "$3")} LIMIT 1000
"""
_SPLIT = "SELECT scope, scope_item FROM history_split WHERE execution_id = $1 AND barrier = $2"
_ENDED = "SELECT ended_at FROM history_execution WHERE id = $1"
