"""How much of the long series of cases is tried: a sample each time, all of it by `make chaos`."""

from __future__ import annotations

import os

from tests.conformance.backends import BACKENDS

__all__ = ["CHAOS", "EXAMPLES", "sample", "share"]

CHAOS = bool(os.environ.get("RUNE_CHAOS"))
"""Whether to try everything, on every backend."""
EXAMPLES = int(os.environ.get("RUNE_SIM_EXAMPLES", "100"))
"""Random cases of each test; `RUNE_SIM_EXAMPLES=20000` is for a night."""

_SHARES = {"memory": 1, "sqlite": 4, "redis": 4, "distributed": 12, "fleet": 12}


def share(backend: str) -> int:
    """Of a series of cases a backend tries one in so many: files and servers take their time."""
    return 1 if CHAOS else _SHARES[backend]


def sample(series: int, backends: tuple[str, ...] | list[str] = BACKENDS) -> list[tuple[str, int]]:
    """For every backend, its share of the numbers of a series; all of them try the first."""
    return [(backend, number) for backend in backends for number in range(0, series, share(backend))]
