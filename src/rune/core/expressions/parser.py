"""Tokens to a syntax tree, by precedence climbing."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionSyntaxError, LimitExceeded
from rune.core.expressions.library import FUNCTIONS, TESTS
from rune.core.expressions.limits import MAX_NESTING
from rune.core.expressions.suggest import suggest
from rune.core.expressions.syntax import (
    Array,
    Binary,
    Call,
    Compare,
    Conditional,
    Literal,
    Logic,
    Name,
    Node,
    Object,
    Path,
    Step,
    Test,
    TextJoin,
    Unary,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from rune.core.expressions.lexer import Token

__all__ = ["parse"]

_CONSTANTS: Mapping[str, Any] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "none": None,
    "None": None,
}
_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "if", "else", "contains"})
_SYNONYMS = {"&&": "and", "||": "or"}

_OR, _AND, _NOT, _COMPARISON, _TEST, _JOIN, _SUM, _PRODUCT = range(1, 9)
_LEVELS = {
    "or": _OR,
    "and": _AND,
    "not": _COMPARISON,  # as in `not in`
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "contains"), _COMPARISON),
    "is": _TEST,
    "~": _JOIN,
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "//", "%"), _PRODUCT),
}


def parse(tokens: list[Token], source: str) -> Node:
    """Return the syntax tree of one expression."""
    return _Parser(tokens, source).whole()


class _Parser:
    def __init__(self, tokens: list[Token], source: str) -> None:
        self.tokens = tokens
        self.source = source
        self.index = 0
        self.depth = 0

    # Tokens

    @property
    def offset(self) -> int:
        return self.tokens[self.index][2]

    @property
    def last_end(self) -> int:
        return self.tokens[self.index - 1][3]

    def at(self, symbol: str, ahead: int = 0) -> bool:
        index = min(self.index + ahead, len(self.tokens) - 1)
        kind, value, _, _ = self.tokens[index]
        return value == symbol and kind in ("operator", "name")

    def take(self, symbol: str) -> bool:
        if self.at(symbol):
            self.index += 1
            return True
        return False

    def expect(self, symbol: str, what: str) -> None:
        if not self.take(symbol):
            raise self.unexpected(f"expected `{symbol}` {what}")

    def word(self, what: str) -> str:
        kind, value, _, _ = self.tokens[self.index]
        if kind != "name":
            raise self.unexpected(f"expected {what}")
        self.index += 1
        return str(value)

    def error(self, message: str, offset: int, hint: str | None = None) -> ExpressionSyntaxError:
        return ExpressionSyntaxError(message, offset=offset, hint=hint, source=self.source)

    def unexpected(self, message: str = "") -> ExpressionSyntaxError:
        kind, value, start, end = self.tokens[self.index]
        found = "the end" if kind == "end" else f"`{self.source[start:end][:40]}`"
        hint = "use `==` to compare" if kind == "operator" and value == "=" else None
        return self.error(f"{message}, found {found}" if message else f"unexpected {found}", start, hint)

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise LimitExceeded(
                f"nested more than {MAX_NESTING} deep",
                bound="nesting",
                offset=self.offset,
                source=self.source,
            )

    # Levels, from loose to tight

    def whole(self) -> Node:
        if self.tokens[0][0] == "end":
            raise self.error("the expression is empty", self.offset)
        node = self.expression()
        if self.tokens[self.index][0] != "end":
            raise self.unexpected()
        return node

    def expression(self) -> Node:
        self.enter()
        node = self.binary(_OR)
        if self.at("if"):
            offset = self.offset
            self.index += 1
            condition = self.binary(_OR)
            node = Conditional(offset, condition, node, self.expression() if self.take("else") else None)
        self.depth -= 1
        return node

    def binary(self, minimum: int) -> Node:
        left = self.negation() if self.at("not") else self.unary()
        while True:
            operator = self.operator()
            level = _LEVELS.get(operator, 0)
            if level < minimum or level == 0:
                return left
            left = self.combine(left, operator, level)

    def operator(self) -> str:
        kind, value, _, _ = self.tokens[self.index]
        if kind not in ("operator", "name") or (value == "not" and not self.at("in", 1)):
            return ""
        return _SYNONYMS.get(value, str(value))

    def combine(self, left: Node, operator: str, level: int) -> Node:
        offset = self.offset
        if level in (_OR, _AND, _JOIN):
            operands = [left]
            while self.operator() == operator:
                self.index += 1
                operands.append(self.binary(level + 1))
            return TextJoin(offset, operands) if level == _JOIN else Logic(offset, operator, operands)
        if level == _COMPARISON:
            return self.comparison(left)
        self.index += 1
        if level == _TEST:
            return self.test(left, offset)
        return Binary(offset, operator, left, self.binary(level + 1))

    def comparison(self, left: Node) -> Node:
        offset = self.offset
        operators, operands = [], [left]
        while _LEVELS.get(operator := self.operator()) == _COMPARISON:
            self.index += 2 if operator == "not" else 1
            operators.append("not in" if operator == "not" else operator)
            operands.append(self.binary(_COMPARISON + 1))
        return Compare(offset, operators, operands)

    def negation(self) -> Node:
        self.enter()
        offset = self.offset
        self.index += 1
        node = Unary(offset, "not", self.binary(_NOT))
        self.depth -= 1
        return node

    def test(self, operand: Node, offset: int) -> Node:
        negated = self.take("not")
        start = self.offset
        name = self.word("the name of a test")
        if name not in TESTS:
            raise self.unknown("test", name, TESTS, start)
        arguments = [operand]
        if self.at("("):
            arguments += self.arguments()[0]
        elif TESTS[name].required > 1:
            arguments.append(self.unary())
        return Test(offset, name, arguments, negated)

    def unary(self) -> Node:
        for symbol in ("-", "+", "!"):
            if self.at(symbol):
                self.enter()
                node = self.prefixed(symbol)
                self.depth -= 1
                return node
        start = self.offset
        return self.filters(self.postfix(self.primary(), start))

    def prefixed(self, symbol: str) -> Node:
        offset = self.offset
        self.index += 1
        kind, value, _, _ = self.tokens[self.index]
        if kind == "number" and symbol == "-":
            self.index += 1
            return self.filters(self.postfix(Literal(offset, -value), offset))  # so `-1 | abs` is 1
        return Unary(offset, "not" if symbol == "!" else symbol, self.unary())

    def filters(self, node: Node) -> Node:
        while self.take("|"):
            offset = self.offset
            name = self.word("the name of a filter")
            node = self.call(name, offset, [node])
        return node

    def call(self, name: str, offset: int, before: list[Node]) -> Node:
        if name not in FUNCTIONS:
            raise self.unknown("function", name, FUNCTIONS, offset)
        arguments, keywords = self.arguments() if self.at("(") else ([], {})
        return Call(offset, name, before + arguments, keywords)

    def unknown(self, what: str, name: str, known: Mapping[str, Any], offset: int) -> ExpressionSyntaxError:
        near = suggest(name, known)
        return self.error(f"there is no {what} '{name}'", offset, f"did you mean '{near}'?" if near else None)

    def arguments(self) -> tuple[list[Node], dict[str, Node]]:
        self.expect("(", "before the arguments")
        positional: list[Node] = []
        keywords: dict[str, Node] = {}
        while not self.take(")"):
            if self.tokens[self.index][0] == "name" and self.at("=", 1):
                offset = self.offset
                name = self.word("a name")
                self.index += 1
                if name in keywords:
                    raise self.error(f"the argument '{name}' is given twice", offset)
                keywords[name] = self.expression()
            elif keywords:
                raise self.error("an argument without a name stands after one with a name", self.offset)
            else:
                positional.append(self.expression())
            if not self.at(")"):
                self.expect(",", "or `)` after an argument")
        return positional, keywords

    # Paths and values

    def postfix(self, node: Node, start: int) -> Node:
        steps: list[Step] = []
        end = self.last_end
        while True:
            optional = self.take("?.")
            if self.take("["):
                sliced = self.bracket(steps, optional)
                if sliced is not None:
                    base = Path(start, end, node, steps) if steps else node
                    node, steps, end = Call(sliced[0].offset, "slice", [base, *sliced], {}), [], self.last_end
            elif optional or self.take("."):
                steps.append(self.member(optional))
            else:
                return Path(start, end, node, steps) if steps else node

    def member(self, optional: bool) -> Step:
        offset = self.offset
        name = self.word("a key after the dot")
        if self.at("("):
            hint = f"write `… | {name}`" if name in FUNCTIONS else None
            raise self.error(f"values have no methods, so `.{name}()` cannot be called", offset, hint)
        return Step(offset, self.last_end, Literal(offset, name), dotted=True, optional=optional)

    def bracket(self, steps: list[Step], optional: bool) -> list[Node] | None:
        """Read after `[`: append an index step, or return the bounds of a slice."""
        offset = self.offset
        start: Node | None = None if self.at(":") else self.expression()
        if self.take(":"):
            stop: Node | None = None if self.at("]") else self.expression()
            self.expect("]", "after the slice")
            return [start or Literal(offset, None), stop or Literal(offset, None)]
        self.expect("]", "after the index")
        assert start is not None
        steps.append(Step(offset, self.last_end, start, dotted=False, optional=optional))
        return None

    def primary(self) -> Node:
        kind, value, offset, end = self.tokens[self.index]
        if kind == "name":
            return self.named(str(value), offset, end)
        self.index += 1
        if kind in ("number", "string"):
            return Literal(offset, value)
        if kind == "operator" and value == "(":
            node = self.expression()
            self.expect(")", "after the expression")
            return node
        if kind == "operator" and value == "[":
            return self.array(offset)
        if kind == "operator" and value == "{":
            return self.object(offset)
        self.index -= 1
        raise self.unexpected("expected a value")

    def named(self, name: str, offset: int, end: int) -> Node:
        if self.at("(", 1):
            self.index += 1
            return self.call(name, offset, [])
        if name in _KEYWORDS:
            raise self.unexpected("expected a value")
        self.index += 1
        return Literal(offset, _CONSTANTS[name]) if name in _CONSTANTS else Name(offset, end, name)

    def array(self, offset: int) -> Node:
        items = []
        while not self.take("]"):
            items.append(self.expression())
            if not self.at("]"):
                self.expect(",", "or `]` after an element")
        return Array(offset, items)

    def object(self, offset: int) -> Node:
        keys, values = [], []
        while not self.take("}"):
            kind, value, start, end = self.tokens[self.index]
            if kind not in ("name", "string", "number"):
                raise self.unexpected("expected a key")
            self.index += 1
            keys.append(value if kind == "string" else self.source[start:end])
            self.expect(":", "after the key")
            values.append(self.expression())
            if not self.at("}"):
                self.expect(",", "or `}` after a value")
        return Object(offset, keys, values)
