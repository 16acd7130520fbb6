"""What `import rune` gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rune


def test_all_is_exact() -> None:
    assert rune.__all__ == sorted(rune.__all__, key=lambda name: (name.islower(), name))
    for name in rune.__all__:
        assert getattr(rune, name) is not None
    assert set(rune.__all__) <= set(dir(rune))


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nod'"):
        rune.nod  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import rune; print(sorted(set(sys.modules) - before))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "['rune']"


def test_python_m_rune_is_the_command() -> None:
    command = [sys.executable, "-m", "rune", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout == f"rune {rune.__version__}\n"
