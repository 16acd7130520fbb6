"""Events as they travel: lines of a server-sent event, or one JSON object over a WebSocket."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["BYE", "HEARTBEAT", "RETRY", "Framing", "frame"]

Framing = Literal["sse", "ws"]

HEARTBEAT = b":\n\n"
RETRY = b"retry: 2000\n\n"
"""Milliseconds after which a browser comes back."""

_encode = msgspec.json.Encoder().encode


def frame(framing: Framing, event: str, id: str, data: Any) -> bytes:
    """One event; its data is JSON, which has no line breaks in it."""
    body = _encode(data)
    if framing == "sse":
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), event.encode(), body)
    return b'{"id":"%b","event":"%b","data":%b}' % (id.encode(), event.encode(), body)


BYE: dict[Framing, bytes] = {
    # Without an id, so that who comes back says how far it really got.
    "sse": b'event: bye\ndata: {"reason":"slow"}\n\n',
    "ws": b'{"id":null,"event":"bye","data":{"reason":"slow"}}',
}
