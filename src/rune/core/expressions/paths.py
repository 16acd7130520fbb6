"""Paths into values: the fast walk, the careful one, and what to say when they lead to nothing."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionError, ExpressionTypeError, ReferenceMissing
from rune.core.expressions.suggest import suggest
from rune.core.expressions.values import UNDEFINED, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from rune.core.expressions.limits import Budget

    class Scope(Protocol):
        """What names mean; the engine supplies it."""

        def lookup(self, name: str) -> Any:
            """Return what the name means (`$fetch`, `workload`); raise KeyError if it means nothing."""
            ...

        def names(self) -> Iterable[str]:
            """Return the names there are, for "did you mean"."""
            ...

    Run = Callable[[Scope, Budget], Any]
else:

    class Scope:
        """What names mean; the engine supplies it. A protocol, whose runtime would import `typing`."""


__all__ = ["RAISE", "CompiledStep", "Scope", "dig", "follow", "follow_name", "member"]

RAISE: Any = object()
"""What to do about a path to nothing: raise this error, instead of giving a value."""

_LONGEST_EXCERPT = 120
_KEYS_SHOWN = 6


class CompiledStep:
    """One step: a constant key, or the closure that gives it."""

    __slots__ = ("constant", "end", "offset", "optional", "run", "start")

    def __init__(
        self, constant: Any, run: Run | None, *, optional: bool, offset: int, start: int, end: int
    ) -> None:
        self.constant = constant
        self.run = run
        self.optional = optional
        self.offset = offset
        self.start = start
        """Where what the step goes into ends in the source."""
        self.end = end


def member(value: Any, key: Any) -> Any:
    """Return what an object has under a key or an array at an index, or UNDEFINED."""
    kind = type(key)
    if kind is str:
        if isinstance(value, dict):
            return value.get(key, UNDEFINED)
        if isinstance(value, list) and key.isascii() and key.isdigit() and len(key) < 16:
            return member(value, int(key))
        return UNDEFINED
    if kind is not int:
        raise ExpressionTypeError(f"a key is a string or an integer, not {kind_of(key)}")
    if isinstance(value, list) and -len(value) <= key < len(value):
        return value[key]
    return UNDEFINED


def dig(value: Any, path: str) -> Any:
    """Return what a dotted path such as `user.tags.0` leads to, or UNDEFINED."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for key in path.split("."):
        value = member(value, key)
        if value is UNDEFINED:
            break
    return value


def follow_name(name: str, missing: Any, source: str, offset: int, end: int) -> Run:
    """Return the closure that reads a root name."""

    def run(scope: Scope, budget: Budget) -> Any:
        try:
            return scope.lookup(name)
        except KeyError:
            if missing is not RAISE:
                return missing
        raise no_name(name, scope, source, offset, end, end)

    return run


def follow(base: str | Run, steps: list[CompiledStep], missing: Any, source: str, offset: int) -> Run:
    """Return the closure that follows a path from a root name or from another closure's value."""
    careful = _careful(base, steps, missing, source, offset)
    if type(base) is not str or any(step.run is not None or step.optional for step in steps):
        return careful
    keys = tuple(step.constant for step in steps)
    if all(type(key) is str for key in keys):
        return _by_keys(base, keys, careful)
    return _by_keys_and_indexes(base, keys, careful)


# The fast walks need no test for a string key: indexing anything but an object with one fails, and the
# careful walk then finds out why. An integer could index a string, so there arrays only.


def _by_keys(root: str, keys: tuple[str, ...], careful: Run) -> Run:
    if len(keys) == 1:
        key = keys[0]

        def one(scope: Scope, budget: Budget) -> Any:
            try:
                return scope.lookup(root)[key]
            except (KeyError, TypeError):
                pass
            return careful(scope, budget)

        return one

    def several(scope: Scope, budget: Budget) -> Any:
        try:
            value = scope.lookup(root)
            for key in keys:
                value = value[key]
            return value
        except (KeyError, TypeError):
            pass
        return careful(scope, budget)

    return several


