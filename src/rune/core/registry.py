"""The node types there are, and how users add their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_type_hints, overload

import msgspec

from rune.core.errors import DefinitionError, Problem
from rune.core.expressions import Expression, suggest
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.workflow import Retry

__all__ = ["Registry", "load_entry_points", "load_modules", "node", "node_types_of"]

ENTRY_POINTS = "rune.nodes"
_NAME = re.compile(r"[A-Za-z][\w.-]*")

T = TypeVar("T", bound="Callable[..., Any] | type[NodeType]")


class Registry:
    """Node types by name."""

    def __init__(self, types: Iterable[type[NodeType]] = ()) -> None:
        self._types: dict[str, type[NodeType]] = {}
        for type in types:
            self.add(type)

    def add(self, type: type[NodeType]) -> None:
        """Add a type; two of one name are refused."""
        known = self._types.setdefault(type.name, type)
        if known is not type:
            raise _refused(
                f"two node types are called {type.name!r}, {_place(known)} and {_place(type)}; rename one"
            )

    def get(self, name: str) -> type[NodeType] | None:
        """The type of this name."""
        return self._types.get(name)

    def names(self) -> list[str]:
        """Every name, in order."""
        return sorted(self._types)

    def family(self, prefix: str) -> list[str]:
        """The names below a prefix such as `tool`, without it."""
        return [name.removeprefix(f"{prefix}.") for name in self._types if name.startswith(f"{prefix}.")]

    def suggest(self, name: str) -> str | None:
        """The name that was probably meant."""
        return suggest(name, self._types)


# --- the decorator ---


@overload
def node(target: T, /) -> T: ...
@overload
def node(
    name: str | None = None, /, *, effects: bool = True, pure: bool = False, retry: Retry | None = None
) -> Callable[[T], T]: ...
def node(
    target: Any = None, /, *, effects: bool = True, pure: bool = False, retry: Retry | None = None
) -> Any:
    """Make a node type of a function, or name a class that derives from NodeType.

    `@rune.node` calls it like the function, `@rune.node("company.greet")` gives another name. The function's
    parameters are the node's; one annotated `StepContext`, or called `context`, gets the step's context.
    What it returns is the output, unless it is an Outcome. A function that is not async runs in a thread.
    Without `effects` it needs no lease; a `pure` one depends on its parameters alone, and must be quick.
    """
    if target is None or isinstance(target, str):
        return lambda decorated: _decorated(decorated, target, effects, pure, retry)
    return _decorated(target, None, effects, pure, retry)


def _decorated(target: Any, name: str | None, effects: bool, pure: bool, retry: Retry | None) -> Any:
    if isinstance(target, type):
        if not issubclass(target, NodeType):
            raise TypeError(
                f"@rune.node: {target.__qualname__} is neither a function nor derived from NodeType"
            )
        target.name = _checked_name(name or target.name or target.__name__)
        return target
    target.__rune_node__ = _function_type(
        target, _checked_name(name or target.__name__), effects and not pure, pure, retry
    )
    return target


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"@rune.node: {name!r} cannot be a node type's name; use letters, digits, `.`, `_` and `-`"
        )
    return name


def _function_type(
    function: Callable[..., Any], name: str, effects: bool, pure: bool, retry: Retry | None
) -> type[NodeType]:
    """A node type whose fields are the parameters of a function."""
    fields, passed, contextual = _parameters(function)
    run = _runner(function, passed, contextual, pure)
    namespace: dict[str, Any] = {
        "__doc__": function.__doc__ or f"Call {function.__qualname__}.",
        "run": run,
        "name": name,
        "effects": effects,
        "pure": pure,
    }
    if retry is not None:
        namespace["retry_policy"] = lambda self: retry
    made: Any = msgspec.defstruct(
        function.__name__,
        fields,
        bases=(NodeType,),
        namespace=namespace,
        module=function.__module__,
        rename={field: parameter for parameter, field in passed.items()},
        kw_only=True,
    )
    found: type[NodeType] = made
    return found


def _parameters(function: Callable[..., Any]) -> tuple[list[Any], dict[str, str], str | None]:
    """The fields, the field of each parameter, and the parameter that gets the context."""
    from inspect import Parameter, signature

    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"@rune.node: {function.__qualname__} has an annotation that is not known: {error}"
        ) from error
    fields: list[Any] = []
    passed: dict[str, str] = {}
    contextual: str | None = None
    for name, parameter in signature(function).parameters.items():
        if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            raise TypeError(f"@rune.node: {function.__qualname__} takes `{parameter}`; parameters need names")
        hint = hints.get(name, Any)
        if hint is StepContext or (name == "context" and hint is Any):
            contextual = name
            continue
        # What NodeType itself has by this name stays what it is.
        field = passed[name] = f"{name}_" if hasattr(NodeType, name) else name
        if parameter.default is Parameter.empty:
            fields.append((field, hint))
        else:
            fields.append((field, hint, _default(parameter.default)))
    return fields, passed, contextual


def _default(value: Any) -> Any:
    """A default; one that can be changed is made anew for each step."""
    if isinstance(value, list | dict | set):
        from copy import deepcopy

        return msgspec.field(default_factory=lambda: deepcopy(value))
    return value


def _runner(
    function: Callable[..., Any], passed: dict[str, str], contextual: str | None, pure: bool
) -> Callable[[NodeType, StepContext], Any]:
    from inspect import iscoroutinefunction

    waits = iscoroutinefunction(function)
    if waits and pure:
        raise TypeError(f"@rune.node: {function.__qualname__} is async, so it cannot be pure")

    async def run(self: NodeType, context: StepContext) -> Outcome:
        arguments = {name: _copied(getattr(self, field)) for name, field in passed.items()}
        if contextual is not None:
            arguments[contextual] = context
        if waits:
            result = await function(**arguments)
        elif pure:
            result = function(**arguments)
        else:
            result = await context.service("threads").run(lambda: function(**arguments))
        return result if isinstance(result, Outcome) else Done(result)

    return run


def _copied(value: Any) -> Any:
    """A value for a user's function, which may change it; the engine keeps its own for other steps."""
    if isinstance(value, Expression):
        return value
    from copy import deepcopy

    return deepcopy(value)


