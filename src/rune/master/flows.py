"""Compiled workflows, each compiled once while it is in use."""

from __future__ import annotations

from collections import OrderedDict

from rune.core.errors import DefinitionError
from rune.core.ids import content_hash
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.formats.definition import compile_definition

__all__ = ["Flows"]

_KEPT = 256


class Flows:
    """The workflows of definitions; the ones used last are kept."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: OrderedDict[str, Workflow] = OrderedDict()

    def flow(self, definition: bytes, hash: str = "") -> Workflow:
        """The workflow of a definition that was stored, and therefore can be run."""
        hash = hash or content_hash(definition)
        flow = self._kept.get(hash)
        if flow is None:
            flow = compile_definition(definition, self._registry)
            self.keep(flow, hash)
        else:
            self._kept.move_to_end(hash)
        return flow

    def flow_or_none(self, definition: bytes) -> Workflow | None:
        """The same for who only looks: None where a node type that it needs is not installed any more."""
        try:
            return self.flow(definition)
        except DefinitionError:
            return None

    def keep(self, flow: Workflow, hash: str) -> None:
        """Remember one that has just been compiled."""
        self._kept[hash] = flow
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
