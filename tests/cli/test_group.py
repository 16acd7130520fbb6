"""The command itself: help, version, what it imports."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from rune import __version__
from rune.cli import COMMANDS, main

HEAVY = ("asyncio", "msgspec", "rich", "sqlite3", "yaml", "aiohttp", "rune.core", "rune.settings")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, short in COMMANDS.items():
        assert name in shown
        assert short in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_says(name: str) -> None:
    command = import_module(f"rune.cli.{name}").command
    assert command.name == name
    assert command.short_help == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Usage: rune {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rune {__version__}\n"


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No such command 'rnu'" in captured.err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rune.cli import main; main(['--help'])\n"
        f"print('\\n', [name for name in {HEAVY} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1].strip() == "[]"


def test_output_to_a_closed_pipe_is_no_error() -> None:
    code = "import sys; from rune.cli import main; sys.exit(main(['schema']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0
