"""A node's parameters, compiled once: literals are checked, the rest is resolved for each step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import FieldInfo

from rune.core.errors import NodeError, Problem
from rune.core.expressions import (
    Expression,
    ExpressionError,
    Template,
    compile_expression,
    compile_template,
    suggest,
)
from rune.core.fitting import Fitting, Misfit, Path, complaint, convert, members, plain
from rune.core.node import NodeType

__all__ = ["Dialect", "Parameters", "compile_parameters"]

_WORDS = re.compile(r"""(?=\b(\w+)|"([^"]*)"|'([^']*)')""")
"""Words and quoted texts, also where they overlap."""
_CODES = {"wrong": "E014", "refused": "E014", "missing": "E013", "unknown": "E012"}


class Dialect(msgspec.Struct, frozen=True):
    """How the templates of a format are read."""

    aliases: Mapping[str, str] = {}
    """Ids of nodes by name."""
    lenient: bool = False
    """What does not exist is null, not an error."""
    references: bool = True
    """A bare `$name` is a reference, outside of `{{ }}` too."""

    def template(self, value: Any) -> Template:
        """A parameter tree, compiled."""
        return compile_template(value, aliases=self.aliases, lenient=self.lenient, references=self.references)


class Parameters:
    """The parameters of one node; `resolve` gives those of one step.

    What needs no resolving is converted once and shared by all steps, which must not change it.
    """

    __slots__ = (
        "_fixed",
        "_shape",
        "_template",
        "_type",
        "constant",
        "deterministic",
        "expressions",
        "names",
    )

    def __init__(
        self,
        type: type[NodeType],
        fixed: Mapping[str, Any],
        moving: Mapping[str, Any],
        expressions: list[Expression],
        dialect: Dialect,
    ) -> None:
        self._type = type
        self._fixed = fixed
        self._template = dialect.template(moving)
        self._shape = _shape(type, tuple(moving))
        self.names: frozenset[str] = self._template.names.union(type.reads, *(e.names for e in expressions))
        """The roots that any template or expression may read, such as `$fetch`."""
        self.expressions = tuple(expressions)
        """Those that the node evaluates itself."""
        self.deterministic: bool = self._template.deterministic and all(e.deterministic for e in expressions)
        self.constant: NodeType | None = None if moving else type(**fixed)
        """The one instance, where nothing needs resolving."""

    def resolve(self, scope: Any) -> NodeType:
        """The parameters in this scope; NodeError says which of them cannot be had."""
        if self.constant is not None:
            return self.constant
        try:
            values = self._template.resolve(scope)
        except ExpressionError as error:
            raise _unresolved(error) from error
        try:
            made = msgspec.convert(values, self._shape, strict=False)
        except msgspec.ValidationError:
            made = self._soften(values)
        try:
            return self._type(**self._fixed, **msgspec.structs.asdict(made))
        except (TypeError, ValueError) as error:
            raise NodeError(str(error), "PARAMETER_INVALID") from error

    def _soften(self, values: dict[str, Any]) -> Any:
        """Convert with numbers as text where text is asked for, or say what does not fit."""
        fitting = Fitting(lambda text, path: text, lambda text, path: False)
        values = fitting.walk(values, self._shape, ())
        if not fitting.misfits:
            try:
                return msgspec.convert(values, self._shape, strict=False)
            except msgspec.ValidationError as error:
                raise NodeError(str(error), "PARAMETER_INVALID") from error
        misfit = fitting.misfits[0]
        details = {"parameter": _dotted(misfit.path)}
        raise NodeError(_sentence(self._type, misfit), "PARAMETER_INVALID", details)


def compile_parameters(
    type: type[NodeType], raw: Mapping[str, Any], *, dialect: Dialect, path: Path
) -> tuple[Parameters | None, list[Problem]]:
    """Compile the parameters of one node; without Parameters where a problem is an error."""
    dialect = msgspec.structs.replace(dialect, aliases=_used(dialect.aliases, raw))
    compiler = _Compiler(type, dialect, path)
    compiler.compile(raw)
    if any(problem.severity == "error" for problem in compiler.problems):
        return None, compiler.problems
    moving = [_fields(type)[name].name for name in compiler.moving]
    if said := complaint(type, compiler.fixed, moving):
        return None, [*compiler.problems, Problem("E014", f"{type.name}: {said}", path)]
    made = Parameters(type, compiler.fixed, compiler.moving, compiler.expressions, dialect)
    return made, compiler.problems


