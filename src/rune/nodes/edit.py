"""The edit node: set fields of the working payload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from rune.core.errors import NodeError
from rune.core.expressions import to_text
from rune.core.expressions.values import kind_of
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome

__all__ = ["Assignment", "Edit"]


class Assignment(Struct, frozen=True, kw_only=True):
    """One field to set."""

    name: Annotated[str, Meta(description="Field; `a.b` is the field b of the object a.", min_length=1)]
    value: Annotated[Any, Meta(description="Its value.")] = None
    type: Annotated[
        Literal["any", "string", "number", "integer", "boolean", "object", "array", "json"],
        Meta(description="Type to convert the value to; `any` leaves it as it is."),
    ] = "any"


class Edit(NodeType, kw_only=True):
    """Set fields of the working payload; in a list, of each object."""

    name: ClassVar = "edit"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    assignments: Annotated[list[Assignment], Meta(description="Fields to set, in order.")] = msgspec.field(
        default_factory=list
    )
    mode: Annotated[
        Literal["assignments", "keep_only"],
        Meta(description="Keep the payload's other fields, or only those that are set."),
    ] = "assignments"
    target_path: Annotated[
        Any, Meta(description="What to edit instead of the working payload, such as `$fetch.body.user`.")
    ] = "{{ $json | default({}) }}"

    async def run(self, context: StepContext) -> Outcome:
        payload = self.target_path
        if isinstance(payload, list):
            return Done({"$json": [self._edited(item) for item in payload]}, working=True)
        return Done({"$json": self._edited(payload)}, working=True)

    def _edited(self, payload: Any) -> dict[str, Any]:
        """The payload with the fields set; what it shares with the old one stays untouched."""
        if self.mode == "keep_only" or payload is None:
            edited = {}
        elif isinstance(payload, dict):
            edited = payload.copy()
        else:
            raise NodeError(
                f"edit sets fields of an object, and got {kind_of(payload)}; choose `mode: keep_only`, "
                "or name an object in `target_path`",
                "EDIT_NOT_OBJECT",
            )
        for assignment in self.assignments:
            value = assignment.value
            if assignment.type != "any":
                value = _converted(assignment)
            if "." in assignment.name:
                _set(edited, assignment.name, value)
            else:
                edited[assignment.name] = value
        return edited


@lru_cache(maxsize=4096)
def _parts(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def _set(target: dict[str, Any], name: str, value: Any) -> None:
    """Set a nested field, copying the objects on the way to it."""
    *parents, last = _parts(name)
    for part in parents:
        child = target.get(part)
        if child is not None and not isinstance(child, dict):
            raise NodeError(f"cannot set {name!r}: {part!r} is {kind_of(child)}, not an object", "EDIT_PATH")
        child = target[part] = {} if child is None else child.copy()
        target = child
    target[last] = value


def _converted(assignment: Assignment) -> Any:
    try:
        return _CONVERSIONS[assignment.type](assignment.value)
    except (ValueError, TypeError, OverflowError):
        shown = repr(assignment.value)
        raise NodeError(
            f"cannot set {assignment.name!r}: {shown if len(shown) <= 60 else shown[:59] + '…'} "
            f"is not to be had as {assignment.type}",
            "EDIT_TYPE",
            {"field": assignment.name, "type": assignment.type},
        ) from None


def _number(value: Any) -> int | float:
    if isinstance(value, bool | int | float):
        return int(value) if isinstance(value, bool) else value
    if not isinstance(value, str):
        raise TypeError
    found = msgspec.convert(value.strip(), int | float, strict=False)
    if found - found != 0:
        raise ValueError
    return found


def _integer(value: Any) -> int:
    number = _number(value)
    if number != int(number):
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        return _WORDS[value.strip().lower()]
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    raise TypeError


def _json(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str) else value


def _of(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        value = _json(value)
        if not isinstance(value, kind):
            raise TypeError
        return value

    return convert


class _Words(dict[str, bool]):
    def __missing__(self, key: str) -> bool:
        raise ValueError(key)


_WORDS = _Words(
    {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
        "": False,
    }
)

_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "string": to_text,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "object": _of(dict),
    "array": _of(list),
    "json": _json,
}
