"""Triggers, and the due times of schedules, each of which one master takes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rune.core.ids import derive
from rune.history.audit import Entry
from rune.history.database import Database, Row, Statement

__all__ = ["Firing", "Trigger", "TriggerKind", "Triggers", "firing_id"]

TriggerKind = Literal["webhook", "schedule"]

_KEPT = 30 * 86_400.0
"""Seconds for which settled firings are remembered."""
_COLUMNS = (
    "id",
    "workflow_id",
    "kind",
    "name",
    "enabled",
    "config",
    "version",
    "token_hash",
    "sealed",
    "next_due",
    "created_at",
    "updated_at",
    "created_by",
)


class Trigger(Struct, frozen=True, kw_only=True):
    """One way to start a workflow."""

    id: str
    workflow_id: str
    kind: TriggerKind
    name: str = ""
    enabled: bool = True
    config: dict[str, Any]
    version: int = 1
    """Rises with each change."""
    token_hash: str | None = None
    """By which a webhook's token is found."""
    sealed: bytes | None = None
    """A webhook's token and its secret."""
    next_due: float | None = None
    """When a schedule is due next."""
    created_at: float
    updated_at: float
    created_by: str = ""


class Firing(Struct, frozen=True):
    """One due time of one schedule."""

    trigger_id: str
    due: float
    execution_id: str
    settled_at: float | None = None
    error: str | None = None


def firing_id(trigger: str, due: float) -> str:
    """The execution that a due time starts: the same for whoever starts it, and however often."""
    return f"exec_{derive(trigger, '~due', repr(due))}"


class Triggers:
    """The triggers there are; who changes them leaves an entry in the audit log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- what there is ---

    async def create(self, trigger: Trigger, entry: Entry | None = None) -> None:
        """Keep a new trigger."""
        places = ", ".join(f"${n}" for n in range(1, len(_COLUMNS) + 1))
        sql = f"INSERT INTO workflow_trigger ({', '.join(_COLUMNS)}) VALUES ({places})"
        await self._database.write((sql, [_values(trigger)]), *([entry.statement()] if entry else []))

    async def get(self, id: str) -> Trigger | None:
        """One trigger."""
        row = await self._database.fetch_one("SELECT * FROM workflow_trigger WHERE id = $1", id)
        return _trigger(row) if row is not None else None

    async def by_token(self, token_hash: str) -> Trigger | None:
        """The webhook that has a token with this hash."""
        row = await self._database.fetch_one(
            "SELECT * FROM workflow_trigger WHERE token_hash = $1", token_hash
        )
        return _trigger(row) if row is not None else None

    async def page(self, after: str, limit: int, workflow: str = "", kind: str = "") -> list[Trigger]:
        """Triggers behind one, by id; of one workflow or kind, if given."""
        return [_trigger(row) for row in await self._database.fetch(_PAGE, after, workflow, kind, limit)]

    async def replace(self, trigger: Trigger, entry: Entry | None = None) -> bool:
        """Put a trigger in the place of the version before it; False if that is not the latest any more."""
        there = "EXISTS (SELECT 1 FROM workflow_trigger WHERE id = $1 AND version = $2)"
        told = [entry.statement(there, trigger.id, trigger.version - 1)] if entry else []
        *_, changed = await self._database.write(*told, Statement(_REPLACE, [_values(trigger)]))
        return bool(changed)

    async def delete(self, id: str, entry: Entry | None = None) -> bool:
        """Remove a trigger; False if there is none."""
        there = "EXISTS (SELECT 1 FROM workflow_trigger WHERE id = $1)"
        told = [entry.statement(there, id)] if entry else []
        *_, gone = await self._database.write(
            *told,
            Statement("DELETE FROM firing WHERE trigger_id = $1", [(id,)]),
            Statement("DELETE FROM workflow_trigger WHERE id = $1 RETURNING id", [(id,)]),
        )
        return bool(gone)

    # --- due times ---

    async def due(self, now: float, limit: int = 100) -> list[Trigger]:
        """The schedules that are due, the longest first."""
        return [_trigger(row) for row in await self._database.fetch(_DUE, now, limit)]

    async def next_due(self) -> float | None:
        """When the next schedule is due, or a firing that nobody settled can be taken on."""
        row = await self._database.fetch_one(_NEXT)
        return row["due"] if row is not None else None

    async def claim(
        self, trigger: Trigger, due: Sequence[float], following: float | None, now: float, until: float
    ) -> list[Firing]:
        """Take on due times of a schedule and move it on; none if another was faster or it has changed."""
        claim = os.urandom(8).hex()
        firings = [Firing(trigger.id, moment, firing_id(trigger.id, moment)) for moment in due]
        rows = [(f.trigger_id, f.due, f.execution_id, until, claim) for f in firings]
        move = (following, claim, trigger.id, trigger.next_due, trigger.version)
        moved, taken, _ = await self._database.write(
            (_MOVE, [move]), (_TAKE, rows), (_FORGET, [(trigger.id, now - _KEPT)])
        )
        mine = {row["due"] for row in taken}
        return [firing for firing in firings if moved and firing.due in mine]

    async def abandoned(self, now: float, until: float) -> list[Firing]:
        """Take on what others have claimed and not settled in time."""
        (rows,) = await self._database.write((_ABANDONED, [(now, until)]))
        return [_firing(row) for row in rows]

    async def settle(self, firing: Firing, now: float, error: str | None = None) -> None:
        """A due time has been seen to, or cannot be."""
        await self._database.write((_SETTLE, [(firing.trigger_id, firing.due, now, error)]))

    async def firings(self, trigger: str, limit: int = 20) -> list[Firing]:
        """The latest due times of a schedule, the last one first."""
        rows = await self._database.fetch(_FIRINGS, trigger, limit)
        return [_firing(row) for row in rows]

    # --- keys ---

    async def key(self, name: str, fresh: bytes) -> bytes:
        """A sealed signing key: the one that is kept, or else `fresh`, which then is."""
        await self._database.write((_KEEP, [(name, fresh)]))
        row = await self._database.fetch_one("SELECT sealed FROM signing_key WHERE name = $1", name)
        return bytes(row["sealed"]) if row is not None else fresh

    async def sealed(self) -> list[tuple[str, bytes]]:
        """All that is sealed: of triggers by their ids, of keys by `signing/` and their names."""
        rows = await self._database.fetch(_SEALED)
        return [(row["id"], bytes(row["sealed"])) for row in rows]

    async def reseal(self, id: str, old: bytes, new: bytes) -> None:
        """Put what is sealed anew in the place of what was, unless that has changed."""
        table, key = ("signing_key", "name") if id.startswith("signing/") else ("workflow_trigger", "id")
        sql = f"UPDATE {table} SET sealed = $3 WHERE {key} = $1 AND sealed = $2"
        await self._database.write((sql, [(id.removeprefix("signing/"), old, new)]))


def _values(trigger: Trigger) -> list[Any]:
    values = msgspec.structs.asdict(trigger)
    values["config"] = msgspec.json.encode(trigger.config).decode()
    values["enabled"] = int(trigger.enabled)
    return [values[column] for column in _COLUMNS]


def _trigger(row: Row) -> Trigger:
    values = {column: row[column] for column in _COLUMNS}
    values["config"] = msgspec.json.decode(row["config"])
    values["enabled"] = bool(row["enabled"])
    return Trigger(**values)


def _firing(row: Row) -> Firing:
    return Firing(row["trigger_id"], row["due"], row["execution_id"], row["settled_at"], row["error"])


_PAGE = """
SELECT * FROM workflow_trigger
WHERE id > $1 AND ($2 = '' OR workflow_id = $2) AND ($3 = '' OR kind = $3) ORDER BY id LIMIT $4
"""
_REPLACE = """
UPDATE workflow_trigger SET workflow_id = $2, kind = $3, name = $4, enabled = $5, config = $6, version = $7,
    token_hash = $8, sealed = $9, next_due = $10, created_at = $11, updated_at = $12, created_by = $13
