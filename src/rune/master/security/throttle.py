"""Guessing passwords, slowed down: by account and by address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any

__all__ = ["Throttle"]

_WINDOW = 900.0
"""Seconds in which a failure counts."""
_BY_ADDRESS = 30
_BY_ACCOUNT = 10
_REMEMBERED = 10_000
"""Accounts and addresses in memory; the oldest are forgotten first."""


class Throttle:
    """Counts attempts before they are made, and takes those back that succeed.

    From an address where an account has logged in lately, only failures from there count against it, so that
    nobody can lock others out by guessing wrong. Each process counts for itself.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._attempts: OrderedDict[str, list[float]] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def attempt(self, name: str, address: str) -> float:
        """Count an attempt to log in; the seconds to wait instead, if there were too many."""
        now = self._clock()
        limits = self._limits(name, _network(address))
        waits = [self._wait(key, most, now) for key, most in limits]
        if max(waits) > 0:
            return max(waits)
        for key, _ in limits:
            self._attempts.setdefault(key, []).append(now)
            self._attempts.move_to_end(key)
        _trim(self._attempts)
        return 0.0

    def succeeded(self, name: str, address: str) -> None:
        """The last attempt was right."""
        network = _network(address)
        for key, _ in self._limits(name, network):
            times = self._attempts.get(key)
            if times:
                times.pop()
        self._known[name, network] = None
        self._known.move_to_end((name, network))
        _trim(self._known)

    def _limits(self, name: str, network: str) -> list[tuple[str, int]]:
        account = f"known {name} {network}" if (name, network) in self._known else f"account {name}"
        return [(f"address {network}", _BY_ADDRESS), (account, _BY_ACCOUNT)]

    def _wait(self, key: str, most: int, now: float) -> float:
        times = [at for at in self._attempts.get(key, ()) if at > now - _WINDOW]
        if not times:
            self._attempts.pop(key, None)
            return 0.0
        self._attempts[key] = times
        return times[-most] + _WINDOW - now if len(times) >= most else 0.0


def _trim(remembered: OrderedDict[Any, Any]) -> None:
    while len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)


def _network(address: str) -> str:
    """Whoever has one IPv6 address has a whole network of them."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(int(parsed) >> 64) if isinstance(parsed, IPv6Address) else address
