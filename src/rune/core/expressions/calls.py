"""Calls of library functions and tests to closures."""

from __future__ import annotations

from rune.core.expressions.closures import Code, constant, invoke, located
from rune.core.expressions.library import FUNCTIONS, TESTS
from rune.core.expressions.suggest import suggest
from rune.core.expressions.values import UNDEFINED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from rune.core.expressions.compiler import Compiler
    from rune.core.expressions.library import Function
    from rune.core.expressions.limits import Budget
    from rune.core.expressions.paths import Scope
    from rune.core.expressions.syntax import Call, Node, Test

__all__ = ["compile_call", "compile_test"]

_TABLES: Mapping[str, Mapping[str, Function]] = {"function": FUNCTIONS, "test": TESTS}
"""Parameters that take the name of a function or test."""


def compile_call(compiler: Compiler, node: Call, soft: bool) -> Code:
    """Compile a call of a function, or its use as a filter."""
    function = FUNCTIONS[node.name]
    _check(compiler, function, node.offset, len(node.arguments), tuple(node.keywords))
    if not function.deterministic:
        compiler.deterministic = False
    if function.lazy:
        return _coalesce(compiler, node, soft) if node.name == "coalesce" else _default(compiler, node, soft)
    parts = []
    for index, argument in enumerate(node.arguments):
        parameter = function.parameters[index] if index < len(function.parameters) else ""
        if parameter in _TABLES:
            parts.append(_named_function(compiler, node, parameter, argument, len(node.arguments) - index))
        else:
            parts.append(compiler.compile(argument, soft=soft and index == 0))
    keywords = {
        name: _named_function(compiler, node, name, value, 1) if name in _TABLES else compiler.compile(value)
        for name, value in node.keywords.items()
    }
    if compiler.lenient and "default" in function.keywords:
        keywords.setdefault("default", Code(constant(None), None))
    code = invoke(function, [part.run for part in parts], {n: part.run for n, part in keywords.items()}, soft)
    run = located(code, node.offset, soft)
    return compiler.fold(run, [*parts, *keywords.values()]) if compiler.deterministic else Code(run)


def _named_function(compiler: Compiler, node: Call, parameter: str, argument: Node, count: int) -> Code:
    """Return the function or test that an argument such as 'upper' names; it will get `count` values."""
    known = _TABLES[parameter]
    name = compiler.compile(argument).constant
    if name is None:
        return Code(constant(None), None)
    if type(name) is not str:
        raise compiler.error(f"`{node.name}` needs the name of a {parameter} in quotes", argument.offset)
    if name not in known:
        near = suggest(name, known)
        raise compiler.error(
            f"there is no {parameter} '{name}'",
            argument.offset,
            f"did you mean '{near}'?" if near else None,
        )
    function = known[name]
    if not _TABLES.keys().isdisjoint(function.parameters):
        raise compiler.error(f"`{name}` cannot be given to `{node.name}`", argument.offset)
    _check(compiler, function, argument.offset, count, ())
    if not function.deterministic:
        compiler.deterministic = False
    return Code(constant(function), function)


def _default(compiler: Compiler, node: Call, soft: bool) -> Code:
    """Compile `value | default(fallback, falsy)`: the fallback is evaluated only if it is needed."""
    given = dict(zip(FUNCTIONS["default"].parameters, node.arguments, strict=False)) | node.keywords
    value = compiler.compile(given["value"], soft=True).run
    fallback = compiler.compile(given["fallback"], soft=soft).run if "fallback" in given else constant("")
    falsy = compiler.compile(given["falsy"]).run if "falsy" in given else constant(False)

    def run(scope: Scope, budget: Budget) -> Any:
        found = value(scope, budget)
        if found is UNDEFINED or (not found and falsy(scope, budget)):
            return fallback(scope, budget)
        return found

    return Code(run)


def _coalesce(compiler: Compiler, node: Call, soft: bool) -> Code:
    """Compile `coalesce(a, b, …)`: none is evaluated after the first that is there."""
    runs = [compiler.compile(argument, soft=True).run for argument in node.arguments]

    def run(scope: Scope, budget: Budget) -> Any:
        for candidate in runs:
            value = candidate(scope, budget)
            if value is not None and value is not UNDEFINED:
                return value
        return UNDEFINED if soft else None

    return Code(run)


def _check(
    compiler: Compiler, function: Function, offset: int, positional: int, keywords: tuple[str, ...]
) -> None:
    """Refuse arguments that the function does not take."""
    misfit = function.misfit(positional, keywords)
    if misfit:
        raise compiler.error(misfit, offset, f"it is {function.signature}")


def compile_test(compiler: Compiler, node: Test, soft: bool) -> Code:
    """Compile `value is test`."""
    test = TESTS[node.name]
    _check(compiler, test, node.offset, len(node.arguments), ())
    about_existence = node.name in ("defined", "undefined")
    parts = [
        compiler.compile(part, soft=about_existence and not index)
        for index, part in enumerate(node.arguments)
    ]
    runs, call, negated, metered = [part.run for part in parts], test.call, node.negated, test.metered

    def run(scope: Scope, budget: Budget) -> Any:
        values = [part(scope, budget) for part in runs]
        return (call(budget, *values) if metered else call(*values)) is not negated

    return compiler.fold(located(run, node.offset, False), parts)