WHERE id = $1 AND version = $7 - 1 RETURNING id
"""
_DUE = """
SELECT * FROM workflow_trigger WHERE enabled = 1 AND next_due <= $1 ORDER BY next_due LIMIT $2
"""
_NEXT = """
SELECT MIN(due) AS due FROM (
    SELECT MIN(next_due) AS due FROM workflow_trigger WHERE enabled = 1
    UNION ALL
    SELECT MIN(claimed_until) AS due FROM firing WHERE settled_at IS NULL
) AS soonest
"""
_MOVE = """
UPDATE workflow_trigger SET next_due = $1, claim = $2
WHERE id = $3 AND next_due = $4 AND version = $5 AND enabled = 1 RETURNING id
"""
# The claim shows whether the schedule was moved on just before; a due time that was ever taken on stays so.
_TAKE = """
INSERT INTO firing (trigger_id, due, execution_id, claimed_until)
SELECT CAST($1 AS TEXT), CAST($2 AS DOUBLE PRECISION), CAST($3 AS TEXT), CAST($4 AS DOUBLE PRECISION)
WHERE EXISTS (SELECT 1 FROM workflow_trigger WHERE id = $1 AND claim = $5)
ON CONFLICT (trigger_id, due) DO NOTHING RETURNING due
"""
_FORGET = "DELETE FROM firing WHERE trigger_id = $1 AND due < $2 AND settled_at IS NOT NULL"
_ABANDONED = """
UPDATE firing SET claimed_until = $2 WHERE settled_at IS NULL AND claimed_until <= $1
RETURNING trigger_id, due, execution_id, settled_at, error
"""
_SETTLE = "UPDATE firing SET settled_at = $3, error = $4 WHERE trigger_id = $1 AND due = $2"
_FIRINGS = "SELECT * FROM firing WHERE trigger_id = $1 ORDER BY due DESC LIMIT $2"
_KEEP = "INSERT INTO signing_key (name, sealed) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
_SEALED = """
SELECT id, sealed FROM workflow_trigger WHERE sealed IS NOT NULL
UNION ALL SELECT 'signing/' || name AS id, sealed FROM signing_key
"""
