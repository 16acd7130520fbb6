"""What is what in a playbook."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.playbook.identity import identity_of, is_playbook, step_of


@pytest.mark.parametrize(
    ("definition", "playbook"),
    [
        ({"apiVersion": "noetl.io/v2", "kind": "Playbook", "workflow": []}, True),
        ({"kind": "Playbook"}, True),
        ({"apiVersion": "noetl.io/v2"}, True),
        ({"workflow": []}, True),
        ({"workflow": "a name", "nodes": []}, False),
        ({"nodes": []}, False),
        ({}, False),
    ],
)
def test_a_playbook_shows_by_its_keys(definition: dict[str, Any], playbook: bool) -> None:
    assert is_playbook(definition) is playbook


def test_nodes_know_their_step() -> None:
    assert [step_of(node) for node in ("loop", "loop~shard", "~verdict")] == ["loop", "loop", ""]


def test_a_shard_without_a_key_is_called_by_its_index() -> None:
    assert identity_of("b", 3, "") == {
        "loop_id": "b",
        "shard_id": "b.3",
        "iter_index": 3,
        "iter_key": "3",
    }
    assert identity_of("b", 3, "k")["iter_key"] == "k"
