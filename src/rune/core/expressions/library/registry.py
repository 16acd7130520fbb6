"""What a library function is, and the two tables of them."""

from __future__ import annotations

from rune.core.expressions.values import UNDEFINED, Undefined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from rune.core.expressions.limits import Budget

    Implementation = TypeVar("Implementation", bound=Callable[..., Any])

__all__ = ["FUNCTIONS", "MISSING", "TESTS", "Function", "function", "test"]

_VARIADIC = 0x04  # CO_VARARGS; `inspect`, which names it, is slow to import


class Function:
    """A function of the language: how it is called, and what the reference page says of it."""

    __slots__ = (
        "call",
        "deterministic",
        "doc",
        "keywords",
        "lazy",
        "metered",
        "name",
        "parameters",
        "required",
        "signature",
        "variadic",
    )

    def __init__(
        self, name: str, call: Callable[..., Any], *, deterministic: bool = True, lazy: bool = False
    ) -> None:
        code = call.__code__
        names = code.co_varnames
        positional = names[: code.co_argcount]
        self.name = name
        self.call = call
        self.doc = (call.__doc__ or "").strip()
        self.deterministic = deterministic
        self.lazy = lazy
        """A lazy function does not evaluate all its arguments, so the compiler has its own way with it."""
        self.metered = positional[:1] == ("budget",)
        self.parameters: tuple[str, ...] = positional[1:] if self.metered else positional
        self.required = len(self.parameters) - len(call.__defaults__ or ())
        self.keywords: tuple[str, ...] = names[len(positional) : len(positional) + code.co_kwonlyargcount]
        self.variadic = names[len(positional) + len(self.keywords)] if code.co_flags & _VARIADIC else None
        self.signature = f"{name}({', '.join(self._written())})"

    def _written(self) -> list[str]:
        defaults = self.call.__defaults__ or ()
        written = list(self.parameters[: self.required])
        for name, default in zip(self.parameters[self.required :], defaults, strict=True):
            written.append(_with_default(name, default))
        if self.variadic:
            written.append(f"...{self.variadic}")
        keyword_defaults: Mapping[str, Any] = self.call.__kwdefaults__ or {}
        written.extend(_with_default(name, keyword_defaults[name]) for name in self.keywords)
        return written

    def invoke(self, budget: Budget, *values: Any) -> Any:
        """Call it as another function does that was given its name."""
        result = self.call(budget, *values) if self.metered else self.call(*values)
        return None if result is UNDEFINED else result

    def misfit(self, positional: int, keywords: tuple[str, ...]) -> str | None:
        """Return what is wrong with the arguments of a call, if anything."""
        for name in keywords:
            if name not in self.parameters and name not in self.keywords:
                return f"`{self.name}` has no argument '{name}'"
            if name in self.parameters[:positional]:
                return f"`{self.name}` is given '{name}' twice"
        if positional > len(self.parameters) and not self.variadic:
            return f"`{self.name}` takes at most {len(self.parameters)} arguments, not {positional}"
        for name in self.parameters[positional : self.required]:
            if name not in keywords:
                return f"`{self.name}` needs '{name}'"
        return None


def _with_default(name: str, default: Any) -> str:
    if isinstance(default, Undefined):
        return f"{name}?"
    words = {None: "null", True: "true", False: "false"}
    text = words[default] if default is None or isinstance(default, bool) else repr(default)
    return f"{name}={text}"


FUNCTIONS: dict[str, Function] = {}
"""The functions, also used as filters."""

TESTS: dict[str, Function] = {}
"""The tests, used after `is` and in select, reject, selectattr, rejectattr, any and all."""


def function(
    *aliases: str, deterministic: bool = True, lazy: bool = False
) -> Callable[[Implementation], Implementation]:
    """Register a function of the language under its own name (less a trailing underscore) and more."""

    def register(call: Implementation) -> Implementation:
        for name in (call.__name__.rstrip("_"), *aliases):
            FUNCTIONS[name] = Function(name, call, deterministic=deterministic, lazy=lazy)
        return call

    return register


def test(*aliases: str) -> Callable[[Implementation], Implementation]:
    """Register a test under its own name (less `is_` and a trailing underscore) and more."""

    def register(call: Implementation) -> Implementation:
        for name in (call.__name__.removeprefix("is_").rstrip("_"), *aliases):
            TESTS[name] = Function(name, call)
        return call

    return register


MISSING: Any = UNDEFINED
"""The default of an argument that need not be given and has no natural value."""
