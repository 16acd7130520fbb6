"""Whether a value fits a type, part by part: every misfit has its own place, and plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from rune.core.expressions import Expression, suggest

__all__ = ["Fitting", "Misfit", "Path", "complaint", "convert", "describe", "members", "plain", "show"]

Path = tuple[str | int, ...]

_PLAIN = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    dict: "an object",
    list: "a list",
    Any: "anything",
    Expression: "an expression",
}
_BOUNDS = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "multiple_of": "a multiple of {}",
    "pattern": "matching {}",
}
_NUMERIC = ("ge", "gt", "le", "lt", "multiple_of")
_SIZED = ("min_length", "max_length")
_FITTING = {
    int: _NUMERIC,
    float: _NUMERIC,
    str: ("pattern", *_SIZED),
    list: _SIZED,
    dict: _SIZED,
    tuple: _SIZED,
}
"""The bounds that each type can have."""
_STAND_INS: tuple[Any, ...] = (None, "", "text", 0, 1, True, [], {})


class Misfit(msgspec.Struct, frozen=True):
    """One part of a value that is not what its type asks for."""

    kind: Literal["wrong", "missing", "unknown", "refused"]
    path: Path
    message: str
    hint: str | None = None


class Fitting:
    """A walk along a value and its type.

    `expression` makes a compiled Expression of the text at a path. `opaque` says of a text that it stands for
    something that is not known yet, so that it fits everywhere.
    """

    def __init__(self, expression: Callable[[str, Path], Any], opaque: Callable[[str, Path], bool]) -> None:
        self.misfits: list[Misfit] = []
        self.opened = 0
        """How many opaque texts were met."""
        self._expression = expression
        self._opaque = opaque

    def walk(self, value: Any, hint: Any, path: Path) -> Any:
        """The value with its expressions compiled and its numbers written as text where text is asked for."""
        options = members(hint)
        if Expression in options and isinstance(value, str | bool | int | float):
            return self._expression(value if isinstance(value, str) else _json(value), path)
        if isinstance(value, str) and self._opaque(value, path):
            self.opened += 1
            return value
        if isinstance(value, dict):
            return self._object(value, hint, options, path)
        if isinstance(value, list | tuple):
            return self._list(value, hint, options, path)
        return self._leaf(value, hint, options, path)

    def _object(self, value: dict[str, Any], hint: Any, options: list[Any], path: Path) -> Any:
        structs = [option for option in options if _is_struct(option)]
        if len(structs) == 1:
            return self._struct(value, structs[0], path)
        kind = next((option for option in options if (get_origin(option) or option) is dict), None)
        if kind is None and not structs and Any not in options:
            return self._wrong(value, hint, path)
        inner = get_args(kind)[1] if kind is not None and get_args(kind) else Any
        return {key: self.walk(part, inner, (*path, key)) for key, part in value.items()}

    def _struct(self, value: dict[str, Any], struct: Any, path: Path) -> dict[str, Any]:
        known = {field.encode_name: field for field in msgspec.structs.fields(struct)}
        for name, field in known.items():
            if field.required and name not in value:
                self.misfits.append(Misfit("missing", path, f"{name!r} is missing"))
        walked = {}
        open: list[str] = []
        before = len(self.misfits)
        for name, part in value.items():
            opened = self.opened
            if name in known:
                part = self.walk(part, known[name].type, (*path, name))
            elif meant := suggest(name, known):
                hint = f"did you mean {meant!r}?"
                self.misfits.append(Misfit("unknown", (*path, name), f"unknown field {name!r}", hint))
            walked[name] = part
            open += [name] if opened != self.opened else []
        if len(self.misfits) == before and hasattr(struct, "__post_init__"):
            self._own_check(struct, known, walked, open, path)
        return walked

    def _own_check(
        self, struct: Any, known: Mapping[str, Any], value: dict[str, Any], open: list[str], path: Path
    ) -> None:
        try:
            fixed = {
                known[name].name: convert(part, known[name].type)
                for name, part in value.items()
                if name in known and name not in open
            }
        except msgspec.ValidationError:
            return  # Told when the whole is converted.
        said = complaint(struct, fixed, [known[name].name for name in open])
        if said:
            self.misfits.append(Misfit("refused", path, said))

    def _list(self, value: Any, hint: Any, options: list[Any], path: Path) -> Any:
        kind = next((o for o in options if (get_origin(o) or o) in (list, tuple, set, frozenset)), None)
        if kind is None and Any not in options:
            return self._wrong(value, hint, path)
        arguments = get_args(kind) if kind is not None else ()
        inner = arguments[0] if arguments else Any
        return [self.walk(part, inner, (*path, index)) for index, part in enumerate(value)]

    def _leaf(self, value: Any, hint: Any, options: list[Any], path: Path) -> Any:
        if Any in options or type(value) is hint:
            return value
        try:
            convert(value, hint)
        except msgspec.ValidationError:
            if str in options and isinstance(value, bool | int | float):
                return _json(value)
            number = _number(value) if {int, float} & set(options) else None
            return self._wrong(value, hint, path) if number is None else self.walk(number, hint, path)
        return value

    def _wrong(self, value: Any, hint: Any, path: Path) -> Any:
        meant = suggest(value, _choices(hint)) if isinstance(value, str) else None
        self.misfits.append(
            Misfit(
                "wrong",
                path,
                f"must be {describe(hint)}, not {show(value)}",
                f"did you mean {meant!r}?" if meant else None,
            )
        )
        return value


def members(hint: Any) -> list[Any]:
    """The types a value may be of, with unions and annotations taken apart."""
    origin = get_origin(hint)
    if origin is Annotated:
        return members(get_args(hint)[0])
    if origin in (Union, UnionType):
        return [member for option in get_args(hint) for member in members(option)]
    return [hint]


def convert(value: Any, hint: Any) -> Any:
    """The value as the type has it; numbers may be written as text."""
    return value if isinstance(value, Expression) else msgspec.convert(value, plain(hint), strict=False)


def describe(hint: Any) -> str:
    """A type in plain words."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _bounded(*get_args(hint))
    if origin in (Union, UnionType):
        options = [describe(option) for option in get_args(hint) if option is not NoneType]
        return " or ".join(dict.fromkeys(options))
    if origin is Literal:
        return "one of " + ", ".join(_json(choice) for choice in get_args(hint))
    if origin is list and get_args(hint) and get_args(hint)[0] is not Any:
        return f"a list (each {describe(get_args(hint)[0])})"
    if _is_struct(hint):
        return "an object"
    return _PLAIN.get(origin or hint) or str(getattr(hint, "__name__", hint))


