"""The Lua scripts, one file each, with the parts they say they use put before them.

A part named with parentheses is a module: a call that does not ask for it does not pay for making it.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

__all__ = ["ALL", "Script", "load"]

_USES = "-- uses: "
_MODULE = """
local NAME
do
  local made
  NAME = function()
    if not made then
      made = (function()
TEXT
      end)()
    end
    return made
  end
end
"""


class Script(NamedTuple):
    """A script as Redis knows it."""

    name: str
    text: str
    sha: str


@cache
def _text(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text()


def _part(part: str) -> str:
    name = part.removesuffix("()")
    return _MODULE.replace("NAME", name).replace("TEXT", _text(name)) if part != name else _text(name)


@cache
def load(name: str) -> Script:
    """The script of this name, whole."""
    text = _text(name)
    first, _, _ = text.partition("\n")
    if first.startswith(_USES):
        text = "\n".join([*(_part(part) for part in first.removeprefix(_USES).split(", ")), text])
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


ALL = (
    "apply",
    "bury",
    "claim",
    "delist",
    "discharge",
    "enlist",
    "give_back",
    "holding",
    "index",
    "lease",
    "park",
    "pause",
    "put",
    "renew",
    "rouse",
    "seed",
    "sweep",
    "take",
    "unfilled",
    "untimely",
)
"""Loaded whenever a connection is made."""
