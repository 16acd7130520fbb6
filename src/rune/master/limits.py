"""What a request may bring: a body of a certain size, streamed or not, and JSON where JSON is read."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rune.master.problems import HttpProblem, problem_response

__all__ = ["BodyLimit", "JsonRoute"]

_JSON_ONLY = "/api/"


class BodyLimit:
    """Middleware that refuses bodies which are too long, or below /api not JSON, before they are read."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, self._counting(receive), send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._most:
            return problem_response(413, *self._too_long())
        has_body = length not in ("", "0") or "transfer-encoding" in headers
        if has_body and scope["path"].startswith(_JSON_ONLY) and not _is_json(headers.get("content-type")):
            return problem_response(
                415, "UNSUPPORTED_MEDIA_TYPE", "send JSON, with `Content-Type: application/json`"
            )
        return None

    def _too_long(self) -> tuple[str, str]:
        return "TOO_LARGE", f"the body is longer than {self._most:,} bytes"

    def _counting(self, receive: Receive) -> Receive:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                # Nothing more of it will be read, so that the connection is of no further use.
                raise HttpProblem(413, *self._too_long(), headers={"Connection": "close"})
            return message

        return counted


def _is_json(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


class _JsonRequest(Request):
    """A request whose JSON is read strictly: no NaN, no halves of characters, no endless nesting."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            data = await self.body()
            try:
                self._json = msgspec.json.decode(data)
                # What cannot be written again cannot be kept: integers beyond 64 bits.
                msgspec.json.encode(self._json)
            except (ValueError, RecursionError, OverflowError) as error:
                raise HttpProblem(400, "MALFORMED_JSON", f"the body is not JSON: {error}") from None
        return self._json


class JsonRoute(APIRoute):
    """A route of the API: its body is read by `_JsonRequest`."""

    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Any:
            return await handle(_JsonRequest(request.scope, request.receive))

        return strictly
