"""Files by key: whatever is wrong with a key or a file is told, and nothing half-written is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rune.core.errors import NodeError
from rune.nodes._artifacts import Artifacts


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    made = Artifacts(tmp_path)
    made.put("folder/file", b"1")
    return made


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("missing", "ARTIFACT_MISSING"),
        ("folder", "ARTIFACT_UNREADABLE"),
        ("folder/file/inside", "ARTIFACT_UNREADABLE"),
        ("x" * 300, "ARTIFACT_UNREADABLE"),
        ("../outside", "ARTIFACT_KEY"),
        ("a\0b", "ARTIFACT_KEY"),
        ("\ud800", "ARTIFACT_KEY"),
    ],
)
def test_what_cannot_be_read_is_told(artifacts: Artifacts, key: str, code: str) -> None:
    with pytest.raises(NodeError) as raised:
        artifacts.get(key)
    assert raised.value.code == code


def test_a_link_that_is_put_there_in_the_last_moment_is_not_followed(
    artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, opening = tmp_path / "folder/file", os.open

    def swapped(path: Path, flags: int) -> int:
        file.unlink()
        file.symlink_to("/etc/hostname")
        return opening(path, flags)

    for read in (artifacts.get, artifacts.open):
        file.unlink()
        file.touch()
        monkeypatch.setattr(os, "open", swapped)
        with pytest.raises(NodeError) as raised:
            read("folder/file")
        monkeypatch.undo()
        assert raised.value.code == "ARTIFACT_UNREADABLE"


@pytest.mark.parametrize("key", ["folder", "folder/file/inside", "x" * 300])
def test_what_cannot_be_written_is_told_and_leaves_nothing(
    artifacts: Artifacts, key: str, tmp_path: Path
) -> None:
    before = set(tmp_path.rglob("*"))
    with pytest.raises(NodeError) as raised:
        artifacts.put(key, b"2")
    assert raised.value.code == "ARTIFACT_UNWRITABLE"
    assert set(tmp_path.rglob("*")) == before
    assert artifacts.get("folder/file") == b"1"
