"""The OpenAPI document: what the routes say of themselves, with problem documents for every refusal."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from rune.master.problems import MEDIA_TYPE, ProblemDocument, answers
from rune.master.security.roles import anyone

__all__ = ["describe"]

_ALWAYS = (400, 401, 403, 422, 500, 503)
"""Refusals that any route below /api may answer with."""
_OF_BODIES = (413, 415)
"""Those of routes that take a body."""
_TAGS = (
    ("workflows", "What can be run: definitions, in versions that never change."),
    ("executions", "What runs or ran."),
    ("steps", "One branch at one node, and the items of a split."),
    ("live", "What happens while it happens."),
    ("triggers", "What starts executions by itself: webhooks and schedules."),
    ("credentials", "Secrets that workflows refer to: values go in and never come out."),
    ("accounts", "Who may do what: sessions, accounts and tokens."),
    ("system", "Queues, members, dead letters, timers, health."),
)


def describe(app: FastAPI) -> None:
    """Serve the document at /api/openapi.json, made when it is first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/api/openapi.json", include_in_schema=False, dependencies=[anyone])
    async def document() -> Response:
        return Response(msgspec.json.encode(app.openapi()), media_type="application/json")


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        routes=app.routes,
        tags=[{"name": name, "description": about} for name, about in _TAGS],
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    described = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(described.pop("$defs", {}))
    schemas["ProblemDocument"] = described
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    # Where there are no accounts, none is needed.
    document["security"] = [{}, {"token": []}]
    shared: dict[str, Any] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation, shared)
    document["components"]["responses"] = dict(sorted(shared.items()))
    return document


def _complete(path: str, method: str, operation: dict[str, Any], shared: dict[str, Any]) -> None:
    """Add the refusals that are the same everywhere, and write each kind down only once."""
    responses = operation["responses"]
    if MEDIA_TYPE not in responses.get("422", {}).get("content", {MEDIA_TYPE: None}):
        del responses["422"]
    if path.startswith("/api/"):
        statuses = _ALWAYS + (_OF_BODIES if method != "get" else ())
        for status, refusal in answers(*statuses).items():
            responses.setdefault(str(status), refusal)
    for status, response in responses.items():
        if {int(status): response} == answers(int(status)):
            name = response["description"].replace(" ", "")
            shared[name] = response
            responses[status] = {"$ref": f"#/components/responses/{name}"}
    operation["responses"] = dict(sorted(responses.items()))
