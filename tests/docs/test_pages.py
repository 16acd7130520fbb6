"""What the pages tell the reader to type does what they say, and their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOLD = [page for page in PAGES if "```console" in page.read_text()]

_BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_LINK = re.compile(r"\]\((?P<to>[^)#:]+)(?:#[^)]*)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", TOLD, ids=name)
def test_the_commands_of_a_page(page: Path, tmp_path: Path) -> None:
    for block in _BLOCK.finditer(page.read_text()):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
        elif block["kind"] == "console":
            for session in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                command, _, expected = session.partition("\n")
                assert _output(command, tmp_path) == _pattern(expected), command


def _output(command: str, directory: Path) -> str:
    """What a command prints, as the page means it: with the `rune` of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout or done.stderr


class _pattern:  # noqa: N801 - used like a function
    """Text in which a line of `…` stands for any lines."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        lines = self.text.splitlines(keepends=True)
        pattern = "".join("(?:.*\n)*?" if line == "…\n" else re.escape(line) for line in lines)
        return isinstance(other, str) and re.fullmatch(pattern, other) is not None

    def __repr__(self) -> str:
        return self.text

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page(page: Path) -> None:
    for link in _LINK.finditer(page.read_text()):
        assert (page.parent / link["to"]).exists(), f"{link['to']} in {name(page)}"