def show(value: Any) -> str:
    """A value in plain words, shortened."""
    match value:
        case None:
            return "null"
        case bool():
            return _json(value)
        case str():
            return f"the text {_json(value if len(value) <= 40 else value[:39] + '…')}"
        case int() | float():
            return f"the number {_json(value)[:40]}"
        case list() | tuple():
            return "a list"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def complaint(struct: type[msgspec.Struct], fixed: Mapping[str, Any], open: Iterable[str]) -> str | None:
    """What a struct's own check says of its fixed fields, whatever the open ones will be.

    These are not known yet: only what is said for every kind of value they may take is certain.
    """
    said = set()
    for stand_in in _STAND_INS:
        try:
            struct(**fixed, **dict.fromkeys(open, stand_in))
        except Exception as error:  # noqa: BLE001 - a type's own check may raise anything
            said.add(str(error))
        else:
            return None
    return said.pop() if len(said) == 1 else None


def _number(text: Any) -> int | float | None:
    """The number that a text writes; a union of numbers and words does not look for one."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.convert(text, int | float, strict=False)
    except msgspec.ValidationError:
        return None


def _bounded(hint: Any, *extras: Any) -> str:
    words = [describe(hint)]
    for extra in extras:
        if isinstance(extra, msgspec.Meta):
            for name, phrase in _BOUNDS.items():
                bound = getattr(extra, name)
                words += [phrase.format(bound)] if bound is not None else []
    return ", ".join(words)


def _choices(hint: Any) -> list[str]:
    return [
        choice for option in members(hint) if get_origin(option) is Literal for choice in get_args(option)
    ]


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def plain(hint: Any) -> Any:
    """The type as msgspec takes it: bounds on the members of a union, no `Expression` beside others."""
    options = _options(hint, ())
    if any(option not in (Expression, NoneType) for option in options):
        options = [option for option in options if option is not Expression]
    return Union[tuple(options)]  # noqa: UP007  # made of values, not written down


def _options(hint: Any, metas: tuple[Any, ...]) -> list[Any]:
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *extras = get_args(hint)
        return _options(inner, (*metas, *(extra for extra in extras if isinstance(extra, msgspec.Meta))))
    if origin in (Union, UnionType):
        return [option for member in get_args(hint) for option in _options(member, metas)]
    bounds = {name: getattr(meta, name) for meta in metas for name in _FITTING.get(origin or hint, ())}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    return [Annotated[hint, msgspec.Meta(**bounds)] if bounds else hint]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
