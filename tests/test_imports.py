"""What importing Rune costs: nothing that is not used."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {
    "aiohttp",
    "aiosmtplib",
    "asyncio",
    "concurrent.futures",
    "email",
    "importlib.metadata",
    "logging",
    "msgspec",
    "regex",
    "rich",
    "socket",
    "sqlite3",
    "ssl",
    "yaml",
}
IO = {"aiohttp", "asyncio", "click", "rich", "selectors", "socket", "sqlite3", "ssl", "subprocess", "yaml"}


def output(code: str) -> list[str]:
    """The words that this code prints, in a Python of its own."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def imported(code: str) -> set[str]:
    """The modules that this code brings in, beyond those a bare Python has."""
    lines = ["import sys", "before = set(sys.modules)", code, "print(*set(sys.modules) - before)"]
    return set(output("\n".join(lines)))


def test_import_rune_brings_in_nothing_else() -> None:
    assert imported("import rune") == {"rune"}


def test_what_a_node_is_written_with_does_no_io() -> None:
    brought = imported("from rune import Done, Expression, NodeType, node")
    assert "rune.core.registry" in brought
    assert brought & IO == set()


def test_the_command_line_brings_in_nothing_heavy() -> None:
    brought = imported("import rune.cli") - imported("import click")
    assert brought & HEAVY == set()
    assert {name for name in brought if name.startswith("rune.")} == {"rune.cli"}


def test_help_brings_in_nothing_heavy() -> None:
    show = "import io, sys; out, sys.stdout = sys.stdout, io.StringIO()"
    brought = imported(f"{show}\nfrom rune.cli import main\nmain(['--help'])\nsys.stdout = out")
    assert "rune.cli" in brought
    assert brought & (HEAVY - imported("import click")) == set()


def test_the_core_does_no_io() -> None:
    walk = "pkgutil.walk_packages(rune.core.__path__, 'rune.core.')"
    names = output(f"import pkgutil, rune.core; print(*(module.name for module in {walk}))")
    assert "rune.core.plan" in names
    allowed = imported("import msgspec, regex, zoneinfo")
    assert (imported(f"import {', '.join(names)}") - allowed) & IO == set()
