"""What a branch knows in the reference: values, some of which depend on the order of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["ANY", "MAYBE", "Context", "Version", "having", "joined", "known", "matches", "plain", "raced"]


class _Unknown:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


ANY = _Unknown("ANY")
MAYBE = _Unknown("MAYBE")


def known(value: Any) -> bool:
    """Whether a value is determined in all its parts."""
    if isinstance(value, _Unknown):
        return False
    if isinstance(value, dict):
        return all(map(known, value.values()))
    return not isinstance(value, list) or all(map(known, value))


def matches(expected: Any, actual: Any) -> bool:
    """Whether a value is what the reference says, as far as it says."""
    if isinstance(expected, _Unknown):
        return True
    if isinstance(expected, dict) and isinstance(actual, dict):
        needed = {key for key, value in expected.items() if value is not MAYBE}
        if not needed <= actual.keys() <= expected.keys():
            return False
        return all(matches(expected[key], value) for key, value in actual.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(matches, expected, actual))
    return type(expected) is type(actual) and bool(expected == actual)


class Version:
    """One value that a name was given at one place."""

    def __init__(self, value: Any) -> None:
        self.value = value


Context = dict[str, tuple[Version, ...]]
"""Each name with all the values it had on the way here, the last one being the one that counts."""


def having(context: Context, **values: Any) -> Context:
    """The context with these names set."""
    return context | {f"${name}": (*context.get(f"${name}", ()), Version(v)) for name, v in values.items()}


def plain(context: Context) -> dict[str, Any]:
    """The values that count."""
    return {key: versions[-1].value for key, versions in context.items()}


def joined(contexts: Sequence[Context]) -> Context:
    """The common ancestors' values plus what each branch added, the later ones over the earlier."""
    stale = {id(v) for context in contexts for versions in context.values() for v in versions[:-1]}
    result: Context = {}
    for context in contexts:
        for key, versions in context.items():
            if key not in result or id(versions[-1]) not in stale:
                result[key] = versions
    return result


def raced(contexts: Sequence[Context]) -> Context:
    """What is certain when it is not known which of these branches were there."""
    result: Context = {}
    for key in {key for context in contexts for key in context}:
        versions = [context.get(key, (Version(MAYBE),)) for context in contexts]
        same = all(v[-1] is versions[0][-1] for v in versions)
        everywhere = all(v[-1].value is not MAYBE for v in versions)
        result[key] = versions[0] if same else (Version(ANY if everywhere else MAYBE),)
    return result
