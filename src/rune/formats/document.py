"""A JSON or YAML text as plain data that knows where everything stands."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.errors import DefinitionError, Problem
from rune.formats import jsonsource
from rune.formats.places import Path, Places, inside, line_and_column

__all__ = ["MAX_DEPTH", "Document", "load", "placed", "read"]

MAX_DEPTH = 100
"""Lists and objects inside one another, at most."""


class Document:
    """What a text says, and the places of it, which are worked out only when asked for."""

    def __init__(self, name: str, text: str, value: dict[str, Any], places: Places | None = None) -> None:
        self.name = name
        self.text = text
        self.value = value
        self._places = places

    def locate(self, path: Path, offset: int = 0, key: bool = False) -> tuple[int, int]:
        """Line and column, from 1, of the value (or the key) at `path`, `offset` characters into a text."""
        if self._places is None:
            self._places = jsonsource.locate_all(self.text)
        at, exact = self._places.offset(path, key=key)
        # A short string in quotes is pointed at as a whole; what is inside it, letter by letter.
        if exact and offset and not key:
            at = inside(self.text, at, offset)
        return line_and_column(self.text, at)


def load(text: str | bytes, name: str) -> Document:
    """Read a text; DefinitionError says what is wrong with it, and where."""
    document, problems = read(text, name)
    if problems:
        raise DefinitionError(problems, name)
    return document


def read(text: str | bytes, name: str) -> tuple[Document, list[Problem]]:
    """Read a text; a broken one is an empty document, with its problems."""
    try:
        text = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        return Document(name, error.object.decode(errors="replace"), {}), [_not_utf8(error)]
    text = text.removeprefix("\ufeff")
    value, places, problems = _decode(text, name)
    if not problems and not isinstance(value, dict):
        problems = [Problem("E006", f"the top level must be an object, not {_kind(value)}", line=1, column=1)]
    return Document(name, text, {} if problems else value, places), problems


def _decode(text: str, name: str) -> tuple[Any, Places | None, list[Problem]]:
    if not text.strip():
        return None, None, [Problem("E005", "the document is empty", line=1, column=1)]
    if _is_json(text, name):
        value, problems = jsonsource.decode(text, MAX_DEPTH)
        return value, None, problems
    from rune.formats import yamlsource  # PyYAML costs time that JSON files should not pay

    return yamlsource.decode(text, MAX_DEPTH)


def placed(problems: list[Problem], document: Document, at_key: frozenset[str]) -> list[Problem]:
    """The problems with line and column filled in; codes in `at_key` point at a key, not at its value."""
    found = []
    for problem in problems:
        if problem.line is None:
            line, column = document.locate(problem.path, problem.offset, problem.code in at_key)
            problem = msgspec.structs.replace(problem, line=line, column=column)
        found.append(problem)
    return sorted(found, key=lambda p: (p.line or 0, p.column or 0))


def _not_utf8(error: UnicodeDecodeError) -> Problem:
    data, at = error.object, error.start
    line = data.count(b"\n", 0, at) + 1
    column = len(data[data.rfind(b"\n", 0, at) + 1 : at].decode(errors="replace")) + 1
    hint = "save the file as UTF-8" + (", not UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "")
    return Problem("E001", f"not UTF-8 text: byte 0x{data[at]:02x}", (), hint, line=line, column=column)


def _is_json(text: str, name: str) -> bool:
    lowered = name.lower()
    if lowered.endswith((".yaml", ".yml")):
        return False
    return lowered.endswith(".json") or text.lstrip()[0] in "{["


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else "a single value"
