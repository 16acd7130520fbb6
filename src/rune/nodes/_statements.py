"""SQL parted into statements, and what these take, with an eye for quotes and comments."""

from __future__ import annotations

import re

__all__ = ["parameters", "statements"]

_TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'              # text
    | "(?:[^"]|"")*"              # a quoted name
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$   # dollar quotes
    | --[^\n]*                    # a comment to the end of the line
    | /\*.*?\*/                   # a comment
    | ;
    """,
    re.VERBOSE | re.DOTALL,
)
_PARAMETER = re.compile(r"(?<!\w)\$([0-9]+)")


def statements(text: str) -> list[str]:
    """The statements of a text, without the semicolons and without empty ones."""
    found, start = [], 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            found.append(text[start : token.start()])
            start = token.end()
    found.append(text[start:])
    return [part.strip() for part in found if _says_something(part)]


def parameters(statement: str) -> int:
    """How many parameters a statement takes: the highest of `$1`, `$2`, …"""
    bare = _TOKEN.sub(" ", statement)
    return max(map(int, _PARAMETER.findall(bare)), default=0)


def _says_something(part: str) -> bool:
    return bool(_TOKEN.sub(lambda token: "" if token[0].startswith(("--", "/*")) else token[0], part).strip())
