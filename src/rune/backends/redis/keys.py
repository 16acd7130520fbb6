"""The names of Redis's keys. Those of one execution, and those of all together, are in one slot each."""

from __future__ import annotations

__all__ = ["CHANNEL", "CLAIMED", "DUE", "ENDED", "ENDINGS", "EPOCH", "LIVE", "MEMBERS", "PAUSED", "of"]

DUE = "{rune}:due"
CLAIMED = "{rune}:claimed"
CHANNEL = "{rune}:armed"
EPOCH = "{rune}:epoch"
LIVE = "{rune}:live"
PAUSED = "{rune}:paused"
ENDED = "{rune}:ended"
ENDINGS = "{rune}:endings"
MEMBERS = "{rune}:members"


def of(execution: str, key: str = "x") -> str:
    """One of an execution's keys; `lua/rows.lua` says what there is."""
    return f"exec:{{{execution}}}:{key}"
