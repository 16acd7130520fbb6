"""The ledger's tables: how each row is read and written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from rune.backends.sqlite.table import Table
from rune.core.operations import Ending
from rune.core.rows import EndRow, ExecutionRow, MergeRow, Refill, ScopeRow, StepRow

__all__ = [
    "arrivals",
    "end_row",
    "ends",
    "executions",
    "merges",
    "refills",
    "scopes",
    "settled",
    "slots",
    "steps",
]

Connection = sqlite3.Connection

_encode_folds = msgspec.json.Encoder().encode
_decode_folds = msgspec.json.Decoder(tuple[float | int, ...]).decode
_encode_ending = msgspec.msgpack.Encoder().encode
_decode_ending = msgspec.msgpack.Decoder(Ending).decode
_encode_sets = msgspec.msgpack.Encoder().encode
_decode_sets = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...]).decode


def executions(connection: Connection, keep: int) -> Table[ExecutionRow]:
    def encode(row: ExecutionRow) -> tuple[Any, ...]:
        ending = _encode_ending(row.ending) if row.ending else None
        return row.touched, row.closer, ending, row.buried, row.paused

    def decode(key: tuple[str], columns: Any) -> ExecutionRow:
        touched, closer, ending, buried, paused = columns
        ended = _decode_ending(ending) if ending else None
        return ExecutionRow(*key, touched, closer, ended, bool(buried), bool(paused))

    columns = ("touched", "closer", "ending", "buried", "paused")
    return Table(connection, "execution", ("id",), columns, decode, encode, keep=keep)


def scopes(connection: Connection, keep: int) -> Table[ScopeRow]:
    columns = ("live", "error")
    return Table(
        connection,
        "scope",
        ("execution", "key"),
        columns,
        lambda _, found: ScopeRow(*found),
        attrgetter(*columns),
        keep=keep,
    )


def merges(connection: Connection, keep: int) -> Table[MergeRow]:
    columns = ("scope", "expected", "need", "accounted", "live", "state", "closer", "winner", "timer")
    return Table(
        connection,
        "merge",
        ("execution", "id"),
        columns,
        lambda key, found: MergeRow(key[1], *found),
        attrgetter(*columns),
        keep=keep,
    )


def steps(connection: Connection, leased_until: Callable[[str, str, str], float]) -> Table[StepRow]:
    def decode(key: tuple[str, str], columns: Any) -> StepRow:
        scope, fence, spent, record, turn, sets = columns
        until = leased_until(key[0], scope, key[1])
        return StepRow(scope, record, fence, until, spent, turn, _decode_sets(sets) if sets else ())

    def encode(row: StepRow) -> tuple[Any, ...]:
        sets = _encode_sets(row.sets) if row.sets else None
        return row.scope, row.fence, row.spent, row.record, row.turn, sets

    columns = ("scope", "fence", "spent", "record", "turn", "sets")
    return Table(connection, "step", ("execution", "id"), columns, decode, encode)


def settled(connection: Connection) -> Table[bool]:
    return Table(
        connection, "settled", ("execution", "scope", "step"), (), lambda _, found: True, lambda row: ()
    )


def ends(connection: Connection) -> Table[EndRow]:
    return Table(
        connection,
        "branch_end",
        ("execution", "scope", "step"),
        ("path", "node", "data", "folds"),
        end_row,
        lambda row: (row.path, row.node, row.data, _encode_folds(row.folds)),
    )


def end_row(_: Any, columns: Any) -> EndRow:
    path, node, data, folds = columns
    return EndRow(path, node, data, _decode_folds(folds))


def slots(connection: Connection) -> Table[tuple[bytes | None]]:
    return Table(connection, "slot", ("execution", "barrier", "item"), ("data",), _as_it_is, _itself)


def refills(connection: Connection) -> Table[Refill]:
    def decode(_: Any, columns: Any) -> Refill:
        start, stop, reads = columns
        return start, stop, bool(reads)

    columns = ("start", "stop", "reads")
    return Table(connection, "refill", ("execution", "barrier", "step"), columns, decode, _itself)


def arrivals(connection: Connection) -> Table[tuple[int, bytes | None]]:
    return Table(
        connection, "arrival", ("execution", "merge", "member"), ("place", "payload"), _as_it_is, _itself
    )


def _as_it_is(_: Any, columns: Any) -> Any:
    return columns


def _itself(row: Any) -> Any:
    return row
