"""Names of stored values, and the values that values name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from rune.core.errors import NodeError
from rune.core.references import follow, hash_of, hashes_in, reference

A, B, C = "a" * 40, "b" * 40, "c" * 40


def test_a_reference_names_the_hash_of_a_value() -> None:
    assert hash_of(reference(A)) == A
    for wrong in ("", A, "rune:", f"rune:{A}0", f"s3:{A}", "rune:rune:" + A):
        with pytest.raises(NodeError, match="no reference"):
            hash_of(wrong)


def naming(*hashes: str) -> bytes:
    """A value that names others."""
    return msgspec.json.encode([reference(hash) for hash in hashes])


async def reached(values: Mapping[str, bytes], *hashes: str) -> list[Sequence[str]]:
    """What is asked for, step by step."""

    async def get(wanted: Sequence[str]) -> dict[str, bytes]:
        return {hash: values[hash] for hash in wanted if hash in values}

    return [wanted async for wanted, _ in follow(hashes, get)]


def test_only_whole_references_are_found() -> None:
    assert hashes_in(naming(A, B)) == {A, B}
    assert hashes_in(f'["see {reference(A)}", "{A}"]'.encode()) == set()


async def test_each_value_is_read_once_however_often_it_is_named() -> None:
    values = {A: naming(B, C), B: naming(A, C), C: b"1"}
    assert sorted(hash for some in await reached(values, A) for hash in some) == [A, B, C]


async def test_a_value_that_is_gone_leads_nowhere() -> None:
    assert await reached({A: naming(B)}, A) == [[A], [B]]


async def test_small_values_are_read_together_and_large_ones_one_by_one() -> None:
    names = [f"{i:040x}" for i in range(40)]
    small = await reached(dict.fromkeys(names, b"1"), *names)
    assert [len(some) for some in small] == [1, 16, 16, 7]
    large = await reached(dict.fromkeys(names[:5], b"x" * 8_000_000), *names[:5])
    assert [len(some) for some in large] == [1] * 5
