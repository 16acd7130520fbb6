"""YAML text, built from parser events, with a place for everything; only true and false are booleans."""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

import yaml

from rune.core.errors import Problem
from rune.formats.places import Path, Places, line_and_column

__all__ = ["decode"]

MAX_ALIASED = 100_000
"""Values that aliases may add to a document."""

_CORE = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ODD_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MERGE = object()


class _Refused(Exception):
    """Something in the text that is not accepted, and where."""

    def __init__(self, code: str, message: str, at: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.at, self.hint = code, message, at, hint


def decode(text: str, max_depth: int) -> tuple[Any, Places, list[Problem]]:
    """The value in a YAML text and the places in it, or what is wrong with it."""
    builder = _Builder(max_depth)
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except _Refused as refused:
        line, column = line_and_column(text, refused.at)
        problem = Problem(refused.code, refused.message, (), refused.hint, line=line, column=column)
        return None, Places({}, {}), [*_twice(text, builder), problem]
    except yaml.YAMLError as error:
        return None, Places({}, {}), [_broken(text, error)]
    return builder.value, Places(builder.values, builder.keys), _twice(text, builder)


class _Open:
    """A list or a mapping that is not finished yet."""

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: Any = None
        self.has_key = False
        self.merged: list[dict[str, Any]] = []
        self.size = 1


class _Builder:
    """Puts parser events together to plain data."""

    def __init__(self, max_depth: int) -> None:
        self.value: Any = None
        self.values: dict[Path, int] = {}
        self.keys: dict[Path, int] = {}
        self.twice: list[tuple[Path, int]] = []
        self._max_depth = max_depth
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._documents = 0
        self._aliased = 0

    def take(self, event: Any) -> None:
        """Take the next event."""
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.MappingStartEvent():
                self._open(event, {})
            case yaml.SequenceStartEvent():
                self._open(event, [])
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._second(event)

    def _second(self, event: Any) -> NoReturn:
        at = event.start_mark.index
        raise _Refused("E009", "a second YAML document", at, "one file holds one workflow")

    def _path(self) -> Path:
        return tuple(o.key if isinstance(o.value, dict) else len(o.value) for o in self._stack)

    def _scalar(self, event: Any) -> None:
        value = _plain(event)
        if self._at_key():
            self._key(value, event)
            return
        if value is _MERGE:
            value = event.value
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._put(value, event.start_mark.index, 1)

    def _at_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and not self._stack[-1].has_key

    def _key(self, value: Any, event: Any) -> None:
        at = event.start_mark.index
        top = self._stack[-1]
        if value is not _MERGE and not isinstance(value, str):
            hint = f"write '{event.value}' in quotes"
            raise _Refused("E009", f"the key {event.value!r} is not text", at, hint)
        top.key, top.has_key = value, True
        if value is _MERGE:
            return
        path = self._path()
        if value in top.value:
            self.twice.append((path, at))
        self.keys.setdefault(path, at)

    def _open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        at = event.start_mark.index
        if event.tag not in (None, "!", _CORE + ("map" if isinstance(value, dict) else "seq")):
            raise _Refused("E009", f"the tag {_tag(event.tag)} is not accepted", at)
        if self._at_key():
            raise _Refused("E009", "a list or an object as a key", at)
        if len(self._stack) >= self._max_depth:
            raise _Refused("E007", f"nested more than {self._max_depth} levels deep", at)
        self.values.setdefault(self._path(), at)
        self._stack.append(_Open(value, event.anchor))

    def _close(self) -> None:
        done = self._stack.pop()
        for extra in done.merged:
            for key, value in extra.items():
                done.value.setdefault(key, value)  # type: ignore[union-attr]  # only mappings merge
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.size)
        self._put(done.value, None, done.size)

    def _alias(self, event: Any) -> None:
        at = event.start_mark.index
        if self._at_key():
            raise _Refused("E009", "an alias as a key", at)
        if event.anchor not in self._anchors:
            raise _Refused("E003", f"*{event.anchor} names an anchor that is not finished here", at)
        value, size = self._anchors[event.anchor]
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise _Refused("E009", f"aliases repeat more than {MAX_ALIASED} values", at)
        self._put(value, at, size)

    def _put(self, value: Any, at: int | None, size: int) -> None:
        if at is not None:
            self.values.setdefault(self._path(), at)
        if not self._stack:
            self.value = value
            return
        top = self._stack[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
            return
        top.has_key = False
        if top.key is not _MERGE:
            top.value[top.key] = value
            return
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise _Refused("E009", "'<<' merges objects only", at or 0)
        top.merged += parts


def _plain(event: Any) -> Any:
    """The value of a scalar, by the core schema of YAML 1.2."""
    text: str = event.value
    if event.tag not in (None, "!"):
        return _tagged(event)
    if event.tag == "!" or event.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text == "<<":
        return _MERGE
    return _number(text, event.start_mark.index)


def _number(text: str, at: int) -> Any:
    if _INTEGER.fullmatch(text) and len(text) < 4300:
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _ODD_FLOAT.fullmatch(text) or (_FLOAT.fullmatch(text) and not math.isfinite(float(text))):
        raise _Refused("E008", f"{text[:24]} is not a number that JSON can hold", at)
    return float(text) if _FLOAT.fullmatch(text) else text


def _tagged(event: Any) -> Any:
    at = event.start_mark.index
    if event.tag == f"{_CORE}str":
        return event.value
    kinds = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    kind = kinds.get(event.tag.removeprefix(_CORE))
    value = _WORDS[event.value] if event.value in _WORDS else _number(event.value, at)
    if kind is None:
        raise _Refused("E009", f"the tag {_tag(event.tag)} is not accepted", at)
    if not isinstance(value, kind):  # type: ignore[arg-type]
        raise _Refused("E009", f"{event.value!r} is not what {_tag(event.tag)} says", at)
    return value


def _tag(tag: str) -> str:
    return f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag


def _twice(text: str, builder: _Builder) -> list[Problem]:
    problems = []
    for path, at in builder.twice:
        first = line_and_column(text, builder.keys[path])[0]
        line, column = line_and_column(text, at)
        message = f"the key {path[-1]!r} stands twice in one object, first in line {first}"
        problems.append(Problem("E004", message, path, line=line, column=column))
    return problems


def _broken(text: str, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        at = getattr(error, "position", 0) or 0
        line, column = line_and_column(text, at)
        reason = getattr(error, "reason", str(error))
        return Problem("E003", f"a character that YAML does not allow: {reason}", line=line, column=column)
    lines = text.splitlines()
    source = lines[mark.line] if mark.line < len(lines) else ""
    said = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    message = f"{said}, {context}" if context else said
    # At its end, the parser counts a line that may not be there.
    line, column = line_and_column(text, mark.index)
    return Problem("E003", message, (), _hint(source), line=line, column=column)


def _hint(source: str) -> str | None:
    if source.lstrip(" ").startswith("\t"):
        return "YAML is indented with spaces, not with tabs"
    if re.search(r":\s+[{@`%]", source):
        return "a text that begins with {, @, ` or % needs quotes"
    if re.search(r":\s+[^'\"|>&*!\[{#][^'\"]*:\s", source):
        return "a text with ': ' in it needs quotes"
    return None
