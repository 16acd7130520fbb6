"""What a node type says of itself, for `rune nodes` and the reference pages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from rune.core.fitting import describe, members
from rune.core.node import NodeType

__all__ = ["Parameter", "documentation", "parameters_of", "ports_of", "summary"]


class Parameter(msgspec.Struct, frozen=True):
    """One parameter as a reader wants to know it; a field of an inner object is called `rules[].field`."""

    name: str
    type: str
    required: bool
    default: str | None
    """As JSON; None where there is none worth telling."""
    description: str


def documentation(type: type[NodeType]) -> str:
    """The whole of what a type says of itself."""
    return inspect.cleandoc(type.__doc__ or "")


def summary(type: type[NodeType]) -> str:
    """Its first line."""
    return documentation(type).partition("\n")[0]


def ports_of(type: type[NodeType]) -> str:
    """The ports it may end at, in words."""
    return ", ".join([*(type.ports or ("as its parameters say",)), "error"])


def parameters_of(type: type[NodeType]) -> list[Parameter]:
    """Its parameters, each followed by the fields of the objects in it."""
    return [found for field in msgspec.structs.fields(type) for found in _walk(field, "")]


def _walk(field: FieldInfo, prefix: str) -> Iterator[Parameter]:
    name = prefix + field.encode_name
    yield Parameter(name, describe(field.type), field.required, _default(field), _description(field.type))
    for inside, struct in _structs(field.type, name):
        for inner in msgspec.structs.fields(struct):
            yield from _walk(inner, inside + ".")


def _structs(hint: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The kinds of object in a value, and what to call a place where one stands."""
    for option in members(hint):
        origin, arguments = get_origin(option), get_args(option)
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            yield name, option
        elif origin in (list, tuple) and arguments:
            yield from _structs(arguments[0], f"{name}[]")
        elif origin is dict:
            yield from _structs(arguments[1], f"{name}.*")


def _default(field: FieldInfo) -> str | None:
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        value = field.default
    if value is msgspec.NODEFAULT or value is None:
        return None
    return msgspec.json.encode(value).decode()


def _description(hint: Any) -> str:
    """The description that stands on the type, or on a member of a union."""
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, msgspec.Meta) and extra.description:
                return extra.description
    found = (_description(option) for option in get_args(hint) if option is not NoneType)
    return next((text for text in found if text), "")
