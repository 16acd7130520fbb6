"""Files of lines: text, JSON Lines and CSV, read from a byte on in portions of a bounded size."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from rune.core.errors import NodeError
from rune.core.node import Portion
from rune.core.sources import Csv, Descriptor
from rune.nodes._artifacts import Artifacts

__all__ = ["LONGEST", "read_file"]

LONGEST = 8 * 1024 * 1024
"""Bytes of one line, or of one record of CSV."""
_PORTION = 1024 * 1024
"""Bytes of a file after which a portion is enough, however small the items are."""
_MARK = b"\xef\xbb\xbf"
"""What some editors put before text in UTF-8."""


class _Place(Struct, omit_defaults=True):
    """Where to read on."""

    at: int = 0
    line: int = 0
    """Lines before it."""
    size: int = -1
    """The file's when it was opened first: what is added later is not part of it."""
    columns: list[str] | None = None

    @property
    def named(self) -> int:
        """Characters of the names of all columns."""
        return sum(map(len, self.columns)) if self.columns else 0


class _Lines:
    """The lines of a file from a place on, with their ends; the place moves along."""

    def __init__(self, name: str, file: BinaryIO, place: _Place) -> None:
        self.name = name
        self.place = place
        self.record: int | None = None
        """Where the record begins that a line is part of, if records may have several."""
        self._file = file
        self._begin()

    def _begin(self) -> None:
        place, size = self.place, os.fstat(self._file.fileno()).st_size
        if place.size < 0:
            place.size = size
            place.at = len(_MARK) if self._file.read(len(_MARK)) == _MARK else 0
            self._file.seek(place.at)
            return
        self._file.seek(place.at - 1)
        if size < place.size or self._file.read(1) != b"\n":
            raise NodeError(
                f"the file '{self.name}' was changed while it was read; leave it as it is, and start again",
                "SOURCE_CHANGED",
                {"file": self.name},
            )

    @property
    def ended(self) -> bool:
        return self.place.at >= self.place.size

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.ended:
            raise StopIteration
        place = self.place
        room = LONGEST if self.record is None else LONGEST - (place.at - self.record)
        data = self._file.readline(min(room + 1, place.size - place.at))
        place.line += 1
        if len(data) > room:
            raise self.broken(f"it is longer than {LONGEST:,} bytes")
        if not data:
            raise self.broken("the file ends here, and was longer before")
        place.at += len(data)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.broken("it is not text in UTF-8") from None

    def broken(self, what: str, line: int = 0) -> NodeError:
        """What is wrong with a line: without a number, with the last one."""
        line = line or self.place.line
        return NodeError(
            f"line {line} of '{self.name}': {what}", "SOURCE_LINE", {"file": self.name, "line": line}
        )


def read_file(artifacts: Artifacts, source: Descriptor, position: Any, wanted: int) -> Portion:
    """Some items of a file; this blocks, so it is for a thread."""
    table = Csv(file=source.csv) if isinstance(source.csv, str) else source.csv
    name = table.file if table else source.lines or source.jsonl or ""
    place = _Place() if position is None else msgspec.convert(position, _Place)
    with artifacts.open(name) as file:
        lines = _Lines(name, file, place)
        begun = place.at
        found = _records(lines, table) if table else _values(lines) if source.jsonl else _texts(lines)
        items: list[Any] = []
        named = place.named
        # Each record of CSV repeats the names of its columns.
        while len(items) < wanted and place.at - begun + len(items) * named < _PORTION:
            try:
                items.append(next(found))
            except StopIteration:
                break
            named = named or place.named
        return Portion(items, None if lines.ended else msgspec.to_builtins(place))


def _texts(lines: _Lines) -> Iterator[str]:
    for line in lines:
        yield line.removesuffix("\n").removesuffix("\r")


def _values(lines: _Lines) -> Iterator[Any]:
    for line in lines:
        if not line.isspace():
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise lines.broken(f"it is not JSON: {error}") from error


def _records(lines: _Lines, table: Csv) -> Iterator[Any]:
    """The records of CSV; one that has line breaks in its quotes takes several lines."""
    place = lines.place
    reader = csv.reader(lines, delimiter=table.delimiter, strict=True)
    while True:
        first, lines.record = place.line + 1, place.at
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise lines.broken(f"it is not CSV: {error}", first) from error
        if fields is None:
            return
        if not fields:
            continue
        if not table.header:
            yield fields
        elif place.columns is None:
            place.columns = _columns(lines, fields)
        elif len(fields) != len(place.columns):
            many = f"{len(fields)} fields, where the header has {len(place.columns)}"
            raise lines.broken(f"it has {many}", first)
        else:
            yield dict(zip(place.columns, fields, strict=True))


def _columns(lines: _Lines, fields: list[str]) -> list[str]:
    twice = next((name for at, name in enumerate(fields) if name in fields[:at]), None)
    if twice is not None:
        raise lines.broken(f"two columns are called {twice!r}")
    return fields
