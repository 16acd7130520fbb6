"""What a loop runs over, as far as it can be checked before anything runs."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.expressions import ExpressionError
from rune.core.fitting import Fitting, show
from rune.core.sources import Descriptor
from rune.formats.places import Path
from rune.formats.playbook.rules import DIALECT
from rune.formats.shape import Problems

__all__ = ["check_collection", "is_read"]

_EXPECTED = "a list, a template of one, or a source such as {range: 10} or {jsonl: file}"


def check_collection(value: Any, path: Path, problems: Problems) -> None:
    """Tell what is wrong with `loop.in`, where it is written down and not left to a template."""
    if isinstance(value, dict):
        _check_source(value, path, problems)
    elif value not in (None, "") and not isinstance(value, list) and not _opaque(value, path):
        problems.error("E043", f"`in` is {_EXPECTED}, not {show(value)}", path)


def is_read(value: Any) -> bool:
    """Whether it describes elements that have to be read before anybody knows how many there are."""
    return isinstance(value, dict) and "range" not in value


def _check_source(value: dict[str, Any], path: Path, problems: Problems) -> None:
    fitting = Fitting(lambda text, path: text, _opaque)
    walked = fitting.walk(value, Descriptor, ())
    for misfit in fitting.misfits:
        where = f"`{'.'.join(map(str, misfit.path))}` " if misfit.path else ""
        problems.error("E043", f"`in`: {where}{misfit.message}", (*path, *misfit.path), misfit.hint)
    if fitting.misfits or fitting.opened:
        return
    try:
        msgspec.convert(walked, Descriptor, strict=False)
    except msgspec.ValidationError as error:
        problems.error("E043", f"`in`: {error}", path)


def _opaque(value: Any, path: Path) -> bool:
    """Is it a template? One that cannot be compiled is told where it is compiled."""
    if not isinstance(value, str):
        return False
    try:
        return not DIALECT.template(value).constant
    except ExpressionError:
        return True
