"""What stands for results that are stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.playbook.references import (
    is_manifest,
    is_result_ref,
    manifest,
    part,
    poses,
    preview,
    result_ref,
    results_in,
    starts_as_reference,
)
from rune.core.references import hashes_in, reference

A, B = "a" * 40, "b" * 40


def test_what_json_names_is_found() -> None:
    ref = result_ref(reference(A), b"[1]", [1])
    whole = {"results": manifest([part(reference(B), b"[2]", 0, 1)], [2]), "other": ref}
    data = msgspec.json.encode(whole)
    assert hashes_in(data) == {A, B}
    assert results_in(data) == {A: 3}, "the parts of a manifest are not results"
    assert results_in(data.replace(b'"meta"', b'"more"')) == {A: 0}, "how large it is, it need not say"
    assert starts_as_reference(msgspec.json.encode(ref))
    assert not starts_as_reference(data)
    assert hashes_in(f'"say rune:{A}"'.encode()) == set(), "only a whole text is a reference"


def test_a_manifest_counts_its_parts() -> None:
    made = manifest([part(reference(A), b"[1,2]", 0, 2), part(reference(B), b"[3]", 2, 1)], [1, 2])
    assert (made["count"], made["bytes"], made["preview"]) == (3, 8, [1, 2])
    assert [one["at"] for one in made["parts"]] == [0, 2]


def test_what_only_looks_like_a_reference_is_none() -> None:
    for parts in (None, [1], [{"at": 0}]):
        assert not is_manifest({"kind": "manifest", "store": "rune", "parts": parts})
    for wrong in (
        "text",
        [],
        {"kind": "result_ref", "store": "rune"},
        {"kind": "result_ref", "ref": "rune:x"},
    ):
        assert not is_result_ref(wrong)
    assert is_manifest(manifest([part(reference(A), b"[1]", 0, 1)], [1]))
    assert is_result_ref(result_ref(reference(A), b"[1]", [1]))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (7, 7),
        (None, None),
        ("short", "short"),
        ("x" * 100, "x" * 80 + "…"),
        (list(range(10)), [0, 1, 2]),
        ({f"k{n}": n for n in range(20)}, {f"k{n}": n for n in range(10)}),
        ({"a": {"b": {"c": {"d": 1}}}}, {"a": {"b": {"c": {}}}}),
        ([[[[1]]]], [[[[]]]]),
    ],
)
def test_a_preview_keeps_the_shape_and_cuts_the_rest(value: Any, shown: Any) -> None:
    assert preview(value) == shown


def test_a_preview_is_short_whatever_it_is_of() -> None:
    value: Any = "x" * 1000
    for _ in range(6):
        value = {f"{n}" * 200: [value] * 50 for n in range(50)}
    assert len(msgspec.json.encode(preview(value))) < 20_000
    posing = {"kind": "result_ref", "store": "rune", "ref": "rune:x", "preview": value}
    assert len(msgspec.json.encode(preview(posing))) < 20_000


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ({"kind": "result_ref", "store": "rune", "ref": "rune:x"}, True),
        ({"kind": "manifest", "store": "rune", "parts": []}, True),
        ({"results": {"kind": "manifest", "store": "rune", "parts": []}, "count": 1}, True),
        ({"results": [], "shared": {"a": {"kind": "result_ref", "store": "rune", "ref": "rune:x"}}}, True),
        ({"results": [], "count": 0, "shared": {"a": 1}}, False),
        ({"results": [{"kind": "result_ref", "store": "rune", "ref": "rune:x"}]}, False),
        ({"results": 1, "shared": 2}, False),
        ({"body": {"kind": "result_ref", "store": "rune", "ref": "rune:x"}}, False),
        ([{"kind": "result_ref", "store": "rune", "ref": "rune:x"}], False),
        (None, False),
    ],
)
def test_only_what_would_be_followed_poses(value: Any, taken: bool) -> None:
    assert poses(value) is taken
