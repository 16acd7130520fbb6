"""Which node types a process knows, and when it looks for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rune
from rune.cli import types
from rune.cli.types import Types, node_types
from rune.core.errors import DefinitionError
from rune.core.node import NodeType
from rune.core.registry import node_types_of
from rune.nodes import load_builtin
from rune.settings import Settings


@rune.node("installed")
def installed() -> None:
    """A type of an installed package."""


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was looked through: one entry each time."""
    seen: list[str] = []

    def entry_points() -> list[type[NodeType]]:
        seen.append("packages")
        return node_types_of(installed)

    monkeypatch.setattr(types, "load_entry_points", entry_points)
    return seen


def test_packages_are_looked_through_only_for_what_is_unknown(looked: list[str]) -> None:
    known = node_types(Settings())
    assert known.get("log") is not None
    assert known.get("installed") is not None
    assert known.get("nothing") is None
    assert looked == ["packages"]


def test_a_type_found_by_its_module_is_the_same_one(looked: list[str]) -> None:
    known = Types()
    for type in load_builtin():
        assert known.get(type.name) is type


def test_every_name_is_listed(looked: list[str]) -> None:
    assert set(Types().names()) == {type.name for type in load_builtin()} | {"installed"}


@pytest.mark.parametrize("name", ["_time", "__init__", "no.such", "os", ""])
def test_what_is_no_type(looked: list[str], name: str) -> None:
    assert Types().get(name) is None


def test_the_name_of_one_of_runes_own_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, looked: list[str]
) -> None:
    (tmp_path / "taken_name.py").write_text("import rune\n@rune.node('log')\ndef mine() -> None: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(DefinitionError, match="two node types are called 'log'"):
        node_types(Settings(modules=("taken_name",)))
