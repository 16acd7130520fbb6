"""Running a playbook and looking at what came of it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from rune.cli.types import node_types
from rune.core.errors import DefinitionError, ErrorInfo, Problem
from rune.core.messages import NodeStatusMessage
from rune.core.playbook.identity import step_of
from rune.core.playbook.tool import Tool
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.embedded import Embedded
from rune.formats.definition import examine
from rune.settings import Settings

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: test}\n"


class Played(msgspec.Struct):
    """What one execution came to."""

    status: str
    error: ErrorInfo | None
    steps: dict[str, Any]
    ctx: dict[str, Any]
    told: list[NodeStatusMessage]

    def events(self, step: str) -> list[str]:
        """The events of a step, in order."""
        return [
            message.details["event"]
            for message in self.told
            if step_of(message.node_id) == step and message.details and "event" in message.details
        ]


def whole(text: str) -> str:
    """A playbook of these lines, with what every one starts with."""
    return HEAD + textwrap.dedent(text)


def compiled(text: str, *, compatibility: bool = False, registry: Registry | None = None) -> Workflow:
    """The workflow of a playbook; DefinitionError if there are problems."""
    registry = registry or node_types(Settings())
    _, flow, problems = examine(text, "playbook.yaml", registry, compatibility=compatibility)
    if flow is None:
        raise DefinitionError(problems)
    return flow


def problems_of(text: str, *, compatibility: bool = False) -> list[Problem]:
    """What is wrong with a playbook."""
    return examine(whole(text), "playbook.yaml", node_types(Settings()), compatibility=compatibility)[2]


async def play(
    text: str | Path,
    input: dict[str, Any] | None = None,
    *,
    compatibility: bool = False,
    settings: Settings | None = None,
    database: str | None = None,
    tools: Iterable[type[Tool]] = (),
) -> Played:
    """Run a playbook to its end, with these tools besides Rune's own."""
    source = text.read_text(encoding="utf-8") if isinstance(text, Path) else whole(text)
    settings = settings or Settings()
    registry = node_types(settings)
    for tool in tools:
        registry.add(tool)
    flow = compiled(source, compatibility=compatibility, registry=registry)
    told: list[NodeStatusMessage] = []
    async with Embedded.open(settings, registry, database) as rune:
        rune.listen(told.extend)
        completion = await rune.result(await rune.start(flow, input=input or {}))
    results = msgspec.json.decode(completion.final_context.get("$~verdict", msgspec.Raw(b"{}"))) or {}
    return Played(completion.status, completion.error, results.get("steps", {}), results.get("ctx", {}), told)
