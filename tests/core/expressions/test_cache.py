"""The cache forgets what was used least recently."""

from __future__ import annotations

from rune.core.expressions.cache import Cache


def test_the_oldest_goes_first_unless_it_was_used() -> None:
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)
