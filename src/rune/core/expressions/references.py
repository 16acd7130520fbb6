"""Bare references in text: `$fetch.body.items[0].id`."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionSyntaxError
from rune.core.expressions.lexer import read_string, word_end
from rune.core.expressions.syntax import Literal, Name, Node, Path, Step

__all__ = ["read_reference"]

_LONGEST_INDEX = 10


def read_reference(text: str, start: int) -> tuple[Node, int] | None:
    """Return the reference at a dollar sign and where it ends; a sentence's full stop is no part of it."""
    name_end = end = word_end(text, start + 1)
    if end == start + 1:
        return None
    steps: list[Step] = []
    while step := _read_step(text, end):
        steps.append(step)
        end = step.end
    name = Name(start, name_end, text[start:name_end])
    if name.name == "$node" and not steps:
        return None
    return (Path(start, name_end, name, steps) if steps else name), end


def _read_step(text: str, start: int) -> Step | None:
    optional = text.startswith("?.", start)
    position = start + 2 if optional else start
    if text.startswith("[", position):
        return _read_index(text, position, optional)
    if not optional:
        if not text.startswith(".", position):
            return None
        position += 1
    end = word_end(text, position)
    # "$price.50" is a price and a fraction; an index into an array is written in brackets here.
    if end == position or text[position].isdigit():
        return None
    return Step(position, end, Literal(position, text[position:end]), dotted=True, optional=optional)


def _read_index(text: str, start: int, optional: bool) -> Step | None:
    position = start + 1
    key: str | int
    if text[position : position + 1] in ("'", '"'):
        try:
            key, end = read_string(text, position)
        except ExpressionSyntaxError:
            return None
    else:
        sign = 1 if text.startswith("-", position) else 0
        end = word_end(text, position + sign)
        digits = text[position + sign : end]
        if not (digits.isascii() and digits.isdigit()) or len(digits) > _LONGEST_INDEX:
            return None
        key = -int(digits) if sign else int(digits)
    if not text.startswith("]", end):
        return None
    return Step(position, end + 1, Literal(position, key), dotted=False, optional=optional)
