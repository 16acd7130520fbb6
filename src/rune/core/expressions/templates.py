"""Parameter trees: any JSON value whose strings may hold `{{ expressions }}` and bare references."""

from __future__ import annotations

from rune.core.expressions.cache import Cache
from rune.core.expressions.compiler import Compiler
from rune.core.expressions.errors import ExpressionError
from rune.core.expressions.expression import relevant
from rune.core.expressions.lexer import tokenize
from rune.core.expressions.limits import MAX_SOURCE, SMALL, Budget, out_of_memory, too_deep
from rune.core.expressions.parser import parse
from rune.core.expressions.references import read_reference
from rune.core.expressions.syntax import Name, Path
from rune.core.expressions.values import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from rune.core.expressions.paths import Run, Scope
    from rune.core.expressions.syntax import Node

__all__ = ["Template", "compile_template"]

_CACHED = 2048
_cache = Cache(_CACHED)
_NO_ALIASES: Mapping[str, str] = {}
_NOTHING: frozenset[str] = frozenset()


class Template:
    """A compiled parameter tree; immutable."""

    __slots__ = ("_run", "constant", "deterministic", "names", "value")

    value: Any
    """What it was compiled from."""
    constant: bool
    """Whether there is nothing to resolve: the value is returned as it is."""
    names: frozenset[str]
    """The root names it may read."""
    deterministic: bool
    """Whether it gives the same for the same scope."""
    _run: Run | None

    def __init__(
        self,
        value: Any,
        run: Run | None = None,
        names: frozenset[str] = _NOTHING,
        deterministic: bool = True,
    ) -> None:
        assign = object.__setattr__
        assign(self, "value", value)
        assign(self, "constant", run is None)
        assign(self, "names", names)
        assign(self, "deterministic", deterministic)
        assign(self, "_run", run)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a template is immutable: {name}")

    def __repr__(self) -> str:
        return f"Template({self.value!r})"

    def resolve(self, scope: Scope) -> Any:
        """Return the tree with its strings resolved; it is new as far as it has any."""
        if self._run is None:
            return self.value
        try:
            return self._run(scope, Budget())
        except RecursionError:
            raise too_deep("the data") from None
        except MemoryError:
            raise out_of_memory() from None


def compile_template(
    value: Any,
    *,
    aliases: Mapping[str, str] = _NO_ALIASES,
    lenient: bool = False,
    references: bool = True,
) -> Template:
    """Compile a parameter tree; an error's `where` is the path of the string inside the tree.

    Without `references`, a dollar sign outside of `{{ }}` is a dollar sign.
    """
    try:
        return _tree(value, aliases, lenient, references)
    except RecursionError:
        raise too_deep("the value") from None


def _tree(value: Any, aliases: Mapping[str, str], lenient: bool, references: bool) -> Template:
    if type(value) is str:
        return _string(value, aliases, lenient, references)
    members: list[tuple[Any, Any]]
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    else:
        return Template(value)
    runs: list[tuple[Any, Run]] = []
    names: set[str] = set()
    deterministic = True
    for key, member in members:
        if not isinstance(member, str | dict | list):
            continue
        try:
            template = _tree(member, aliases, lenient, references)
        except ExpressionError as error:
            error.where = (key, *error.where)
            raise
        if template._run is not None:
            runs.append((key, template._run))
            names |= template.names
            deterministic = deterministic and template.deterministic
    return (
        Template(value, _container(value, runs), frozenset(names), deterministic) if runs else Template(value)
    )


def _container(value: Any, runs: list[tuple[Any, Run]]) -> Run:
    copy = list if isinstance(value, list) else dict

    def run(scope: Scope, budget: Budget) -> Any:
        resolved = copy(value)
        key: Any = None
        try:
            for key, member in runs:
                resolved[key] = member(scope, budget)
        except ExpressionError as error:
            error.where = (key, *error.where)
            raise
        return resolved

    return run


# Strings


def _string(text: str, aliases: Mapping[str, str], lenient: bool, references: bool) -> Template:
    if "{{" not in text and not (references and "$" in text):
        return Template(text)
    known = relevant(aliases, text)
    key = (text, lenient, references, known)
    found: Template | None = _cache.get(key)
    if found is None:
        found = _compile(text, Compiler(text, dict(known), lenient=lenient), references)
        if len(text) <= MAX_SOURCE:
            _cache.put(key, found)
    return found


def _compile(text: str, compiler: Compiler, references: bool) -> Template:
    pieces = _pieces(text, compiler, references)
    runs = [piece for piece in pieces if not isinstance(piece, str)]
    if not runs:
        return Template(text)
    run = runs[0] if len(pieces) == 1 else _joined(pieces)
    return Template(text, _sourced(run, text), frozenset(compiler.names), compiler.deterministic)


def _pieces(text: str, compiler: Compiler, references: bool) -> list[str | Run]:
    """Return the plain parts and the closures of the others, in order."""
    pieces: list[str | Run] = []
    plain = position = 0
    while (position := _next_mark(text, position, references)) >= 0:
        if text[position] == "{":
            tokens, end = tokenize(text, position + 2, embedded=True)
            run = compiler.compile(parse(tokens, text)).run
        else:
            reference = read_reference(text, position)
            if reference is None:
                position += 1
                continue
            node, end = reference
            run = _bare(node, text[position:end], compiler)
        if plain < position:
            pieces.append(text[plain:position])
        pieces.append(run)
        plain = position = end
    if plain < len(text):
        pieces.append(text[plain:])
    return pieces


def _next_mark(text: str, start: int, references: bool) -> int:
    """Return where the next `{{` or, if it may be a reference, dollar sign stands, or -1."""
    braces = text.find("{{", start)
    if not references:
        return braces
    dollar = text.find("$", start)
    return max(braces, dollar) if braces < 0 or dollar < 0 else min(braces, dollar)


def _bare(node: Node, written: str, compiler: Compiler) -> Run:
    """Return the closure of a bare reference, which stays as written if its name means nothing."""
    run = compiler.compile(node).run
    base = node.base if isinstance(node, Path) else node
    assert isinstance(base, Name)
    if base.name == "$node":
        return run  # this can only be meant as a reference
    root = compiler.root(base)

    def bare(scope: Scope, budget: Budget) -> Any:
        try:
            scope.lookup(root)
        except KeyError:
            return written
        return run(scope, budget)

    return bare


def _joined(pieces: list[str | Run]) -> Run:
    def run(scope: Scope, budget: Budget) -> Any:
        texts = [
            piece if isinstance(piece, str) else text_of(piece(scope, budget), budget) for piece in pieces
        ]
        size = sum(map(len, texts))
        if size > SMALL:
            budget.grow(size)
        return "".join(texts)

    return run


def _sourced(run: Run, text: str) -> Run:
    """Return the closure whose errors carry the string they stand in."""

    def sourced(scope: Scope, budget: Budget) -> Any:
        try:
            return run(scope, budget)
        except ExpressionError as error:
            error.source = text
            raise

    return sourced
