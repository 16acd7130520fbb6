"""A syntax tree to closures: each takes the scope and the budget and gives a value."""

from __future__ import annotations

from rune.core.expressions.calls import compile_call, compile_test
from rune.core.expressions.closures import VARIES, Code, apply, constant
from rune.core.expressions.errors import ExpressionError, ExpressionSyntaxError, LimitExceeded
from rune.core.expressions.limits import MAX_CHAIN, SMALL, FoldingBudget
from rune.core.expressions.operators import ARITHMETIC, RELATIONS, RELATIONS_ALIGNED, negate, positive
from rune.core.expressions.paths import RAISE, CompiledStep, follow, follow_name
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
    Test,
    TextJoin,
    Unary,
)
from rune.core.expressions.values import UNDEFINED, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from rune.core.expressions.limits import Budget
    from rune.core.expressions.paths import Run, Scope

__all__ = ["Compiler"]

_RESERVED = frozenset(
    {"item", "index", "items", "trigger", "input", "json", "execution", "workflow", "error", "previous"}
)
_SCALARS = (str, int, float, bool, type(None))


class Compiler:
    """Compiles one source; collects the names it reads on the way."""

    def __init__(
        self, source: str, aliases: Mapping[str, str], *, lenient: bool = False, numeric_strings: bool = False
    ) -> None:
        self.source = source
        self.aliases = aliases
        self.lenient = lenient
        self.relations = RELATIONS_ALIGNED if numeric_strings else RELATIONS
        self.names: set[str] = set()
        self.deterministic = True
        self.depth = 0

    def compile(self, node: Node, *, soft: bool = False) -> Code:
        """Return the code of a node; what is missing gives UNDEFINED if soft."""
        self.depth += 1
        if self.depth > MAX_CHAIN:
            raise LimitExceeded(
                f"more than {MAX_CHAIN} operators or filters upon one another",
                bound="chain length",
                offset=node.offset,
                source=self.source,
            )
        code = _COMPILERS[type(node)](self, node, soft)
        self.depth -= 1
        return code

    def error(self, message: str, offset: int, hint: str | None = None) -> ExpressionSyntaxError:
        """Return a syntax error at an offset of this source."""
        return ExpressionSyntaxError(message, offset=offset, hint=hint, source=self.source)

    def fold(self, run: Run, parts: list[Code]) -> Code:
        """Return code that is evaluated now if all its parts are constant."""
        if any(part.constant is VARIES for part in parts):
            return Code(run)
        try:
            value = run(_NOWHERE, FoldingBudget())
        except ExpressionError:
            return Code(run)  # it may stand in a branch that is never taken
        if value is UNDEFINED:
            return Code(run)
        # A container is built anew each time, so that no caller can change it for the next.
        return Code(constant(value), value) if isinstance(value, _SCALARS) else Code(run, value)

    # Names and paths

    def root(self, node: Name) -> str:
        """Return the scope's name for a name as written: a node's name stands for its id."""
        word = node.name[1:]
        if node.name[:1] != "$" or word in _RESERVED or isinstance(node, _Resolved):
            return node.name
        return "$" + self.aliases.get(word, word)

    def missing(self, soft: bool) -> Any:
        """Return what a path to nothing gives."""
        if soft:
            return UNDEFINED
        return None if self.lenient else RAISE

    def name(self, node: Name, soft: bool) -> Code:
        if node.name == "$node" and not isinstance(node, _Resolved):
            raise self.error(
                "`$node` alone means nothing", node.offset, 'write `$node.id` or `$node["Name of the node"]`'
            )
        root = self.root(node)
        self.names.add(root)
        return Code(follow_name(root, self.missing(soft), self.source, node.offset, node.end))

    def path(self, node: Path, soft: bool) -> Code:
        base, steps, end = node.base, node.steps, node.end
        if isinstance(base, Name) and base.name == "$node":
            base, end, steps = self.node_name(node), steps[0].end, steps[1:]
            if not steps:
                return self.name(base, soft)
        compiled = []
        for step in steps:
            key = self.compile(step.key)
            compiled.append(
                CompiledStep(
                    key.constant,
                    key.run if key.constant is VARIES else None,
                    optional=step.optional,
                    offset=step.offset,
                    start=end,
                    end=step.end,
                )
            )
            end = step.end
        start: str | Run
        if isinstance(base, Name):
            start = self.root(base)
            self.names.add(start)
        else:
            start = self.compile(base, soft=soft or steps[0].optional).run
        return Code(follow(start, compiled, self.missing(soft), self.source, node.offset))

    def node_name(self, node: Path) -> Name:
        """Return the name that `$node.id` or `$node["Name"]` stands for."""
        step = node.steps[0]
        key = self.compile(step.key).constant
        if type(key) is not str or not key:
            raise self.error("`$node[…]` needs the id or name of a node in quotes", step.offset)
        return _Resolved(node.offset, step.end, "$" + self.aliases.get(key, key))

    # Values

    def literal(self, node: Literal, soft: bool) -> Code:
        return Code(constant(node.value), node.value)

    def array(self, node: Array, soft: bool) -> Code:
        parts = [self.compile(item) for item in node.items]
        runs = [part.run for part in parts]
        return self.fold(lambda scope, budget: [run(scope, budget) for run in runs], parts)

    def object(self, node: Object, soft: bool) -> Code:
        parts = [self.compile(value) for value in node.values]
        pairs = [(key, part.run) for key, part in zip(node.keys, parts, strict=True)]
        return self.fold(lambda scope, budget: {key: run(scope, budget) for key, run in pairs}, parts)

    # Operators

    def unary(self, node: Unary, soft: bool) -> Code:
        part = self.compile(node.operand)
        operand, offset = part.run, node.offset
        if node.operator == "not":
            return self.fold(lambda scope, budget: not operand(scope, budget), [part])
        change = negate if node.operator == "-" else positive

        def run(scope: Scope, budget: Budget) -> Any:
            try:
                return change(operand(scope, budget))
            except ExpressionError as error:
                error.locate(offset)
                raise

        return self.fold(run, [part])

    def binary(self, node: Binary, soft: bool) -> Code:
        parts = [self.compile(node.left), self.compile(node.right)]
        return self.fold(apply(ARITHMETIC[node.operator], parts, node.offset), parts)

    def compare(self, node: Compare, soft: bool) -> Code:
        parts = [self.compile(operand) for operand in node.operands]
        relations = [self.relations[operator] for operator in node.operators]
        if len(relations) == 1:
            return self.fold(apply(relations[0], parts, node.offset), parts)
        first = parts[0].run
        rest = [(relation, part.run) for relation, part in zip(relations, parts[1:], strict=True)]
        offset = node.offset

        def run(scope: Scope, budget: Budget) -> Any:
            left = first(scope, budget)
            try:
                for relation, operand in rest:
                    right = operand(scope, budget)
                    if not relation(left, right, budget):
                        return False
                    left = right
            except ExpressionError as error:
                error.locate(offset)
                raise
            return True

        return self.fold(run, parts)

    def logic(self, node: Logic, soft: bool) -> Code:
        parts = [self.compile(operand) for operand in node.operands]
        first, rest = parts[0].run, [part.run for part in parts[1:]]
        stop = node.operator == "or"

        def run(scope: Scope, budget: Budget) -> Any:
            value = first(scope, budget)
            for operand in rest:
                if bool(value) is stop:
                    break
                value = operand(scope, budget)
            return value

        return self.fold(run, parts)

    def text_join(self, node: TextJoin, soft: bool) -> Code:
        parts = [self.compile(operand) for operand in node.operands]
        runs, offset = [part.run for part in parts], node.offset

        def run(scope: Scope, budget: Budget) -> Any:
            try:
                texts = [text_of(operand(scope, budget), budget) for operand in runs]
                size = sum(map(len, texts))
                if size > SMALL:
                    budget.grow(size)
            except ExpressionError as error:
                error.locate(offset)
                raise
            return "".join(texts)

        return self.fold(run, parts)

    def conditional(self, node: Conditional, soft: bool) -> Code:
        condition = self.compile(node.condition)
        then = self.compile(node.then, soft=soft)
        if node.otherwise is None:
            nothing = UNDEFINED if soft else None
            otherwise = Code(lambda scope, budget: nothing, VARIES if soft else None)
        else:
            otherwise = self.compile(node.otherwise, soft=soft)
        if condition.constant is not VARIES:
            return then if condition.constant else otherwise
        test, yes, no = condition.run, then.run, otherwise.run
        return Code(lambda scope, budget: yes(scope, budget) if test(scope, budget) else no(scope, budget))


class _Resolved(Name):
    """A name that is the scope's own already."""

    __slots__ = ()


class _Nowhere:
    """The scope of constant parts, which read no name."""

    def lookup(self, name: str) -> Any:
        raise KeyError(name)

    def names(self) -> list[str]:
        return []


_NOWHERE = _Nowhere()


_COMPILERS: dict[type[Node], Callable[[Compiler, Any, bool], Code]] = {
    Name: Compiler.name,
    Path: Compiler.path,
    Literal: Compiler.literal,
    Array: Compiler.array,
    Object: Compiler.object,
    Unary: Compiler.unary,
    Binary: Compiler.binary,
    Compare: Compiler.compare,
    Logic: Compiler.logic,
    TextJoin: Compiler.text_join,
    Conditional: Compiler.conditional,
    Call: compile_call,
    Test: compile_test,
}
