"""Headers that every answer carries: what browsers must not do with it."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["SecurityHeaders"]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_PRIVATE = ("/api/", "/login", "/setup", "/metrics")
"""Answers below these are for whoever asked, now."""


class SecurityHeaders:
    """Middleware that adds the headers; a route's own Content-Security-Policy stands."""

    def __init__(self, app: ASGIApp, https: bool = False) -> None:
        self._app = app
        self._https = https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add(scope, MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, sending)

    def _add(self, scope: Scope, headers: MutableHeaders) -> None:
        for name, value in _ALWAYS.items():
            headers[name] = value
        headers.setdefault("Content-Security-Policy", POLICY)
        if scope["path"].startswith(_PRIVATE):
            headers.setdefault("Cache-Control", "no-store")
        if self._https or scope["scheme"] == "https":
            headers["Strict-Transport-Security"] = "max-age=31536000"
