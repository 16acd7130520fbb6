"""What a workflow calls, looked up among the stored ones: their published versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rune.core.errors import DefinitionError, Problem
from rune.formats.document import read
from rune.formats.graph import Registry
from rune.formats.linking import Found, calls_of
from rune.history.workflows import StoredWorkflow, Workflows
from rune.master.sources import Compiled, compile_given

__all__ = ["compile_linked"]


async def compile_linked(
    workflows: Workflows,
    registry: Registry,
    definition: dict[str, Any] | None,
    source: str | None,
    format: str | None,
    *,
    id: str = "",
) -> Compiled:
    """What a workflow means that is given as an object or as a text, with all that it calls in it.

    `id` is the one it is stored under, if it is: it must not call itself.
    """
    given: Mapping[str, Any] = definition or {}
    if source is not None:
        given = read(source, "source")[0].value
    stored = _Stored()
    for _, name in calls_of(given, registry):
        await stored.look_up(name, workflows)
    return compile_given(definition, source, format, registry, stored, id)


class _Stored:
    """Finds what was looked up before."""

    def __init__(self) -> None:
        self._found: dict[str, Found | DefinitionError | None] = {}

    async def look_up(self, name: str, workflows: Workflows) -> None:
        """Read the workflow of this id, or of this name."""
        if name in self._found:
            return
        try:
            stored = await workflows.called(name)
            self._found[name] = None if stored is None else await _published(stored, workflows)
        except DefinitionError as error:
            self._found[name] = error

    def find(self, name: str) -> Found | None:
        """See `Resolver.find`."""
        found = self._found.get(name)
        if isinstance(found, DefinitionError):
            raise found
        return found


async def _published(stored: StoredWorkflow, workflows: Workflows) -> Found:
    if stored.published is None:
        raise DefinitionError([Problem("E052", "no version of it is published", hint="publish one")])
    text = stored.definition
    if stored.published != stored.version:
        version = await workflows.version(stored.id, stored.published)
        if version is None:
            raise DefinitionError([Problem("E052", f"it has no version {stored.published} any more")])
        text = version.definition
    return Found(msgspec.json.decode(text), stored.id)
