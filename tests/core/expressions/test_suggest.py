"""Did you mean."""

from __future__ import annotations

import pytest

from rune.core.expressions import suggest


@pytest.mark.parametrize(
    ("word", "candidates", "expected"),
    [
        ("bdy", ["headers", "body", "status"], "body"),
        ("Body", ["headers", "body"], "body"),
        ("fetch", ["$fetch", "$other"], "$fetch"),
        ("user-id", ["user_id", "user"], "user_id"),
        ("xyz", ["body", "status"], None),
        ("body", ["body"], None),
        ("a", [], None),
        ("x" * 500, ["x" * 499], None),
        ("bdy", ["y" * 500, "body"], "body"),
    ],
)
def test_suggest(word: str, candidates: list[str], expected: str | None) -> None:
    assert suggest(word, candidates) == expected


def test_it_looks_at_the_first_thousand_only() -> None:
    assert suggest("needle", [f"hay{n}" for n in range(5000)] + ["needles"]) is None
