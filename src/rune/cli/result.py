"""How an execution has ended: for people, and as the message for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from rune.cli.command import Exit, say
from rune.cli.view import duration
from rune.core.errors import ErrorInfo
from rune.core.messages import CompletionMessage, encode
from rune.core.playbook.identity import step_of
from rune.core.result import final_output
from rune.core.workflow import Workflow

__all__ = ["final_value", "show_message", "show_result"]

_MOST_LINES = 400
"""Lines of a value that a terminal gets."""

_HINTS = {
    "NODE_RAISED": "the node's code raised this",
    "REFERENCE_MISSING": "`| default(…)` and `?.` make a reference that may be missing",
    "CREDENTIAL_MISSING": "see RUNE_CREDENTIALS in the settings",
    "DEAD_LETTER": "the engine could not go on with a message of this execution",
    "WORKER_LOST": "the process died each time it ran this node: it may need more memory, or crash by itself",
    "AGGREGATOR_TIMEOUT": "give the aggregator a longer `timeout`",
    "MERGE_TIMEOUT": "give the merge a longer `timeout`",
    "ITEMS_FAILED": "`on_item_error` and `tolerated_failures` of the split say how many items may fail",
}
_HALT_HINT = (
    'the node\'s `"error": {"type": "ignore"}` would go on without its output, `branch` along its error edge'
)
_STEP_HINT = "an arc of the step with `when: \"{{ event.name == 'step.failed' }}\"` would go on from here"


def show_message(completion: CompletionMessage) -> None:
    """The CompletionMessage as one line on standard output."""
    # Line breaks can only stand between values, never inside a JSON string.
    click.echo(encode(completion).replace(b"\n", b" "))


def show_result(completion: CompletionMessage, flow: Workflow | None, *, quiet: bool) -> Exit:
    """The final value on standard output, everything else on standard error."""
    took = duration(completion.total_duration_ms / 1000)
    if completion.status == "completed":
        if not quiet:
            say(click.style("✔ completed", fg="green", bold=True) + f" in {took}")
        _show_value(final_value(completion.final_context, flow))
        return Exit.OK
    reason = f": {completion.reason}" if completion.reason else ""
    say(click.style(f"✖ {completion.status}", fg="red", bold=True) + f" after {took}{reason}")
    if completion.error is not None:
        _show_error(completion.error, flow)
    return Exit.FAILED


def final_value(context: Mapping[str, msgspec.Raw], flow: Workflow | None) -> Any:
    """What the last nodes that ran gave: the output of one, or those of several by node."""
    if flow is None:
        return {key: msgspec.json.decode(value) for key, value in context.items()}
    return msgspec.json.decode(final_output(context, flow))


def _show_value(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if not sys.stdout.isatty():
        click.echo(text)
        return
    lines = text.split("\n")
    from rich.console import Console
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    shown = Text("\n".join(lines[:_MOST_LINES]), overflow="fold")
    JSONHighlighter().highlight(shown)
    Console().print(shown)
    if len(lines) > _MOST_LINES:
        say(f"… {len(lines) - _MOST_LINES:,} more lines; send the output to a file to have them all")


def _show_error(error: ErrorInfo, flow: Workflow | None) -> None:
    node = flow.nodes.get(error.node or "") if flow is not None else None
    in_step = node is not None and node.type.name.startswith("playbook.")
    name = f" ({node.name})" if node is not None and node.name != node.id and not in_step else ""
    where = f"node '{error.node}'{name}: " if error.node else ""
    if in_step and error.node:
        step = step_of(error.node)
        where = f"step '{step}': " if step else ""
    say(f"  {where}{error.code}: {error.message}")
    for key, value in (error.details or {}).items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        say(f"    {key}: {text if len(text) <= 500 else text[:499] + '…'}")
    hint = _HINTS.get(error.code)
    if hint is None and node is not None and node.error.type == "halt":
        hint = _STEP_HINT if in_step else _HALT_HINT
    if hint:
        say(f"  hint: {hint}")
