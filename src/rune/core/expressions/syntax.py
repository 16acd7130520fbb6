"""The syntax tree; each node knows where it stands in the source."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "Array",
    "Binary",
    "Call",
    "Compare",
    "Conditional",
    "Literal",
    "Logic",
    "Name",
    "Node",
    "Object",
    "Path",
    "Step",
    "Test",
    "TextJoin",
    "Unary",
]


class Node:
    """Any part of an expression."""

    __slots__ = ("offset",)

    offset: int


class Literal(Node):
    """A constant as written: a number, a string, true, false or null."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        self.offset = offset
        self.value = value


class Name(Node):
    """A root name, which the scope gives a value."""

    __slots__ = ("end", "name")

    def __init__(self, offset: int, end: int, name: str) -> None:
        self.offset = offset
        self.end = end
        self.name = name


class Step(Node):
    """One step of a path: a constant key or index, or an expression; `end` is where it ends."""

    __slots__ = ("dotted", "end", "key", "optional")

    def __init__(self, offset: int, end: int, key: Node, *, dotted: bool, optional: bool) -> None:
        self.offset = offset
        self.end = end
        self.key = key
        self.dotted = dotted
        self.optional = optional


class Path(Node):
    """Steps into a value; `end` is where the value they start from ends."""

    __slots__ = ("base", "end", "steps")

    def __init__(self, offset: int, end: int, base: Node, steps: list[Step]) -> None:
        self.offset = offset
        self.end = end
        self.base = base
        self.steps = steps


class Array(Node):
    """A list written out."""

    __slots__ = ("items",)

    def __init__(self, offset: int, items: list[Node]) -> None:
        self.offset = offset
        self.items = items


class Object(Node):
    """A map written out."""

    __slots__ = ("keys", "values")

    def __init__(self, offset: int, keys: list[str], values: list[Node]) -> None:
        self.offset = offset
        self.keys = keys
        self.values = values


class Unary(Node):
    """`-`, `+` or `not` before a value."""

    __slots__ = ("operand", "operator")

    def __init__(self, offset: int, operator: str, operand: Node) -> None:
        self.offset = offset
        self.operator = operator
        self.operand = operand


class Binary(Node):
    """Arithmetic of two values."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, offset: int, operator: str, left: Node, right: Node) -> None:
        self.offset = offset
        self.operator = operator
        self.left = left
        self.right = right


class Compare(Node):
    """Values compared pairwise: `a < b < c` holds if both do."""

    __slots__ = ("operands", "operators")

    def __init__(self, offset: int, operators: list[str], operands: list[Node]) -> None:
        self.offset = offset
        self.operators = operators
        self.operands = operands


class Logic(Node):
    """`and` or `or` of two values or more."""

    __slots__ = ("operands", "operator")

    def __init__(self, offset: int, operator: str, operands: list[Node]) -> None:
        self.offset = offset
        self.operator = operator
        self.operands = operands


class TextJoin(Node):
    """`~` between two values or more."""

    __slots__ = ("operands",)

    def __init__(self, offset: int, operands: list[Node]) -> None:
        self.offset = offset
        self.operands = operands


class Conditional(Node):
    """`then if condition else otherwise`."""

    __slots__ = ("condition", "otherwise", "then")

    def __init__(self, offset: int, condition: Node, then: Node, otherwise: Node | None) -> None:
        self.offset = offset
        self.condition = condition
        self.then = then
        self.otherwise = otherwise


class Call(Node):
    """A function applied to arguments; a filter's first argument is what stands before the bar."""

    __slots__ = ("arguments", "keywords", "name")

    def __init__(self, offset: int, name: str, arguments: list[Node], keywords: dict[str, Node]) -> None:
        self.offset = offset
        self.name = name
        self.arguments = arguments
        self.keywords = keywords


class Test(Node):
    """`value is name`, or its negation."""

    __slots__ = ("arguments", "name", "negated")

    def __init__(self, offset: int, name: str, arguments: list[Node], negated: bool) -> None:
        self.offset = offset
        self.name = name
        self.arguments = arguments
        self.negated = negated
