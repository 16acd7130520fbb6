"""The log node."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import DefinitionError
from rune.nodes.log import Log
from tests.nodes.fakes import FakeContext, made, output


async def test_line_is_logged() -> None:
    context = FakeContext({"$u": {"name": "Ada"}})
    result = await output(Log, context, message="Hello {{ $u.name }}", level="debug")
    assert result == {"message": "Hello Ada", "level": "debug", "logged_at": "2026-01-01T00:00:00.250Z"}
    assert context.logged == [("debug", "Hello Ada")]


@pytest.mark.parametrize(
    ("message", "line"), [({"a": [1, None]}, '{"a":[1,null]}'), (5, "5"), (True, "true"), (None, "null")]
)
async def test_anything_but_text_is_logged_as_json(message: Any, line: str) -> None:
    context = FakeContext({"$m": message})
    assert (await output(Log, context, message="$m"))["message"] == line
    assert context.logged == [("info", line)]


async def test_warn_is_warning() -> None:
    assert (await output(Log, message="x", level="warn"))["level"] == "warning"


def test_unknown_level_is_refused() -> None:
    with pytest.raises(DefinitionError, match="level"):
        made(Log, FakeContext(), {"message": "x", "level": "loud"})
