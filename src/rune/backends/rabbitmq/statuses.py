"""Statuses: one JSON object a message, or arrays of those that come within a few milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from rune.backends.rabbitmq.channel import Message
from rune.backends.rabbitmq.publishing import Sender
from rune.backends.rabbitmq.topology import STATUS
from rune.core.messages import NodeStatusMessage, encode

__all__ = ["Statuses", "decode_statuses"]

_LARGEST = 48_000
"""Bytes an array may have, if it is not a single status."""

_decode = msgspec.json.Decoder(NodeStatusMessage | list[NodeStatusMessage]).decode


def decode_statuses(body: bytes) -> list[NodeStatusMessage]:
    """The statuses in a message; msgspec.MsgspecError says what is wrong with it."""
    found = _decode(body)
    return found if isinstance(found, list) else [found]


class Statuses:
    """Sends statuses; with a `rest` in seconds, those that come within it travel together."""

    def __init__(self, sender: Sender, rest: float) -> None:
        self._sender = sender
        self._rest = rest
        self._waiting: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        """Send these."""
        bodies = [encode(status) for status in statuses]
        if not self._rest:
            for body in bodies:
                self._send(body)
            return
        self._waiting += bodies
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._rest, self.flush)

    def flush(self) -> None:
        """Send what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch: list[bytes] = []
        size = 0
        for body in self._waiting:
            if batch and size + len(body) > _LARGEST:
                self._send(b"[%b]" % b",".join(batch))
                batch, size = [], 0
            batch.append(body)
            size += len(body) + 1
        if batch:
            self._send(b"[%b]" % b",".join(batch))
        self._waiting = []

    def _send(self, body: bytes) -> None:
        self._sender.send(Message(STATUS, STATUS, body, persistent=False, mandatory=False))
