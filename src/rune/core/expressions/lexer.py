"""Source text to tokens, written by hand: importing `re` would take longer than all else here."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionSyntaxError, LimitExceeded
from rune.core.expressions.limits import MAX_INTEGER, MAX_SOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Token = tuple[str, Any, int, int]
    """Kind (name, number, string, operator, end), value, start and end in the source."""

__all__ = ["read_string", "tokenize", "word_end"]

_PAIRS = frozenset({"==", "!=", "<=", ">=", "&&", "||", "//", "?."})
_SINGLES = frozenset("+-*/%~<>|!()[]{},:.=")
_DIGITS = frozenset("0123456789")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "/": "/"}
_HINTS = {
    "===": "use `==`",
    "!==": "use `!=`",
    "**": "there is no power operator; multiply",
    "&": "use `and`",
    "?": "write `a if condition else b`",
    "^": "there are no bit operators",
    "`": "strings stand in single or double quotes",
    "$": "a name follows the dollar sign",
    ";": "an expression has one part",
}


def tokenize(source: str, start: int = 0, *, embedded: bool = False) -> tuple[list[Token], int]:
    """Return the tokens from `start` on, and where they end: after the closing `}}` if embedded."""
    lexer = _Lexer(source, start, embedded)
    return lexer.tokens, lexer.run()


def word_end(source: str, start: int) -> int:
    """Return where the word of letters, digits and underscores ends."""
    end = start
    while end < len(source) and (source[end].isalnum() or source[end] == "_"):
        end += 1
    return end


def read_string(source: str, start: int) -> tuple[str, int]:
    """Return the text of the quoted string at `start`, and where it ends."""
    quote, position = source[start], start + 1
    pieces: list[str] = []
    while position < len(source):
        character = source[position]
        if character == quote:
            return "".join(pieces), position + 1
        if character == "\\" and position + 1 < len(source):
            piece, position = _read_escape(source, position)
            pieces.append(piece)
        else:
            pieces.append(character)
            position += 1
    raise ExpressionSyntaxError("the string is not closed", offset=start, source=source)


def _read_escape(source: str, position: int) -> tuple[str, int]:
    letter = source[position + 1]
    if letter == "u":
        unit = _code_unit(source, position)
        low = _code_unit(source, position + 6)
        if unit is not None and low is not None and 0xD800 <= unit < 0xDC00 <= low < 0xE000:
            return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), position + 12
        if unit is not None:
            return chr(unit), position + 6
    # An unknown escape stays as written, so that '\d+' is a pattern.
    return _ESCAPES.get(letter, "\\" + letter), position + 2


def _code_unit(source: str, position: int) -> int | None:
    digits = source[position + 2 : position + 6]
    if source[position : position + 2] != "\\u" or len(digits) != 4:
        return None
    return int(digits, 16) if all(digit in "0123456789abcdefABCDEF" for digit in digits) else None


class _Lexer:
    def __init__(self, source: str, start: int, embedded: bool) -> None:
        self.source = source
        self.start = start
        self.position = start
        self.embedded = embedded
        self.tokens: list[Token] = []
        self.braces: list[str] = []

    def run(self) -> int:
        source = self.source
        while self.position < len(source):
            if self.position - self.start > MAX_SOURCE:
                raise LimitExceeded(
                    f"the expression is longer than {MAX_SOURCE:,} characters",
                    bound="source length",
                    offset=self.start,
                    source=source,
                )
            character = source[self.position]
            if character.isspace():
                self.position += 1
            elif self.embedded and not self.braces and source.startswith("}}", self.position):
                self._finish()
                return self.position + 2
            else:
                self._token(character)
        if self.embedded:
            raise ExpressionSyntaxError(
                "`{{` is not closed",
                offset=self.start - 2,
                source=source,
                hint="write {{ '{{' }} for the characters",
            )
        self._finish()
        return self.position

    def _finish(self) -> None:
        self.tokens.append(("end", "", self.position, self.position))

    def _emit(self, kind: str, value: Any, end: int) -> None:
        self.tokens.append((kind, value, self.position, end))
        self.position = end

    def _token(self, character: str) -> None:
        if character in "'\"":
            text, end = read_string(self.source, self.position)
            self._emit("string", text, end)
        elif character in _DIGITS:
            self._number()
        elif character.isalpha() or character == "_":
            end = word_end(self.source, self.position)
            self._emit("name", self.source[self.position : end], end)
        elif character == "$" and (end := word_end(self.source, self.position + 1)) > self.position + 1:
            self._emit("name", self.source[self.position : end], end)
        elif character in "{}":
            self._brace(character)
        else:
            self._operator(character)

    def _number(self) -> None:
        end = self._digits(self.position)
        if self.tokens and self.tokens[-1][1] in (".", "?.") and self.tokens[-1][0] == "operator":
            self._emit("name", self.source[self.position : end], end)  # `items.0.id`: a step, not 0.1
            return
        whole = True
        if self.source.startswith(".", end) and self._digits(end + 1) > end + 1:
            end, whole = self._digits(end + 1), False
        if end < len(self.source) and self.source[end] in "eE":
            sign = end + 2 if self.source[end + 1 : end + 2] in ("+", "-") else end + 1
            if self._digits(sign) > sign:
                end, whole = self._digits(sign), False
        self._emit("number", self._value(self.source[self.position : end], whole), end)

    def _value(self, digits: str, whole: bool) -> int | float:
        if whole:
            if len(digits) > 80 or int(digits) >= MAX_INTEGER:
                raise LimitExceeded(
                    "the integer is larger than 2^256",
                    bound="integer",
                    offset=self.position,
                    source=self.source,
                )
            return int(digits)
        value = float(digits)
        if value - value != 0:
            raise ExpressionSyntaxError(
                f"the number {digits[:40]} is too large", offset=self.position, source=self.source
            )
        return value

    def _digits(self, start: int) -> int:
        end = start
        while end < len(self.source) and self.source[end] in _DIGITS:
            end += 1
        return end

    def _brace(self, character: str) -> None:
        """Read a brace; `{{ e }}` inside an expression means `(e)`."""
        double = self.source.startswith(character * 2, self.position)
        if character == "{":
            self.braces.append("{{" if double else "{")
            self._emit("operator", "(" if double else "{", self.position + 1 + double)
        elif self.braces and self.braces.pop() == "{{" and double:
            self._emit("operator", ")", self.position + 2)
        else:
            self._emit("operator", "}", self.position + 1)

    def _operator(self, character: str) -> None:
        pair = self.source[self.position : self.position + 2]
        for wrong in (self.source[self.position : self.position + 3], "**" if pair == "**" else ""):
            if wrong in _HINTS and len(wrong) > 1:
                raise self._unexpected(wrong)
        if pair in _PAIRS:
            self._emit("operator", pair, self.position + 2)
        elif character in _SINGLES:
            self._emit("operator", character, self.position + 1)
        else:
            raise self._unexpected(character)

    def _unexpected(self, characters: str) -> ExpressionSyntaxError:
        return ExpressionSyntaxError(
            f"unexpected {characters!r}",
            offset=self.position,
            source=self.source,
            hint=_HINTS.get(characters),
        )
