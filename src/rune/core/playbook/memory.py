"""The scopes of a playbook as names in expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rune.core.expressions.paths import Scope
from rune.core.playbook.program import Written

__all__ = ["EXECUTION", "Memory", "merged"]

EXECUTION = ("workload", "execution_id")
"""Names that mean the same throughout an execution."""


class Memory:
    """What one run of a pipeline knows; names it does not have are looked up in the branch.

    `iter` is this run's own. `ctx` and `vars` belong to the step, and iterations that run one after another
    share them.
    """

    __slots__ = ("_branch", "_names", "shared")

    def __init__(self, branch: Scope, names: Mapping[str, Any]) -> None:
        self._branch = branch
        self._names: dict[str, Any] = {"iter": {}, "results": {}, "_prev": None, "_index": 0, **names}
        self.shared: dict[str, Any] = {}
        """What the run adds to values that many runs share, by name."""

    def lookup(self, name: str) -> Any:
        """The value of a name; KeyError if it means nothing here."""
        try:
            return self._names[name]
        except KeyError:
            return self._branch.lookup(name)

    def names(self) -> Iterator[str]:
        """Every name that means something here."""
        yield from self._names
        yield from self._branch.names()

    def within(self, **names: Any) -> Memory:
        """A memory for one iteration: the same `ctx` and `vars`, an `iter` of its own."""
        return Memory(self._branch, {**self._names, "iter": {}, "results": {}, "_prev": None, **names})

    def over(self, branch: Scope) -> Memory:
        """The same names over another branch."""
        return Memory(branch, self._names)

    def know(self, **names: Any) -> None:
        """Give names a value."""
        self._names.update(names)

    def know_result(self, step: str, value: Any) -> None:
        """Give the step's own result, under its name unless that means something else here."""
        self._names["_prev"] = value
        if step not in EXECUTION:
            self._names.setdefault(step, value)

    def write(self, where: Written, values: Any) -> None:
        """Carry out one `set_…`."""
        if where == "prev":
            self._names["_prev"] = values
        elif where == "shared":
            self.shared.update(values)
        else:
            # In place, for those that share it; the values themselves are never changed.
            self._names[where].update(values)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        return self._names[name]


def merged(defaults: Any, given: Any) -> Any:
    """A deep merge in which what is given wins; lists are replaced as a whole."""
    if isinstance(defaults, dict) and isinstance(given, dict):
        return {**defaults, **{key: merged(defaults.get(key), value) for key, value in given.items()}}
    return given
