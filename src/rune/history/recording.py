"""Write down what happens in executions: set by set, each message as often as it likes to come."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rune.core.errors import ConflictError
from rune.core.messages import CompletionMessage, NodeStatusMessage
from rune.history.bulk import Table, find, guarded_update, insert, over, upsert
from rune.history.called import origin
from rune.history.database import Database, Statement
from rune.history.events import packed
from rune.history.folding import Fold, Known
from rune.history.rows import ExecutionRow, ItemRow, NodeRow, SplitRow, StepRow
from rune.history.telling import step_key
from rune.history.values import deflated

__all__ = ["News", "Recording"]

T = TypeVar("T")

_TYPES = {str: "text", int: "int", float: "float"}


def _table(name: str, struct: type[msgspec.Struct], keys: int) -> Table:
    columns = []
    for field in msgspec.structs.fields(struct):
        kinds = [kind for kind in _TYPES if kind is field.type or kind in getattr(field.type, "__args__", ())]
        columns.append((field.name, _TYPES[kinds[0]]))
    return Table(name, tuple(columns), keys)


_EXECUTION = _table("history_execution", ExecutionRow, 1)
_STEP = _table("history_step", StepRow, 4)
_NODE = _table("history_node", NodeRow, 2)
_SPLIT = _table("history_split", SplitRow, 2)
_ITEM = _table("history_item", ItemRow, 3)
_EVENT = Table(
    "history_event",
    (("execution_id", "text"), ("first_seq", "int"), ("last_seq", "int"), ("data", "bytes")),
    2,
)
_VALUE = Table("history_value", (("execution_id", "text"), ("hash", "text"), ("data", "bytes")), 2)
_STRANGER = Table(
    "history_execution",
    (
        *(("id", "text"), ("workflow_id", "text"), ("name", "text"), ("status", "text")),
        *(("created_at", "float"), ("root", "text")),
        *(("trigger", "text"), ("parent", "text"), ("labels", "text")),
    ),
    1,
)

_MOVE = """UPDATE history_item SET state = $4, seq = $5
    WHERE execution_id = $1 AND barrier = $2 AND state = $3"""
_SETTLE = (
    """UPDATE history_item SET state = 'skipped', seq = k.seq FROM {k}, history_split s
        WHERE s.execution_id = k.id AND s.running > 0 AND history_item.execution_id = k.id
        AND history_item.barrier = s.barrier AND history_item.state = 'running'""",
    """UPDATE history_split SET skipped = skipped + running, running = 0, seq = k.seq FROM {k}
        WHERE execution_id = k.id AND running > 0""",
    """UPDATE history_step SET status = 'stopped', seq = k.seq, ended_at = e.ended_at
        FROM {k}, history_execution e WHERE e.id = k.id AND execution_id = k.id
        AND history_step.status IN ('running', 'waiting') AND EXISTS (
            SELECT 1 FROM history_node n WHERE n.execution_id = k.id AND n.running + n.waiting > 0)""",
    """UPDATE history_node SET stopped = stopped + running + waiting, running = 0, waiting = 0, seq = k.seq
        FROM {k} WHERE execution_id = k.id AND running + waiting > 0""",
)
_SETTLED = (("id", "text"), ("seq", "int"))

_REST = 0.01
"""Seconds at most before what collided is tried again."""


class News(msgspec.Struct, frozen=True):
    """Of which executions something is new, and which of them have ended."""

    changed: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


class Recording:
    """Turns statuses and completions into rows."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def record(
        self,
        statuses: Sequence[NodeStatusMessage],
        completions: Sequence[CompletionMessage] = (),
        values: Mapping[tuple[str, str], bytes] | None = None,
    ) -> News:
        """Take all of this in, at once or not at all.

        `values` are what messages only refer to, by execution and hash.
        """
        while True:
            fold = Fold(await self._known(statuses, completions), self._clock)
            before = {id: row.seq for id, row in fold.known.executions.items()}
            for status in statuses:
                fold.status(status)
            for completion in completions:
                fold.completion(completion)
            fold.finish()
            if not fold.changed.executions and not values:
                return News()
            stored = await deflated({**(values or {}), **fold.values})
            try:
                await self._database.write(*self._statements(fold, before, stored))
            except ConflictError:
                # Somebody else has written of these executions since we looked; let them go on a little.
                await asyncio.sleep(random.uniform(0, _REST))
                continue
            return News(frozenset(fold.changed.executions), frozenset(fold.ended))

    # --- reading -------------------------------------------------------------------------------------------

    async def _known(
        self, statuses: Sequence[NodeStatusMessage], completions: Sequence[CompletionMessage]
    ) -> Known:
        """All rows that these messages may change."""
        known = Known()
        messages: Sequence[NodeStatusMessage | CompletionMessage] = (*statuses, *completions)
        ids = list(dict.fromkeys((message.execution_id,) for message in messages))
        # The executions first: what changes after that changes their `seq`, and we shall be told.
        for execution in await self._rows(_EXECUTION, ExecutionRow, ids):
            known.executions[execution.id] = execution
        begun = {id for id, execution in known.executions.items() if execution.seq}
        steps: dict[tuple[str, str, int, str], None] = {}
        nodes: dict[tuple[str, str], None] = {}
        splits: dict[tuple[str, str], None] = {}
        items: dict[tuple[str, str, int], None] = {}
        for message in statuses:
            id = message.execution_id
            if id not in begun:
                continue
            steps[step_key(message)] = None
            nodes[id, message.node_id] = None
            if message.lineage_stack:
                frame = message.lineage_stack[-1]
                splits[id, frame.barrier] = None
                items[id, frame.barrier, frame.item_index] = None
            if message.closes:
                splits[id, message.closes] = None
        await asyncio.gather(
            self._load(known.steps, _STEP, StepRow, list(steps)),
            self._load(known.nodes, _NODE, NodeRow, list(nodes)),
            self._load(known.splits, _SPLIT, SplitRow, list(splits)),
            self._load(known.items, _ITEM, ItemRow, list(items)),
        )
        return known

    async def _load(
        self, into: dict[Any, T], table: Table, struct: type[T], keys: Sequence[Sequence[Any]]
    ) -> None:
        for row in await self._rows(table, struct, keys):
            into[tuple(getattr(row, name) for name in table.key)] = row

    async def _rows(self, table: Table, struct: type[T], keys: Sequence[Sequence[Any]]) -> list[T]:
        return [struct(*row) for row in await find(self._database, table, keys)]  # type: ignore[misc]

    # --- writing -------------------------------------------------------------------------------------------

    def _statements(
        self, fold: Fold, before: Mapping[str, int], values: Mapping[tuple[str, str], bytes]
    ) -> list[Statement]:
        dialect, changed, rows = self._database.dialect, fold.changed, msgspec.structs.astuple
        strangers = [
            (id, workflow, workflow, "pending", at, id, *origin(caller))
            for id, (workflow, at, caller) in fold.strangers.items()
        ]
        # In one order everywhere: two masters that write of the same executions do not wait in a circle.
        executions = [changed.executions[id] for id in sorted(changed.executions)]
        guarded = [(*rows(row), before.get(row.id, 0)) for row in executions]
        events = [
            (id, changed.executions[id].seq - len(events) + 1, changed.executions[id].seq, packed(events))
            for id, events in fold.events.items()
            if events
        ]
        seqs = {id: row.seq for id, row in fold.known.executions.items()}
        ended = [(id, seqs[id]) for id in fold.ended]
        statements = [
            insert(dialect, _STRANGER, strangers, anew=True),
            guarded_update(dialect, _EXECUTION, guarded),
            upsert(dialect, _STEP, [rows(row) for row in changed.steps.values()]),
            upsert(dialect, _NODE, [rows(row) for row in changed.nodes.values()]),
            upsert(dialect, _SPLIT, [rows(row) for row in changed.splits.values()]),
            upsert(dialect, _ITEM, [rows(row) for row in changed.items.values()]),
            insert(dialect, _EVENT, events, anew=True),
            insert(dialect, _VALUE, [(*key, data) for key, data in values.items()]),
            Statement(_MOVE, [(*move, seqs[move[0]]) for move in fold.moved]),
            *(over(dialect, settle, _SETTLED, ended) for settle in _SETTLE),
        ]
        return [statement for statement in statements if statement.rows]
