"""Workflows and their versions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec import Struct

from rune.core.errors import DefinitionError, Problem, RuneError
from rune.core.ids import content_hash
from rune.history.asking import Conditions
from rune.history.database import Database, Row, Statement, as_dict
from rune.history.paging import Page, after, paged

__all__ = ["Draft", "StoredWorkflow", "VersionMismatch", "WorkflowVersion", "Workflows", "keep_definition"]


class VersionMismatch(RuneError):
    """Somebody has changed the workflow since."""

    def __init__(self, current: int) -> None:
        self.current = current
        super().__init__(f"the workflow has changed: its version is now {current}")


class Draft(Struct, frozen=True, kw_only=True):
    """What a new version of a workflow says."""

    name: str
    definition: str
    """The graph, as JSON."""
    source: str | None = None
    """The text it was given as, where that is not the definition."""
    format: str = "graph"
    description: str = ""
    note: str = ""
    author: str = ""
    publish: bool = False


class StoredWorkflow(Struct, frozen=True, kw_only=True):
    """A workflow, with its latest version."""

    id: str
    name: str
    description: str
    format: str
    version: int
    published: int | None
    created_at: float
    updated_at: float
    definition: str
    source: str | None


class WorkflowVersion(Struct, frozen=True, kw_only=True):
    """A workflow as it was; `definition` and `source` are left out of lists."""

    workflow_id: str
    version: int
    hash: str
    format: str
    note: str
    author: str
    created_at: float
    definition: str = ""
    source: str | None = None


_WORKFLOW = """SELECT w.*, d.text AS definition, v.source FROM workflow w
    JOIN workflow_version v ON v.workflow_id = w.id AND v.version = w.version
    JOIN definition d ON d.hash = v.hash WHERE w.deleted_at IS NULL AND """
_VERSION = """INSERT INTO workflow_version
    (workflow_id, version, hash, format, source, note, author, created_at)
    SELECT w.id, w.version, $3, $4, $5, $6, $7, $8 FROM workflow w
    WHERE w.id = $1 AND w.version = $2 AND w.deleted_at IS NULL"""


def keep_definition(definition: str, now: float) -> tuple[str, Statement]:
    """A definition's hash, and what stores it; that it is in use keeps it from being tidied away."""
    hash = content_hash(definition.encode())
    sql = """INSERT INTO definition (hash, text, used_at) VALUES ($1, $2, $3)
        ON CONFLICT (hash) DO UPDATE SET used_at = EXCLUDED.used_at"""
    return hash, Statement(sql, [(hash, definition, now)])


