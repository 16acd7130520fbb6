"""Where each value of a text stands, as offsets that become lines and columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["Path", "Places", "inside", "line_and_column"]

Path = tuple[str | int, ...]

# An anchor or a tag may stand before a YAML scalar.
_PREFIX = re.compile(r"(?:[&!]\S*[ \t]+)*")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|.)",
    re.DOTALL,
)


class Places:
    """Offsets of values and of keys by path."""

    def __init__(self, values: Mapping[Path, int], keys: Mapping[Path, int]) -> None:
        self.values = values
        self.keys = keys

    def offset(self, path: Path, *, key: bool = False) -> tuple[int, bool]:
        """Where `path` begins, or the nearest thing around it; and whether it was `path` itself."""
        if key and path in self.keys:
            return self.keys[path], True
        for length in range(len(path), -1, -1):
            if path[:length] in self.values:
                return self.values[path[:length]], length == len(path)
        return 0, False


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """An offset as line and column, both from 1."""
    offset = min(offset, len(text))
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def inside(text: str, start: int, characters: int) -> int:
    """The offset of a character of the string that is written at `start`, in JSON or YAML."""
    found = _PREFIX.match(text, start)
    start = found.end() if found else start
    style = text[start : start + 1]
    if style == '"':
        return _after_escapes(text, start + 1, characters, _ESCAPE)
    if style == "'":
        return _after_escapes(text, start + 1, characters, re.compile("''"))
    if style == "|":
        return _in_block(text, start, characters)
    # Folded text does not map letter by letter: its beginning has to do.
    return start if style == ">" else start + characters


def _after_escapes(text: str, at: int, characters: int, escape: re.Pattern[str]) -> int:
    for _ in range(characters):
        found = escape.match(text, at)
        at = found.end() if found else at + 1
    return at


def _in_block(text: str, start: int, characters: int) -> int:
    at = text.find("\n", start) + 1
    content = re.compile(r"(?:[ ]*\n)*([ ]*)").match(text, at)
    indent = len(content.group(1)) if content else 0
    while True:
        end = text.find("\n", at)
        width = max((end if end >= 0 else len(text)) - at - indent, 0)
        if characters <= width or end < 0:
            return at + indent + characters
        characters -= width + 1
        at = end + 1
