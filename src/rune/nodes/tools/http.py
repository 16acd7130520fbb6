"""The http tool: the http node, with the names and the outcome of playbooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.playbook.tool import Tool, ToolContext, ToolError
from rune.nodes.http import Http

__all__ = ["HttpTool"]

_RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_KINDS = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}


class HttpTool(Tool, kw_only=True):
    """Send a request; an answer other than 2xx is an error that keeps its status and its body."""

    name: ClassVar = "tool.http"

    url: Annotated[str | None, Meta(description="Address to call.")] = None
    endpoint: Annotated[str | None, Meta(description="The same, as older playbooks call it.")] = None
    method: Annotated[str, Meta(description="HTTP method.", pattern="^[A-Za-z]+$")] = "GET"
    params: Annotated[dict[str, Any] | None, Meta(description="Query parameters.")] = None
    headers: Annotated[dict[str, Any] | None, Meta(description="Request headers.")] = None
    data: Annotated[Any, Meta(description="The body: text as it is, anything else as JSON.")] = None
    payload: Annotated[Any, Meta(description="The same, as older playbooks call it.")] = None
    auth: Annotated[str | None, Meta(description="The credential that signs the request.")] = None
    timeout: Annotated[float, Meta(description="Seconds for the whole request.", gt=0)] = 30
    follow_redirects: Annotated[bool, Meta(description="Follow up to ten redirects.")] = True
    ignore_ssl: Annotated[bool, Meta(description="Accept any certificate.")] = False

    def __post_init__(self) -> None:
        if not (self.url or self.endpoint):
            raise ValueError("`url` is missing")

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        url = self.url or self.endpoint or ""
        request = Http(
            url=url,
            method=self.method,
            query=self.params,
            headers=self.headers,
            body=self.data if self.data is not None else self.payload,
            timeout=self.timeout,
            follow_redirects=self.follow_redirects,
            ignore_ssl=self.ignore_ssl,
        )
        try:
            credential = await context.credential(self.auth) if self.auth else {}
            answer = await request.ask(context, credential)
        except NodeError as error:
            kind = "timeout" if "TIMEOUT" in error.code else "network"
            helpers: dict[str, Any] = {"http": {"status": None, "headers": {}}}
            raise ToolError(
                error.message,
                error.code,
                kind=kind,
                retryable=error.retryable,
                details=error.details,
                helpers=helpers,
            ) from error
        return _outcome(url, answer)


def _outcome(url: str, answer: dict[str, Any]) -> Mapping[str, Any]:
    status = answer["status"]
    http = {"status": status, "headers": answer["headers"]}
    result = {
        "status_code": status,
        "headers": answer["headers"],
        "url": url,
        "elapsed": answer["duration_ms"] / 1000,
        "data": answer.get("body"),
    }
    if 200 <= status < 300:
        return {"result": result, "http": http}
    details: dict[str, Any] = {"status": status, "body": answer.get("body")}
    after = {name.lower(): value for name, value in answer["headers"].items()}.get("retry-after")
    if after is not None:
        details["retry_after"] = after
    raise ToolError(
        f"the server answered {status} {answer['status_text']}".rstrip(),
        f"HTTP_{status}",
        kind=_KINDS.get(status, "server_error" if status >= 500 else "client_error"),
        retryable=status in _RETRYABLE,
        details=details,
        helpers={"http": http},
    )
