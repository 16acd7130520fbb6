"""One expression, compiled once."""

from __future__ import annotations

from rune.core.expressions.cache import Cache
from rune.core.expressions.compiler import Compiler
from rune.core.expressions.errors import ExpressionError, ExpressionTypeError, LimitExceeded
from rune.core.expressions.lexer import tokenize
from rune.core.expressions.limits import MAX_SOURCE, Budget, out_of_memory, too_deep
from rune.core.expressions.parser import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from rune.core.expressions.paths import Run, Scope

__all__ = ["Expression", "compile_expression", "relevant"]

_CACHED = 2048
_cache = Cache(_CACHED)
_NO_ALIASES: Mapping[str, str] = {}


class Expression:
    """A compiled expression; immutable, so one may serve any number of evaluations at once."""

    __slots__ = ("_run", "deterministic", "names", "source")

    source: str
    names: frozenset[str]
    """The root names it may read, such as `$fetch`."""
    deterministic: bool
    """Whether it gives the same for the same scope: it asks neither the clock nor chance."""
    _run: Run

    def __init__(self, source: str, names: frozenset[str], deterministic: bool, run: Run) -> None:
        assign = object.__setattr__
        assign(self, "source", source)
        assign(self, "names", names)
        assign(self, "deterministic", deterministic)
        assign(self, "_run", run)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an expression is immutable: {name}")

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"

    def evaluate(self, scope: Scope) -> Any:
        """Return its value in a scope."""
        try:
            return self._run(scope, Budget())
        except ExpressionError as error:
            error.source = self.source
            raise
        except RecursionError:
            raise too_deep("the data") from None
        except MemoryError:
            raise out_of_memory() from None


def compile_expression(
    source: str,
    *,
    aliases: Mapping[str, str] = _NO_ALIASES,
    lenient: bool = False,
    numeric_strings: bool = False,
) -> Expression:
    """Compile an expression.

    `aliases` gives the ids of nodes by name. With `lenient`, what does not exist is null instead of an error.
    With `numeric_strings`, a string that writes a number compares with numbers as one.
    """
    if type(source) is not str:
        raise ExpressionTypeError(f"an expression is a string, not {type(source).__name__}")
    if len(source) > MAX_SOURCE:
        raise LimitExceeded(
            f"the expression is longer than {MAX_SOURCE:,} characters", bound="source length", source=source
        )
    known = relevant(aliases, source)
    key = (source, lenient, numeric_strings, known)
    found: Expression | None = _cache.get(key)
    if found is None:
        found = _compile(
            source, Compiler(source, dict(known), lenient=lenient, numeric_strings=numeric_strings)
        )
        _cache.put(key, found)
    return found


def _compile(source: str, compiler: Compiler) -> Expression:
    try:
        code = compiler.compile(parse(tokenize(source)[0], source))
    except RecursionError:
        raise too_deep("the expression") from None
    return Expression(source, frozenset(compiler.names), compiler.deterministic, code.run)


def relevant(aliases: Mapping[str, str], source: str) -> tuple[tuple[str, str], ...]:
    """Return the aliases that the source may use, for a small cache key; an id is never taken for a name."""
    if not aliases or "$" not in source:
        return ()
    ids = set(aliases.values())
    # An escape in a quoted name hides it from a plain search, and is too rare to be worth one.
    plain = "\\" not in source
    return tuple(
        (name, node) for name, node in aliases.items() if name not in ids and (not plain or name in source)
    )
