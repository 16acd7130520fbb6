"""Running a playbook and looking at what came of it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import msgspec

from rune.cli.types import node_types
from rune.core.errors import DefinitionError, ErrorInfo, Problem
from rune.core.messages import NodeStatusMessage
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
            if message.node_id.partition("~")[0] == step and message.details and "event" in message.details
        ]


def whole(text: str) -> str:
    """A playbook of these lines, with what every one starts with."""
    return HEAD + textwrap.dedent(text)


def compiled(text: str, *, compatibility: bool = False) -> Workflow:
    """The workflow of a playbook; DefinitionError if there are problems."""
    _, flow, problems = examine(text, "playbook.yaml", node_types(Settings()), compatibility=compatibility)
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
) -> Played:
    """Run a playbook to its end."""
    source = text.read_text(encoding="utf-8") if isinstance(text, Path) else whole(text)
    flow = compiled(source, compatibility=compatibility)
    settings = settings or Settings()
    told: list[NodeStatusMessage] = []
    async with Embedded.open(settings, node_types(settings), database) as rune:
        rune.listen(told.extend)
        completion = await rune.result(await rune.start(flow, input=input or {}))
    results = msgspec.json.decode(completion.final_context.get("$~verdict", msgspec.Raw(b"{}"))) or {}
    return Played(completion.status, completion.error, results.get("steps", {}), results.get("ctx", {}), told)
