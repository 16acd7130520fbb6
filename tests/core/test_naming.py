"""Texts that name an item."""

from __future__ import annotations

from rune.core.naming import LONGEST, short_key, short_label


def test_a_short_text_stays_as_it_is() -> None:
    for text in ("", "k1", "x" * LONGEST):
        assert short_label(text) == short_key(text) == text


def test_a_long_label_is_cut() -> None:
    assert short_label("x" * 1000) == "x" * (LONGEST - 1) + "…"


def test_long_keys_stay_apart() -> None:
    keys = [short_key("x" * 1000 + end) for end in ("a", "b", "\ud800")]
    assert len(set(keys)) == 3
    assert all(len(key) == LONGEST and key.startswith("xxx") for key in keys)
    assert short_key("x" * 1000 + "a") == keys[0]