# --- finding them ---


def node_types_of(holder: Any) -> list[type[NodeType]]:
    """The node types that a module, a decorated function or a class stands for."""
    if isinstance(found := getattr(holder, "__rune_node__", holder), type):
        return [found] if issubclass(found, NodeType) and found.name else []
    types = [
        found for value in vars(holder).values() if _may_be_node(value) for found in node_types_of(value)
    ]
    return list(dict.fromkeys(types))


def _may_be_node(value: Any) -> bool:
    return isinstance(value, type) or "__rune_node__" in getattr(value, "__dict__", ())


def load_modules(names: Iterable[str]) -> list[type[NodeType]]:
    """The node types of importable modules."""
    from importlib import import_module

    types: list[type[NodeType]] = []
    for name in names:
        try:
            module = import_module(name)
        except Exception as error:  # a user's module may raise anything
            raise _refused(
                f"the module {name!r} with node types cannot be imported: {_said(error)}"
            ) from error
        types += node_types_of(module)
    return types


def load_entry_points() -> list[type[NodeType]]:
    """The node types of installed packages that name them in the group `rune.nodes`."""
    from importlib.metadata import entry_points

    types: list[type[NodeType]] = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            holder = point.load()
        except Exception as error:  # a user's module may raise anything
            raise _refused(
                f"the entry point {point.name!r} ({point.value}) of the group {ENTRY_POINTS!r} "
                f"cannot be loaded: {_said(error)}"
            ) from error
        types += node_types_of(holder)
    return types


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _place(type: type[NodeType]) -> str:
    return f"{type.__module__}.{type.__qualname__}"


def _refused(message: str) -> DefinitionError:
    return DefinitionError([Problem("NODE_TYPES", message)])
