"""Draw docs/images/demo.svg: what `make demo` shows, taken from a real run of the example."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.highlighter import JSONHighlighter
from rich.text import Text

from rune.cli.progress import draw
from rune.cli.result import final_value
from rune.cli.tally import Tally
from rune.cli.types import node_types
from rune.cli.view import duration
from rune.core.messages import CompletionMessage
from rune.core.workflow import Workflow
from rune.embedded import Embedded
from rune.formats.graph import load_workflow
from rune.settings import load_settings

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples/orders.json"
PICTURE = ROOT / "docs/images/demo.svg"
MOMENT = 2.6
"""Seconds into the run at which the tree is drawn: some users are done, some orders wait."""
WIDTH = 92


async def _run(flow: Workflow, database: str) -> tuple[RenderableType, CompletionMessage]:
    settings = load_settings()
    async with Embedded.open(settings, node_types(settings), database) as rune:
        tally = Tally(rune.flows.get)
        tally.add(flow)
        rune.listen(tally.hear)
        execution = await rune.start(flow)
        await asyncio.sleep(MOMENT)
        tree = draw(list(tally), time.time())
        return tree, await rune.result(execution)


def _picture(flow: Workflow, tree: RenderableType, completion: CompletionMessage) -> str:
    took = duration(completion.total_duration_ms / 1000)
    value = final_value(completion.final_context, flow)
    json = msgspec.json.format(msgspec.json.encode(value), indent=2).decode().split("\n")
    shown = JSONHighlighter()("\n".join([*json[:9], "    …", *json[-2:]]))
    console = Console(
        record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    console.print(
        Group(
            Text("$ make demo", "bold"),
            tree,
            Text("⋮", "dim"),
            Text.assemble(("✔ completed", "bold green"), f" in {took}"),
            shown,
        )
    )
    svg = console.export_svg(title="rune run examples/orders.json", unique_id="demo")
    # Nothing is fetched from elsewhere: a reader's own monospace font will do.
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def main() -> None:
    """Run the example, and draw it."""
    flow = load_workflow(EXAMPLE, node_types(load_settings()))
    with tempfile.TemporaryDirectory() as directory:
        tree, completion = asyncio.run(_run(flow, str(Path(directory) / "demo.db")))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(_picture(flow, tree, completion))
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
