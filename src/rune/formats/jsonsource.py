"""JSON text: decoded fast, and looked through again only when a place has to be shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from rune.core.errors import Problem
from rune.formats.places import Path, Places, line_and_column

__all__ = ["decode", "locate_all"]

_TOKEN = re.compile(r'[ \t\r\n]*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}\[\],:"]+))', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Refused(Exception):
    """Found while decoding; where it stands is looked for afterwards."""


def decode(text: str, max_depth: int) -> tuple[Any, list[Problem]]:
    """The value in a JSON text, or what is wrong with it."""
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_number, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        return None, [_broken(text, error)]
    except RecursionError:
        return None, [_too_deep(text, max_depth)]
    except (_Refused, ValueError):
        return None, _refusals(text)
    if text.count("{") + text.count("[") > max_depth and _is_deeper(value, max_depth):
        return None, [_too_deep(text, max_depth)]
    if _SURROGATE.search(text):
        return value, _lone_surrogates(text)
    return value, []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Refused
    return made


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [child for parent in level for child in _children(parent) if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _refuse_number(word: str) -> None:
    raise _Refused


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _Refused
    return number


# Places


class _Scan:
    """One pass over a JSON text that is known to be well-formed."""

    def __init__(self, text: str) -> None:
        self.values: dict[Path, int] = {}
        self.keys: dict[Path, int] = {}
        self.twice: list[tuple[Path, int]] = []
        self._path: list[str | int] = []
        self._awaits_key = False
        for token in _TOKEN.finditer(text):
            self._take(token)

    def _take(self, token: re.Match[str]) -> None:
        at = token.start(token.lastindex or 0)
        mark = token.group(1)
        if mark is None:
            self._scalar(token, at)
        elif mark in "{[":
            self._value(at)
            self._path.append("" if mark == "{" else 0)
            self._awaits_key = mark == "{"
        elif mark in "}]":
            self._path.pop()
            self._awaits_key = False
        elif mark == "," and isinstance(self._path[-1], int):
            self._path[-1] += 1
        elif mark == ",":
            self._awaits_key = True

    def _scalar(self, token: re.Match[str], at: int) -> None:
        if not self._awaits_key:
            self._value(at)
            return
        self._awaits_key = False
        self._path[-1] = json.loads(token.group(2))
        path = tuple(self._path)
        if path in self.keys:
            self.twice.append((path, at))
        self.keys.setdefault(path, at)

    def _value(self, at: int) -> None:
        self.values.setdefault(tuple(self._path), at)


def locate_all(text: str) -> Places:
    """The place of everything in a well-formed JSON text."""
    scan = _Scan(text)
    return Places(scan.values, scan.keys)


# What is wrong


def _problem(
    code: str, message: str, text: str, at: int, path: Path = (), hint: str | None = None
) -> Problem:
    line, column = line_and_column(text, at)
    return Problem(code, message, path, hint, line=line, column=column)


def _refusals(text: str) -> list[Problem]:
    scan = _Scan(text)
    problems = []
    for path, at in scan.twice:
        first = line_and_column(text, scan.keys[path])[0]
        message = f"the key {path[-1]!r} stands twice in one object, first in line {first}"
        problems.append(_problem("E004", message, text, at, path))
    problems += [
        _problem("E008", f"{_short(word)} is not a number that JSON can hold", text, at)
        for at, word in _scalars(text)
        if _no_number(word)
    ]
    return problems


def _too_deep(text: str, max_depth: int) -> Problem:
    depth = at = 0
    for token in _TOKEN.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token.group(1), 0)
        if depth > max_depth:
            at = token.start(1)
            break
    return _problem("E007", f"nested more than {max_depth} levels deep", text, at)


def _scalars(text: str) -> list[tuple[int, str]]:
    return [(token.start(3), token.group(3)) for token in _TOKEN.finditer(text) if token.group(3)]


def _no_number(word: str) -> bool:
    if word in ("true", "false", "null"):
        return False
    try:
        return not math.isfinite(float(word)) and not (word.lstrip("-").isdigit() and len(word) < 4300)
    except ValueError:
        return True


def _short(word: str) -> str:
    return word if len(word) <= 24 else f"{word[:20]}…"


def _lone_surrogates(text: str) -> list[Problem]:
    problems = []
    for token in _TOKEN.finditer(text):
        if token.group(2) and _SURROGATE.search(token.group(2)) and _is_lone(json.loads(token.group(2))):
            message = "half of a surrogate pair is no character"
            problems.append(_problem("E002", message, text, token.start(2)))
    return problems


def _is_lone(value: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in value)


def _broken(text: str, error: json.JSONDecodeError) -> Problem:
    at = error.pos
    if at >= len(text.rstrip()):
        return _unfinished(text, at)
    message, hint, at = _explain(text, at, error.msg)
    return _problem("E002", message, text, at, (), hint)


def _unfinished(text: str, at: int) -> Problem:
    """The text ends too early: say what was left open, and where it was opened."""
    opened: list[int] = []
    for token in _TOKEN.finditer(text):
        if token.group(1) in ("{", "["):
            opened.append(token.start(1))
        elif token.group(1) in ("}", "]") and opened:
            opened.pop()
    if not opened:
        return _problem("E002", "the JSON text ends where a value should stand", text, at)
    line, column = line_and_column(text, opened[-1])
    message = (
        f"the JSON text ends, but the {text[opened[-1]]!r} of line {line}, column {column} is not closed"
    )
    return _problem("E002", message, text, at)


def _explain(text: str, at: int, said: str) -> tuple[str, str | None, int]:
    """A message, a hint and a better place for what the JSON decoder found."""
    found = text[at]
    before = text[:at].rstrip()
    if before.endswith(",") and found in "}]":
        return f"a comma before {found!r}", "remove the comma", len(before) - 1
    if said.startswith("Illegal trailing comma"):
        return "a comma before the closing bracket", "remove the comma", at
    if found == "'":
        return "a single quote", 'JSON text stands in double quotes: "…"', at
    if found in "/#":
        return "a comment", "JSON has no comments; YAML has (name the file .yaml)", at
    word = re.compile(r"[A-Za-z_$][\w$-]*").match(text, at)
    if word:
        return _explain_word(word.group(), before), None, at
    return _reword(said, found), None, at


def _explain_word(word: str, before: str) -> str:
    spelt = {"True": "true", "False": "false", "None": "null", "undefined": "null"}.get(word)
    if spelt:
        return f"{word!r} is written {spelt} in JSON"
    if before.endswith(('"', "}", "]")) or before[-1:].isalnum():
        return f"a comma is missing before {word!r}"
    return f"{word!r} needs double quotes"


def _reword(said: str, found: str) -> str:
    for start, better in (
        ("Expecting ',' delimiter", f"a comma or a closing bracket should stand before {found!r}"),
        ("Expecting ':' delimiter", f"a colon should stand before {found!r}"),
        ("Expecting property name", f"a key in double quotes should stand here, not {found!r}"),
        ("Expecting value", f"a value should stand here, not {found!r}"),
        ("Unterminated string", "a text that is not closed with a double quote in its line"),
        ("Invalid control character", "a line break or another control character inside a text; write \\n"),
        ("Invalid \\", "a backslash that begins no escape; write \\\\ for a backslash"),
        ("Extra data", f"more text after the end of the JSON value: {found!r}"),
    ):
        if said.startswith(start):
            return better
    return said[:1].lower() + said[1:]
