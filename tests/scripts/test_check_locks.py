"""The lock check names each way in which a lock can be stale."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
check: Callable[[Path], list[str]] = runpy.run_path(str(ROOT / "scripts/check_locks.py"))["check"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of this repository's pyproject.toml and locks, to spoil."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_the_committed_locks_agree() -> None:
    assert check(ROOT) == []


def test_a_new_dependency_is_missing_from_both_locks(copy: Path) -> None:
    edit(copy / "pyproject.toml", "dependencies = [\n", 'dependencies = [\n    "left-pad>=1",\n')
    assert check(copy) == ["runtime.lock: left-pad is missing", "dev.lock: left-pad is missing"]


def test_a_new_dev_dependency_is_missing_from_the_dev_lock(copy: Path) -> None:
    edit(copy / "pyproject.toml", "dev = [\n", 'dev = [\n    "left-pad>=1",\n')
    assert check(copy) == ["dev.lock: left-pad is missing"]


def test_a_dropped_dependency_is_noticed(copy: Path) -> None:
    edit(copy / "pyproject.toml", '    "rich>=', '    # "rich>=')
    assert "runtime.lock: rich is no longer asked for" in check(copy)
    assert "dev.lock: rich is no longer asked for" in check(copy)


def test_a_raised_bound_is_noticed(copy: Path) -> None:
    edit(copy / "pyproject.toml", '"ruff>=', '"ruff>=999.')
    (problem,) = check(copy)
    assert problem.startswith("dev.lock: ruff==")
    assert "does not satisfy 'ruff>=999." in problem


def test_locks_with_different_versions_are_noticed(copy: Path) -> None:
    edit(copy / "requirements/runtime.lock", "mdurl==", "mdurl==999.")
    (problem,) = check(copy)
    assert problem.startswith("dev.lock: mdurl is not 999.")


def test_a_host_in_a_lock_is_refused(copy: Path) -> None:
    lock = copy / "requirements/dev.lock"
    lock.write_text("--index-url https://packages.example/simple\n" + lock.read_text())
    assert check(copy) == ["dev.lock: it names a host; a lock holds names, versions and hashes only"]


def test_a_pin_without_a_hash_is_refused(copy: Path) -> None:
    lock = copy / "requirements/runtime.lock"
    lock.write_text(lock.read_text() + "zzz==1.0\n")
    assert "runtime.lock: zzz has no hash" in check(copy)
