"""Executions that others have called: nobody announces them, so what they run is found elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct

from rune.core.messages import Caller
from rune.history.database import Database
from rune.history.telling import clean

__all__ = ["carried", "input_in", "origin"]

_LABEL = "workflow"
"""The label with the name that the caller has for the workflow."""
_CALLED = "SELECT parent, labels FROM history_execution WHERE id = $1 AND trigger = 'workflow'"


class _Carrying(Struct):
    """What a definition carries of those it calls."""

    workflows: dict[str, Raw] = {}


class _Ended(Struct):
    """The input in a final context."""

    trigger: Raw = msgspec.field(name="$trigger", default=Raw(b"null"))


def origin(caller: Caller | None) -> tuple[str, str | None, str | None]:
    """The trigger, the parent and the labels of an execution that nobody has announced."""
    if caller is None:
        return "wire", None, None
    labels = {_LABEL: clean(caller.workflow)}
    return "workflow", caller.execution, msgspec.json.encode(labels).decode()


async def carried(
    database: Database, definition: Callable[[str], Awaitable[str | None]], id: str
) -> str | None:
    """What an execution runs that another one called: it is in that one's own `definition`."""
    row = await database.fetch_one(_CALLED, id)
    caller = await definition(row["parent"]) if row else None
    if row is None or caller is None:
        return None
    name = msgspec.json.decode(row["labels"])[_LABEL]
    found = msgspec.json.decode(caller, type=_Carrying).workflows.get(name)
    return None if found is None else bytes(found).decode()


def input_in(result: Raw) -> Raw:
    """What an execution was given, from what it ended with."""
    return msgspec.json.decode(result, type=_Ended).trigger