def _by_keys_and_indexes(root: str, keys: tuple[Any, ...], careful: Run) -> Run:
    def run(scope: Scope, budget: Budget) -> Any:
        try:
            value = scope.lookup(root)
            for key in keys:
                if type(key) is int and type(value) is not list:
                    break
                value = value[key]
            else:
                return value
        except (KeyError, TypeError, IndexError):
            pass
        return careful(scope, budget)

    return run


def _careful(base: str | Run, steps: list[CompiledStep], missing: Any, source: str, offset: int) -> Run:
    forgiven = None if missing is RAISE else missing
    last = len(steps) - 1
    full_end = steps[last].end

    def run(scope: Scope, budget: Budget) -> Any:
        if type(base) is str:
            try:
                value = scope.lookup(base)
            except KeyError:
                if missing is not RAISE or steps[0].optional:
                    return forgiven
                raise no_name(base, scope, source, offset, steps[0].start, full_end) from None
        else:
            value = base(scope, budget)  # type: ignore[operator]
        for index, step in enumerate(steps):
            if step.optional and (value is None or value is UNDEFINED):
                return forgiven
            key = step.constant if step.run is None else step.run(scope, budget)
            try:
                found = member(value, key)
            except ExpressionError as error:
                error.locate(step.offset)
                raise
            if found is UNDEFINED:
                # `?.` forgives what is missing on either side of it.
                if missing is not RAISE or step.optional or (index < last and steps[index + 1].optional):
                    return forgiven
                path = _excerpt(source, offset, full_end)
                raise _no_member(value, key, step, path, _excerpt(source, offset, step.start))
            value = found
        return value

    return run


def _excerpt(source: str, start: int, end: int) -> str:
    text = source[start:end]
    return text if len(text) <= _LONGEST_EXCERPT else text[: _LONGEST_EXCERPT - 1] + "…"


def no_name(name: str, scope: Scope, source: str, offset: int, end: int, full_end: int) -> ReferenceMissing:
    """Return the error of a root name that means nothing."""
    path, root = _excerpt(source, offset, full_end), _excerpt(source, offset, end)
    near = suggest(name, scope.names())
    return ReferenceMissing(
        f"`{path}` does not exist" + ("" if path == root else f": there is no `{root}`"),
        path=path,
        reached=None,
        offset=offset,
        hint=f"did you mean '{near}'?" if near else None,
    )


def _no_member(value: Any, key: Any, step: CompiledStep, path: str, reached: str) -> ReferenceMissing:
    why, hint = _explain(value, key)
    return ReferenceMissing(
        f"`{path}` does not exist: `{reached}` {why}",
        path=path,
        reached=reached,
        offset=step.offset,
        hint=hint,
    )


def _explain(value: Any, key: Any) -> tuple[str, str | None]:
    if isinstance(value, dict):
        if type(key) is not str:
            return f"is an object, which has no index {key}", None
        return f"has no key '{key[:_LONGEST_EXCERPT]}'", _keys_hint(key, value)
    if isinstance(value, list):
        if type(key) is int or key.isdigit():
            return f"has {len(value)} item{'' if len(value) == 1 else 's'}, no index {key}", None
        return f"is an array, which has no key '{key[:_LONGEST_EXCERPT]}'", (
            f"take one element, as in [0].{key}, or all with map(attribute='{key}')"
            if len(key) < 40
            else None
        )
    return f"is {_with_article(kind_of(value))}, which has no {_named(key)}", None


def _keys_hint(key: str, value: dict[str, Any]) -> str | None:
    near = suggest(key, value)
    if near:
        return f"did you mean '{near}'?"
    if not value:
        return "it is empty"
    if len(value) <= _KEYS_SHOWN and all(len(name) < 40 for name in value):
        return "it has " + ", ".join(f"'{name}'" for name in value)
    return None


def _named(key: Any) -> str:
    return f"key '{key[:_LONGEST_EXCERPT]}'" if type(key) is str else f"index {key}"


def _with_article(kind: str) -> str:
    if kind in ("null", "undefined"):
        return kind
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
