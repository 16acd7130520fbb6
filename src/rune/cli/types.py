"""The node types of a process: Rune's own, those of the user's modules, those of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rune.core.node import NodeType
from rune.core.registry import Registry, load_entry_points, load_modules, node_types_of
from rune.nodes import FAMILIES, load_builtin
from rune.settings import Settings

__all__ = ["Types", "node_types"]


class Types(Registry):
    """A registry that looks further only for a type that it does not know yet.

    Most of Rune's own types are in a module of the same name, so that a small workflow imports few of them;
    installed packages are asked last, since finding them takes time.
    """

    _complete = False

    def get(self, name: str) -> type[NodeType] | None:
        found = super().get(name) or self._namesake(name)
        return found or (None if name.partition(".")[0] in FAMILIES else self.complete().known(name))

    def family(self, prefix: str) -> list[str]:
        for type in load_builtin(FAMILIES[prefix]):
            self.add(type)
        return super().family(prefix)

    def known(self, name: str) -> type[NodeType] | None:
        """The type, if it is known already."""
        return super().get(name)

    def names(self) -> list[str]:
        self.complete()
        return super().names()

    def suggest(self, name: str) -> str | None:
        self.complete()
        return super().suggest(name)

    def complete(self) -> Types:
        """Add everything there is, once."""
        if not self._complete:
            self._complete = True
            for type in (*load_builtin(), *load_entry_points()):
                self.add(type)
        return self

    def _namesake(self, name: str) -> type[NodeType] | None:
        """The type in Rune's own module of this name."""
        family = name.partition(".")[0]
        if "." in name and family in FAMILIES:
            self.family(family)
            return self.known(name)
        if self._complete or not name.isidentifier() or name.startswith("_"):
            return None
        module = f"rune.nodes.{name}"
        if find_spec(module) is None:
            return None
        for type in node_types_of(import_module(module)):
            if type.__module__ == module:
                self.add(type)
        return self.known(name)


def node_types(settings: Settings) -> Types:
    """Every node type that these settings speak of."""
    own = _load(settings.modules)
    # With types of the user's at hand, Rune's own are added first: two of one name have to be refused.
    return Types([*load_builtin(), *own] if own else ())


def _load(modules: Iterable[str]) -> list[type[NodeType]]:
    names = [name.strip() for name in modules if name.strip()]
    here = str(Path.cwd())
    if names and here not in sys.path:
        # Last, so that a file lying about cannot stand in for a library.
        sys.path.append(here)
    return load_modules(names)
