"""Functions that encode, hash and name."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError
from rune.core.expressions.library.arguments import choice, text
from rune.core.expressions.library.registry import function
from rune.core.expressions.values import text_of, to_json, utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__: list[str] = []

_ALGORITHMS = {name: name for name in ("sha256", "md5", "sha1", "sha512")}


@function()
def b64encode(budget: Budget, value: Any) -> str:
    """The text's bytes in base 64."""
    from binascii import b2a_base64

    encoded = utf8(text_of(value, budget))
    budget.grow(2 * len(encoded))
    return b2a_base64(encoded, newline=False).decode()


@function()
def b64decode(budget: Budget, value: Any) -> str:
    """The text that base 64 stands for, in the plain or the URL alphabet, with padding or without."""
    from binascii import Error, a2b_base64

    written = text(value, "b64decode").strip().rstrip("=").replace("-", "+").replace("_", "/")
    budget.grow(len(written))
    try:
        return a2b_base64(written + "=" * (-len(written) % 4), strict_mode=True).decode()
    except UnicodeDecodeError:
        raise ExpressionTypeError("`b64decode`: the bytes are not text") from None
    except (Error, ValueError):
        raise ExpressionTypeError("`b64decode`: the string is not base 64") from None


@function()
def urlencode(budget: Budget, value: Any) -> str:
    """The text with all but letters, digits and -._~ escaped; of an object, its query string."""
    if not isinstance(value, dict):
        return _escaped(value, budget)
    pairs = []
    budget.spend(len(value))
    for key, member in value.items():
        several = member if isinstance(member, list) else [member]
        budget.spend(len(several))
        pairs += [f"{_escaped(key, budget)}={_escaped(each, budget)}" for each in several]
    return "&".join(pairs)


def _escaped(value: Any, budget: Budget) -> str:
    from urllib.parse import quote

    encoded = utf8(text_of(value, budget))
    budget.grow(3 * len(encoded))
    return quote(encoded, safe="")


@function()
def urldecode(budget: Budget, value: Any) -> str:
    """The text with its %-escapes undone."""
    from urllib.parse import unquote

    budget.grow(2 * len(text(value, "urldecode")))
    return unquote(value)


@function()
def hash_(budget: Budget, value: Any, algorithm: Any = "sha256") -> str:
    """The hexadecimal hash of a text, or of a value's JSON with sorted keys: sha256, sha512, sha1 or md5."""
    import hashlib

    name = choice(algorithm, "hash", _ALGORITHMS)
    written = (
        to_json(value, budget, sort_keys=True) if isinstance(value, dict | list) else text_of(value, budget)
    )
    budget.spend(5)
    budget.scan(8 * len(written))
    return hashlib.new(name, utf8(written), usedforsecurity=False).hexdigest()


@function(deterministic=False)
def uuid() -> str:
    """A new random identifier (UUID version 4)."""
    from uuid import uuid4

    return str(uuid4())
