"""What is asked of a webhook and what it answers, apart from how the execution is run."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from rune.master.problems import HttpProblem
from rune.master.triggers.authentication import BasicAuth, is_authentic, secret_headers
from rune.master.triggers.configuration import WebhookConfig
from rune.master.triggers.payload import BadPayload, plain_headers, plain_pairs, read_body

__all__ = ["allowance", "called_with", "check", "is_preflight", "preflight"]

_FIELDS = 1000


def is_preflight(request: Request) -> bool:
    """Whether a browser asks if it may ask."""
    return (
        request.method == "OPTIONS"
        and "origin" in request.headers
        and "access-control-request-method" in request.headers
    )


def allowance(config: WebhookConfig, request: Request) -> dict[str, str]:
    """The headers that let a page of another origin read the answer."""
    if not config.cors:
        return {}
    headers = {"Vary": "Origin"}
    origin = request.headers.get("origin")
    if origin and ("*" in config.cors or origin in config.cors):
        headers["Access-Control-Allow-Origin"] = "*" if "*" in config.cors else origin
    return headers


def preflight(config: WebhookConfig, request: Request) -> dict[str, str]:
    """The headers that answer a browser's question."""
    headers = allowance(config, request)
    if "Access-Control-Allow-Origin" in headers:
        asked = request.headers.get("access-control-request-headers", "")
        asked_for = request.headers["access-control-request-method"][:20]
        methods = [str(method) for method in config.methods] or [asked_for]
        headers["Access-Control-Allow-Methods"] = ", ".join(methods)
        headers["Access-Control-Max-Age"] = "600"
        if asked:
            headers["Access-Control-Allow-Headers"] = asked[:1000]
    return headers


async def check(config: WebhookConfig, secret: str, request: Request, now: float) -> bytes:
    """The body of a call that may be made; HttpProblem for any other."""
    if config.methods and request.method not in config.methods:
        allowed = {"Allow": ", ".join(config.methods)}
        raise HttpProblem(405, "METHOD_NOT_ALLOWED", f"call it with {allowed['Allow']}", headers=allowed)
    body = await _body(request, config.max_body)
    if not is_authentic(config.auth, secret, request.headers, body, now):
        basic = isinstance(config.auth, BasicAuth)
        headers = {"WWW-Authenticate": 'Basic realm="webhook"'} if basic else None
        raise HttpProblem(401, "NOT_AUTHENTIC", "the call is not signed as it should be", headers=headers)
    return body


async def _body(request: Request, most: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise HttpProblem(
                413, "TOO_LARGE", f"the body is longer than {most:,} bytes", headers={"Connection": "close"}
            )
        parts.append(part)
    return b"".join(parts)


def called_with(config: WebhookConfig, request: Request, body: bytes) -> dict[str, Any]:
    """The call as the execution sees it."""
    try:
        content = read_body(body, request.headers.get("content-type", ""))
        query = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=_FIELDS)
    except BadPayload as error:
        raise HttpProblem(400, "BAD_PAYLOAD", str(error)) from None
    except ValueError as error:
        raise HttpProblem(400, "BAD_QUERY", str(error)) from None
    return {
        "method": request.method,
        "path": request.path_params.get("path", ""),
        "headers": plain_headers(request.headers.items(), secret_headers(config.auth)),
        "query": plain_pairs(query),
        "body": content,
    }