class _Compiler:
    """Parts the parameters into what is fixed and what each step resolves, and collects what is wrong."""

    def __init__(self, type: type[NodeType], dialect: Dialect, path: Path) -> None:
        self.fixed: dict[str, Any] = {}
        self.moving: dict[str, Any] = {}
        self.expressions: list[Expression] = []
        self.problems: list[Problem] = []
        self._type = type
        self._dialect = dialect
        self._path = path

    def compile(self, raw: Mapping[str, Any]) -> None:
        known = _fields(self._type)
        free = [name for name in known if name not in raw]
        misspelt = {self._unknown(name, free) for name in raw if name not in known}
        for name, field in known.items():
            value = raw.get(name, _template_default(field))
            # Editors write null for what was left empty.
            if value is None and not field.required and not _takes_null(field.type):
                value = msgspec.NODEFAULT
            if value is not msgspec.NODEFAULT:
                self._field(field, value)
            elif field.required and name not in misspelt:
                self._report("E013", f"parameter {name!r} of {self._type.name} is missing", self._path)

    def _field(self, field: FieldInfo, value: Any) -> None:
        if field.name in self._type.verbatim:
            self._convert(field, value)
            return
        fitting = Fitting(self._expression, self._opaque)
        before = len(self.problems)
        walked = fitting.walk(value, field.type, (field.encode_name,))
        for misfit in fitting.misfits:
            self._misfit(misfit)
        if len(self.problems) > before:
            return
        if fitting.opened:
            self.moving[field.encode_name] = walked
        else:
            self._convert(field, walked)

    def _convert(self, field: FieldInfo, value: Any) -> None:
        try:
            self.fixed[field.name] = convert(value, field.type)
        except msgspec.ValidationError as error:
            message = f"parameter {field.encode_name!r} of {self._type.name}: {error}"
            self._report("E014", message, (*self._path, field.encode_name))

    def _expression(self, source: str, path: Path) -> Expression | None:
        try:
            made = compile_expression(
                source,
                aliases=self._dialect.aliases,
                lenient=self._dialect.lenient,
                numeric_strings=self._type.numeric_strings,
            )
        except ExpressionError as error:
            self._broken(error, path)
            return None
        self.expressions.append(made)
        return made

    def _opaque(self, text: str, path: Path) -> bool:
        """Is the text a template? Then what it stands for is not known before it is resolved."""
        if "$" not in text and "{{" not in text:
            return False
        try:
            constant = self._dialect.template(text).constant
        except ExpressionError as error:
            self._broken(error, path)
            return True
        return not constant

    def _broken(self, error: ExpressionError, path: Path) -> None:
        where = (*self._path, *path, *error.where)
        self._report("E015", error.message, where, error.hint, error.offset or 0)

    def _misfit(self, misfit: Misfit) -> None:
        message = _sentence(self._type, misfit)
        self._report(_CODES[misfit.kind], message, (*self._path, *misfit.path), misfit.hint)

    def _unknown(self, name: str, free: list[str]) -> str | None:
        """Report an unknown parameter; the one that was probably meant."""
        meant = suggest(name, free)
        message = f"unknown parameter {name!r} of {self._type.name}"
        if meant:
            self._report("E012", message, (*self._path, name), f"did you mean {meant!r}?")
        else:
            problem = Problem("W001", f"{message} is ignored", (*self._path, name), severity="warning")
            self.problems.append(problem)
        return meant

    def _report(self, code: str, message: str, path: Path, hint: str | None = None, offset: int = 0) -> None:
        self.problems.append(Problem(code, message, path, hint, offset=offset))


def _used(aliases: Mapping[str, str], raw: Mapping[str, Any]) -> Mapping[str, str]:
    """The aliases that these parameters may use: thousands of nodes need not try thousands of names each."""
    if not aliases:
        return aliases
    text = "\n".join(_texts(raw))
    if "\\" in text:
        return aliases  # an escape may hide a name
    words = {word for found in _WORDS.finditer(text) for word in found.groups() if word}
    return {word: aliases[word] for word in words if word in aliases}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


@cache
def _fields(type: type[NodeType]) -> Mapping[str, FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(type)}


@cache
def _shape(type: type[NodeType], names: tuple[str, ...]) -> Any:
    """A struct of the fields that are resolved; the whole type may hold unions that msgspec does not take."""
    fields = [_fields(type)[name] for name in names]
    return msgspec.defstruct(
        type.__name__,
        [(field.name, plain(field.type)) for field in fields],
        rename={field.name: field.encode_name for field in fields},
    )


def _template_default(field: FieldInfo) -> Any:
    """A default such as `"$json"` is a template like any other."""
    default = field.default
    return default if isinstance(default, str) and ("$" in default or "{{" in default) else msgspec.NODEFAULT


def _takes_null(hint: Any) -> bool:
    return bool({None, type(None), Any}.intersection(members(hint)))


def _sentence(type: type[NodeType], misfit: Misfit) -> str:
    joint = " " if misfit.kind == "wrong" else ": "
    return f"parameter {_dotted(misfit.path)!r} of {type.name}{joint}{misfit.message}"


def _dotted(path: Path) -> str:
    """A path as an expression would write it: `rules[0].operator`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _unresolved(error: ExpressionError) -> NodeError:
    name = _dotted(error.where)
    details = {"parameter": name, "expression": error.source, "offset": error.offset}
    return NodeError(f"parameter {name!r}: {error}", error.code, details)
