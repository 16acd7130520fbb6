"""The http node: one request to a web service."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.expressions import to_text
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.workflow import Retry

if TYPE_CHECKING:
    from rune.nodes._http_client import HttpClient, Request, Response

__all__ = ["RETRYABLE", "Http", "signed_headers"]

RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
_EXCERPT = 2000


class Http(NodeType, kw_only=True):
    """Send an HTTP request and give the answer.

    A credential signs the request, by the fields it has: `token` (Bearer), `username` and `password` (Basic),
    `header` and `value`, `headers` (a map), `api_key` (X-API-Key). A header given by hand comes first.
    All methods but GET, HEAD and OPTIONS carry the step's id as `Idempotency-Key`.
    """

    name: ClassVar = "http"
    trusted: ClassVar = True

    url: Annotated[str, Meta(description="Address to call, http:// or https://.", min_length=1)]
    method: Annotated[str, Meta(description="HTTP method.", pattern="^[A-Za-z]+$")] = "GET"
    body: Annotated[Any, Meta(description="Sent as it is if a string, else as JSON.")] = None
    query: Annotated[
        dict[str, Any] | None, Meta(description="Query parameters; an array repeats one, null leaves it out.")
    ] = None
    headers: Annotated[dict[str, Any] | None, Meta(description="Request headers; null leaves one out.")] = (
        None
    )
    retry: Annotated[int, Meta(description="Further attempts after a failure that may pass.", ge=0)] = 0
    retry_delay: Annotated[float, Meta(description="Seconds between attempts.", ge=0)] = 0
    timeout: Annotated[float, Meta(description="Seconds for the whole request.", gt=0)] = 30
    raise_on_status: Annotated[
        str | int, Meta(description="Answers that are failures, such as `4xx,5xx` or `404,500-503`.")
    ] = ""
    ignore_ssl: Annotated[bool, Meta(description="Accept any certificate.")] = False
    follow_redirects: Annotated[bool, Meta(description="Follow up to ten redirects.")] = True

    def __post_init__(self) -> None:
        _statuses(str(self.raise_on_status))

    def retry_policy(self) -> Retry | None:
        return Retry(attempts=self.retry + 1, delay=self.retry_delay) if self.retry else None

    async def run(self, context: StepContext) -> Outcome:
        response, duration = await self._send(context, await context.credential())
        self._judge(response, context.last_attempt)
        return Done(_answer(response, duration))

    async def ask(self, context: StepContext, credential: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to the request, which this credential signs; whether it is a good one is not judged."""
        return _answer(*await self._send(context, credential))

    async def _send(self, context: StepContext, credential: Mapping[str, Any]) -> tuple[Response, int]:
        """The response, and the milliseconds until it was there."""
        client: HttpClient = context.service("http")
        request = self._request(context.key, signed_headers(credential))
        started = time.perf_counter()
        response = await client.fetch(request, self.timeout)
        return response, round((time.perf_counter() - started) * 1000)

    def _request(self, step: str, signed: dict[str, str]) -> Request:
        from rune.nodes._http_client import Request

        method = self.method.upper()
        headers = {**signed, **_request_headers(self.headers or {})}
        if method not in _SAFE:
            headers.setdefault("idempotency-key", step)
        body = None
        if self.body is not None and not (method in _SAFE and self.body in ("", {}, [])):
            body, kind = _encoded(self.body)
            headers.setdefault("content-type", kind)
        return Request(
            method=method,
            url=self.url.strip(),
            query=_query(self.query or {}),
            headers=headers,
            body=body,
            secret=frozenset(signed),
            verify=not self.ignore_ssl,
            follow=self.follow_redirects,
        )

    def _judge(self, response: Response, last_attempt: bool) -> None:
        """Raise if the answer is a failure, or if it may be a better one at the next attempt."""
        status = response.status
        named = any(status in statuses for statuses in _statuses(str(self.raise_on_status)))
        passing = status in RETRYABLE
        if not named and (last_attempt or not passing):
            return
        details: dict[str, Any] = {
            "status": status,
            "body": response.body[:_EXCERPT].decode(errors="replace"),
        }
        after = response.header("retry-after")
        if after is not None and after.strip().isdecimal():
            details["retry_after"] = int(after)
        text = f"the server answered {status} {response.reason}".rstrip()
        if named:
            text += ", which `raise_on_status` calls a failure"
        raise NodeError(text, "HTTP_STATUS", details, retryable=passing)


