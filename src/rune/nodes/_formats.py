"""Formats of dates: strftime's `%Y-%m-%d`, the common `YYYY-MM-DD`, and Go's `2006-01-02`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, tzinfo
from functools import lru_cache

from rune.core.errors import NodeError

__all__ = ["parse_as", "write_as"]

Token = tuple[str, Callable[[datetime], str]]
"""What strptime calls a part, and how it is written."""


def _plain(directive: str) -> Token:
    return directive, lambda moment: moment.strftime(directive)


def _short(directive: str) -> Token:
    return directive, lambda moment: moment.strftime(directive).lstrip("0") or "0"


def _offset(moment: datetime) -> str:
    text = moment.strftime("%z")
    return f"{text[:3]}:{text[3:5]}"


def _zulu(moment: datetime) -> str:
    return "Z" if _offset(moment) == "+00:00" else _offset(moment)


_MILLISECONDS: Token = ("%f", lambda moment: f"{moment.microsecond // 1000:03}")

_COMMON: Mapping[str, Token] = {
    "YYYY": ("%Y", lambda moment: f"{moment.year:04}"),
    "YY": _plain("%y"),
    "MMMM": _plain("%B"),
    "MMM": _plain("%b"),
    "MM": _plain("%m"),
    "M": _short("%m"),
    "DDDD": _plain("%j"),
    "DD": _plain("%d"),
    "D": _short("%d"),
    "dddd": _plain("%A"),
    "ddd": _plain("%a"),
    "HH": _plain("%H"),
    "H": _short("%H"),
    "hh": _plain("%I"),
    "h": _short("%I"),
    "mm": _plain("%M"),
    "m": _short("%M"),
    "ss": _plain("%S"),
    "s": _short("%S"),
    "SSS": _MILLISECONDS,
    "A": _plain("%p"),
    "a": ("%p", lambda moment: moment.strftime("%p").lower()),
    "ZZ": _plain("%z"),
    "Z": ("%z", _offset),
}

_GO: Mapping[str, Token] = {
    "2006": _COMMON["YYYY"],
    "06": _plain("%y"),
    "January": _plain("%B"),
    "Jan": _plain("%b"),
    "01": _plain("%m"),
    "Monday": _plain("%A"),
    "Mon": _plain("%a"),
    "02": _plain("%d"),
    "15": _plain("%H"),
    "03": _plain("%I"),
    "04": _plain("%M"),
    "05": _plain("%S"),
    "000": _MILLISECONDS,
    "PM": _plain("%p"),
    "MST": _plain("%Z"),
    "Z07:00": ("%z", _zulu),
    "-07:00": ("%z", _offset),
    "-0700": _plain("%z"),
}

_DIRECTIVES = frozenset("aAbBcdfGHIjmMpSuUVwWxXyYzZ%")


def _pattern(tokens: Mapping[str, Token]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))


_GO_PATTERN = _pattern(_GO)
_COMMON_PATTERN = re.compile(rf"\[[^\]]*\]|(?<![A-Za-z])T(?![A-Za-z])|{_pattern(_COMMON).pattern}")


def write_as(moment: datetime, format: str) -> str:
    """The moment in this format."""
    if "%" in format:
        return moment.strftime(_checked(format))
    return "".join(part if isinstance(part, str) else part[1](moment) for part in _parts(format))


def parse_as(text: str, format: str, home: tzinfo) -> datetime:
    """The moment that a text in this format names; without a zone of its own it is in `home`."""
    directives = _checked(format) if "%" in format else "".join(map(_directive, _parts(format)))
    try:
        moment = datetime.strptime(text.strip(), directives)  # noqa: DTZ007 - the zone follows
    except (ValueError, re.error):
        raise NodeError(f"{text!r:.80} is not a time in the format {format!r}", "TIME_INVALID") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=home)


def _directive(part: str | Token) -> str:
    return part.replace("%", "%%") if isinstance(part, str) else part[0]


@lru_cache(maxsize=256)
def _parts(format: str) -> tuple[str | Token, ...]:
    go = "2006" in format or "15:04" in format
    parts = tuple(_split(format, _GO_PATTERN if go else _COMMON_PATTERN, _GO if go else _COMMON))
    if all(isinstance(part, str) for part in parts):
        raise _unknown(format)
    return parts


def _split(format: str, pattern: re.Pattern[str], tokens: Mapping[str, Token]) -> Iterator[str | Token]:
    end = 0
    for match in pattern.finditer(format):
        if match.start() > end:
            yield format[end : match.start()]
        word = match[0]
        yield tokens.get(word) or word.strip("[]")
        end = match.end()
    if end < len(format):
        yield format[end:]


@lru_cache(maxsize=256)
def _checked(format: str) -> str:
    unknown = [d for d in re.findall(r"%-?(.?)", format) if d not in _DIRECTIVES or not d]
    if unknown:
        raise _unknown(format)
    return format


def _unknown(format: str) -> NodeError:
    return NodeError(
        f"{format!r} is not a format of dates; write `YYYY-MM-DD HH:mm:ss` or `%Y-%m-%d %H:%M:%S`",
        "FORMAT_UNKNOWN",
    )
