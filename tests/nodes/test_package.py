"""The package of node types as a whole."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from rune.core.node import NodeType, Role
from rune.nodes import SERVICES, load_builtin

TYPES = {type.name: type for type in load_builtin()}


def test_every_type_of_the_format_is_there() -> None:
    assert set(TYPES) == {
        *("ManualTrigger", "webhook", "ScheduledTrigger"),
        *("http", "smtp", "log", "wait", "code", "sql", "workflow"),
        *("conditional", "switch", "split", "aggregator", "merge"),
        *("edit", "filter", "sort", "limit"),
        *("dateTimeNow", "dateTimeAdd", "dateTimeSubtract", "dateTimeFormat", "dateTimeParse"),
    }


def test_what_types_say_of_themselves() -> None:
    assert {name for name, type in TYPES.items() if type.effects} == {"http", "smtp", "code", "sql"}
    impure = {name for name, type in TYPES.items() if not type.pure}
    assert impure == {"http", "smtp", "code", "sql", "log", "wait", "dateTimeNow", "workflow"}
    assert {name: type.role for name, type in TYPES.items() if type.role is not Role.PLAIN} == {
        "split": Role.SPLIT,
        "aggregator": Role.GATHER,
        "merge": Role.MERGE,
    }


@pytest.mark.parametrize("type", TYPES.values(), ids=TYPES)
def test_everything_is_described(type: type[NodeType]) -> None:
    assert type.__doc__
    for field in msgspec.structs.fields(type):
        description = [extra.description for extra in getattr(field.type, "__metadata__", ())]
        assert description, f"{type.name}.{field.encode_name} says nothing of itself"
        assert all(description)


def test_loading_them_loads_no_clients() -> None:
    program = (
        "import sys, rune.nodes; rune.nodes.load_builtin();"
        "heavy = {'asyncio', 'aiohttp', 'aiosmtplib', 'ssl', 'email', 'zoneinfo', 'concurrent.futures'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
async def test_services_are_made_and_closed(name: str) -> None:
    service = SERVICES[name]()
    await service.close()