@lru_cache(maxsize=256)
def _statuses(patterns: str) -> tuple[range, ...]:
    """The statuses that `4xx,5xx`, `404` or `500-503` name; ValueError for anything else."""
    return tuple(_range(p) for p in patterns.lower().replace(" or ", ",").replace(",", " ").split())


def _range(pattern: str) -> range:
    first, dash, last = pattern.partition("-")
    if len(pattern) == 3 and pattern[0] in "12345" and pattern.endswith("xx"):
        return range(int(pattern[0]) * 100, int(pattern[0]) * 100 + 100)
    if first.isdecimal() and (last.isdecimal() or not dash):
        return range(int(first), int(last or first) + 1)
    raise ValueError(f"`raise_on_status`: {pattern!r} is not like `404`, `4xx` or `500-503`")


def signed_headers(credential: Mapping[str, Any]) -> dict[str, str]:
    """The headers that a credential gives, by the fields it has."""
    match credential:
        case {"headers": Mapping() as headers}:
            return _request_headers(headers)
        case {"header": str(name), "value": value} | {"field": str(name), "value": value}:
            return _request_headers({name: value})
        case {"token": token} | {"access_token": token}:
            return _request_headers({"authorization": f"Bearer {token}"})
        case {"username": username, "password": password}:
            from base64 import b64encode

            return {"authorization": f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"}
        case {"api_key": key}:
            return _request_headers({"x-api-key": key})
    if credential:
        raise NodeError(
            "the credential has none of the fields an http node knows: `token`, `username` and `password`, "
            "`header` and `value`, `headers`, or `api_key`",
            "HTTP_CREDENTIAL",
        )
    return {}


def _request_headers(given: Mapping[str, Any]) -> dict[str, str]:
    headers = {}
    for name, value in given.items():
        if value is None:
            continue
        text = to_text(value).strip()
        if not name or not _TOKEN.issuperset(name.lower()):
            raise NodeError(f"{name!r} is not a header's name", "HTTP_HEADER")
        if any(c in text for c in "\r\n\0"):
            raise NodeError(f"the header {name!r} has a line break in its value", "HTTP_HEADER")
        headers[name.lower()] = text
    return headers


def _query(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, to_text(one))
        for name, value in given.items()
        for one in (value if isinstance(value, list) else (value,))
        if one is not None
    )


def _encoded(body: Any) -> tuple[bytes, str]:
    """The body's bytes, and the type they have unless a header says otherwise."""
    if not isinstance(body, str):
        return msgspec.json.encode(body), "application/json"
    data = body.encode()
    if body.lstrip().startswith(("{", "[")) and _json(data) is not None:
        return data, "application/json"
    return data, "text/plain; charset=utf-8"


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _answer(response: Response, duration: int) -> dict[str, Any]:
    return {
        "status": response.status,
        "status_text": response.reason,
        **_body(response),
        "headers": _response_headers(response),
        "duration_ms": duration,
    }


def _body(response: Response) -> dict[str, Any]:
    """The answer's body: JSON parsed, text as text, anything else in base64."""
    data = response.body
    kind, _, parameters = (response.header("content-type") or "").lower().partition(";")
    kind = kind.strip()
    if kind.endswith(("/json", "+json")) or (not kind and data[:1] in (b"{", b"[")):
        value = _json(data)
        if value is not None or data.strip() == b"null":
            return {"body": value}
    text = _text(data, kind, parameters)
    if text is not None:
        return {"body": text}
    from base64 import b64encode

    return {"body": b64encode(data).decode(), "body_encoding": "base64"}


def _text(data: bytes, kind: str, parameters: str) -> str | None:
    charset = parameters.partition("charset=")[2].partition(";")[0].strip().strip("\"'")
    if charset:
        try:
            return data.decode(charset, errors="replace")
        except LookupError:
            pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="replace") if kind.startswith("text/") else None
    return text if "\0" not in text or kind.startswith("text/") else None


def _response_headers(response: Response) -> dict[str, Any]:
    """Headers under one spelling (`Content-Type`), repeated ones joined; several cookies are a list."""
    headers: dict[str, Any] = {}
    for key, value in response.headers:
        name = "-".join(map(str.capitalize, key.split("-")))
        if name not in headers:
            headers[name] = value
        elif name == "Set-Cookie":
            before = headers[name]
            headers[name] = [*(before if isinstance(before, list) else [before]), value]
        else:
            headers[name] = f"{headers[name]}, {value}"
    return headers
