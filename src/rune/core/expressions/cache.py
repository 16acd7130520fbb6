"""A bounded cache that forgets what was used least recently."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Cache"]


class Cache:
    """A mapping of at most `capacity` entries; functools.lru_cache would cost its import."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Any) -> Any:
        """Return the entry, or None."""
        found = self._entries.pop(key, None)
        if found is not None:
            self._entries[key] = found  # to the end: most recently used
        return found

    def put(self, key: Any, value: Any) -> None:
        """Store the entry, and forget the oldest one when there are too many."""
        self._entries[key] = value
        if len(self._entries) > self.capacity:
            for oldest in list(self._entries)[:1]:  # a copy, because another thread may be here too
                self._entries.pop(oldest, None)
