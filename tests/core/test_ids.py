"""Ids that a redelivered task derives again, and ids that nobody had before."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rune.core.ids import content_hash, derive, new_execution_id

parts = st.lists(st.text("abc-_019", min_size=1), min_size=1, max_size=4)


@given(parts, parts)
def test_the_same_parts_and_only_those_give_the_same_id(one: list[str], other: list[str]) -> None:
    assert (derive(*one) == derive(*other)) == (one == other)


def test_ids_stay_what_they_were() -> None:
    """Messages of an older Rune are still under way."""
    assert derive("exec_1", "start") == "5337a1f29bdba83a44739c9d"
    assert content_hash(b"{}") == "a22cbfd1a6f7d67d65014b57b47a96408c8f58b5"


@given(st.binary(), st.binary())
def test_the_same_bytes_and_only_those_have_the_same_address(one: bytes, other: bytes) -> None:
    assert (content_hash(one) == content_hash(other)) == (one == other)


def test_execution_ids_are_new_and_may_stand_in_messages() -> None:
    ids = {new_execution_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"exec_[a-zA-Z0-9_-]+", id) for id in ids)
