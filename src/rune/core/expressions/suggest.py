"""Did you mean: the nearest of the known words."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["suggest"]

_MOST_CANDIDATES = 1000
_LONGEST_WORD = 80


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that the word was probably meant to be, if there is one."""
    if len(word) > _LONGEST_WORD:
        return None
    known: dict[str, str] = {}
    for candidate in candidates:
        if len(known) >= _MOST_CANDIDATES:
            break
        if len(candidate) <= _LONGEST_WORD and candidate != word:
            known.setdefault(_plain(candidate), candidate)
    plain = _plain(word)
    if plain in known:
        return known[plain]
    from difflib import get_close_matches  # only a mistake pays for its import

    near = get_close_matches(plain, known, n=1, cutoff=0.6)
    return known[near[0]] if near else None


def _plain(word: str) -> str:
    """Fold what people mix up: case, the dollar sign, dashes and underscores."""
    return word.lower().lstrip("$").replace("-", "").replace("_", "")
