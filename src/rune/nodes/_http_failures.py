"""What can go wrong with a request, as users see it."""

from __future__ import annotations

import os
import socket
import ssl

import aiohttp

from rune.core.errors import NodeError
from rune.nodes._http_request import Request, title

__all__ = ["failure"]


def failure(error: Exception, request: Request) -> NodeError:
    """A failure of the transport, as users see it; the client's own messages may hold secrets of a URL."""
    causes = _causes(error)
    called = title(request)
    if isinstance(error, aiohttp.InvalidURL):
        return NodeError(f"{called}: not a URL that can be called", "HTTP_URL")
    if isinstance(error, ValueError) and not isinstance(error, OSError | aiohttp.ClientError):
        return NodeError(f"{called} cannot be sent: {error}", "HTTP_REQUEST")
    if tls := next((c for c in reversed(causes) if isinstance(c, ssl.SSLError)), None):
        reason = getattr(tls, "verify_message", "") or tls.reason or str(tls)
        hint = "correct the server's certificate, or set `ignore_ssl` where that is safe"
        return NodeError(f"{called}: no safe connection: {reason}; {hint}", "HTTP_TLS")
    if any(isinstance(c, socket.gaierror) for c in causes):
        message = f"{called}: the host name cannot be resolved; see if it is spelled right"
    else:
        message = f"{called}: {_reason(causes)}; see if the server runs and can be reached from here"
    return NodeError(message, "HTTP_CONNECTION", retryable=True)


def _reason(causes: list[BaseException]) -> str:
    """The most exact of several messages: what the system said, else what the client met."""
    for cause in reversed(causes):
        match cause:
            case aiohttp.ClientHttpProxyError():
                return f"the proxy answered {cause.status}"
            case aiohttp.ClientResponseError():
                return f"the answer is not HTTP: {cause.message.partition(':')[0].lower()}"
            case aiohttp.ServerDisconnectedError():
                return "the server hung up"
            case aiohttp.ClientPayloadError():
                return "the answer broke off"
            case OSError(errno=int(number)):
                return os.strerror(number).lower()
    return "the connection broke"


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        if isinstance(error, BaseExceptionGroup):
            found.extend(error.exceptions)
        error = error.__cause__ or error.__context__
    return found