class Workflows:
    """Stores workflows; a version, once stored, never changes."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def create(self, draft: Draft, id: str | None = None) -> StoredWorkflow:
        """Store a new workflow; ConflictError if there is one of this id, or was."""
        id, now = id or f"wf_{os.urandom(10).hex()}", self._clock()
        hash, definition = keep_definition(draft.definition, now)
        workflow = """INSERT INTO workflow
            (id, name, description, format, version, published, created_at, updated_at)
            VALUES ($1, $2, $3, $4, 1, $5, $6, $6)"""
        published = 1 if draft.publish else None
        await self._database.write(
            definition,
            (workflow, [(id, draft.name, draft.description, draft.format, published, now)]),
            _version(id, 1, hash, draft, now),
        )
        return _stored(id, 1, published, now, now, draft)

    async def get(self, id: str) -> StoredWorkflow | None:
        """A workflow as it is now."""
        row = await self._database.fetch_one(_WORKFLOW + "w.id = $1", id)
        return _workflow(row) if row else None

    async def is_taken(self, id: str) -> bool:
        """Whether there is a workflow of this id, or was."""
        return await self._database.fetch_one("SELECT 1 AS found FROM workflow WHERE id = $1", id) is not None

    async def called(self, name: str) -> StoredWorkflow | None:
        """The workflow of this id, else the one of this name; DefinitionError if there are two."""
        found = await self.get(name)
        if found is not None:
            return found
        rows = await self._database.fetch(_WORKFLOW + "w.name = $1 ORDER BY w.id LIMIT 2", name)
        if len(rows) > 1:
            ids = " and ".join(repr(row["id"]) for row in rows)
            hint = "say the id of the one that is meant"
            raise DefinitionError([Problem("E052", f"several have this name, such as {ids}", hint=hint)])
        return _workflow(rows[0]) if rows else None

    async def list(
        self, *, text: str = "", limit: int = 50, cursor: str | None = None
    ) -> Page[StoredWorkflow]:
        """Workflows by name."""
        where = Conditions()
        if text:
            where.contains(text, "w.name", "w.description", "w.id")
        if cursor is not None:
            where.add("(w.name, w.id) > (?, ?)", *after(cursor, str, str))
        sql = f"{_WORKFLOW}{where} ORDER BY w.name, w.id LIMIT {where.arg(limit + 1)}"
        found = [_workflow(row) for row in await self._database.fetch(sql, *where.args)]
        return paged(found, limit, lambda workflow: (workflow.name, workflow.id))

    async def update(self, id: str, version: int, draft: Draft) -> StoredWorkflow | None:
        """Store the version after `version`; None if there is no workflow, VersionMismatch if others did."""
        now = self._clock()
        hash, definition = keep_definition(draft.definition, now)
        workflow = """UPDATE workflow SET version = version + 1, name = $3, description = $4, format = $5,
            published = CASE WHEN $6 = 1 THEN version + 1 ELSE published END, updated_at = $7
            WHERE id = $1 AND version = $2 AND deleted_at IS NULL RETURNING published, created_at"""
        row = (id, version, draft.name, draft.description, draft.format, int(draft.publish), now)
        answer = await self._database.write(
            definition, (workflow, [row]), _version(id, version + 1, hash, draft, now, unless_there=True)
        )
        if not answer[1]:
            current = await self.get(id)
            if current is None:
                return None
            raise VersionMismatch(current.version)
        updated = answer[1][0]
        return _stored(id, version + 1, updated["published"], updated["created_at"], now, draft)

    async def publish(self, id: str, version: int | None) -> bool:
        """Let executions without a version of their own run this one; None takes it back."""
        sql = """UPDATE workflow SET published = CAST($2 AS INTEGER), updated_at = $3
            WHERE id = $1 AND deleted_at IS NULL AND (CAST($2 AS INTEGER) IS NULL OR EXISTS
                (SELECT 1 FROM workflow_version WHERE workflow_id = $1 AND version = CAST($2 AS INTEGER)))
            RETURNING id"""
        (updated,) = await self._database.write((sql, [(id, version, self._clock())]))
        return bool(updated)

    async def delete(self, id: str) -> bool:
        """Let nobody see or start it any more; what its executions ran stays known."""
        sql = "UPDATE workflow SET deleted_at = $2 WHERE id = $1 AND deleted_at IS NULL RETURNING id"
        (deleted,) = await self._database.write((sql, [(id, self._clock())]))
        return bool(deleted)

    async def versions(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page[WorkflowVersion]:
        """A workflow's versions, the latest first."""
        where = Conditions()
        where.add("workflow_id = ?", id)
        if cursor is not None:
            where.add("version < ?", *after(cursor, int))
        sql = f"""SELECT workflow_id, version, hash, format, note, author, created_at FROM workflow_version
            WHERE {where} ORDER BY version DESC LIMIT {where.arg(limit + 1)}"""
        found = [WorkflowVersion(**as_dict(row)) for row in await self._database.fetch(sql, *where.args)]
        return paged(found, limit, lambda version: (version.version,))

    async def version(self, id: str, version: int) -> WorkflowVersion | None:
        """One version; also of a workflow that was deleted."""
        row = await self._database.fetch_one(
            """SELECT v.*, d.text AS definition FROM workflow_version v JOIN definition d ON d.hash = v.hash
            WHERE v.workflow_id = $1 AND v.version = $2""",
            *(id, version),
        )
        return WorkflowVersion(**as_dict(row)) if row else None

    async def definition(self, hash: str) -> str | None:
        """The text of a definition."""
        row = await self._database.fetch_one("SELECT text FROM definition WHERE hash = $1", hash)
        return row["text"] if row else None


def _version(
    id: str, version: int, hash: str, draft: Draft, now: float, *, unless_there: bool = False
) -> Statement:
    row = (id, version, hash, draft.format, draft.source, draft.note, draft.author, now)
    # An update that matched nothing leaves the version of somebody else, which stands.
    return Statement(_VERSION + (" ON CONFLICT DO NOTHING" if unless_there else ""), [row])


def _stored(
    id: str, version: int, published: int | None, created: float, updated: float, draft: Draft
) -> StoredWorkflow:
    return StoredWorkflow(
        id=id,
        name=draft.name,
        description=draft.description,
        format=draft.format,
        version=version,
        published=published,
        created_at=created,
        updated_at=updated,
        definition=draft.definition,
        source=draft.source,
    )


def _workflow(row: Row) -> StoredWorkflow:
    values = as_dict(row)
    del values["deleted_at"]
    return StoredWorkflow(**values)
