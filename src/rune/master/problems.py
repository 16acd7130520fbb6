"""Errors as problem documents (RFC 9457): every answer that is not what was asked for has this one shape."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rune.core.errors import DefinitionError, InfrastructureError
from rune.core.errors import Problem as Flaw
from rune.history.paging import BadCursor

__all__ = [
    "MEDIA_TYPE",
    "HttpProblem",
    "ProblemDocument",
    "answers",
    "conflict",
    "flaws_as_errors",
    "install",
    "not_found",
    "pointer",
    "problem_response",
]

_log = logging.getLogger("rune.master")

MEDIA_TYPE = "application/problem+json"


class Detail(BaseModel):
    """One thing that is wrong, and where."""

    path: str = Field(description="JSON Pointer to what is wrong; empty for the whole.")
    code: str
    message: str
    hint: str | None = None
    line: int | None = Field(None, description="Line in the source text, from 1.")
    column: int | None = None


class ProblemDocument(BaseModel):
    """Why a request was not carried out (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:rune:problem:not-found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "there is no execution 'exec_42'",
                    "code": "NOT_FOUND",
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[Detail] | None = None


class HttpProblem(HTTPException):
    """A request that is answered with a problem document."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.code = code
        self.errors = errors


def not_found(kind: str, id: object) -> HttpProblem:
    """There is no such thing."""
    return HttpProblem(404, "NOT_FOUND", f"there is no {kind} {str(id)[:200]!r}")


def conflict(code: str, detail: str) -> HttpProblem:
    """What is asked does not fit the state things are in."""
    return HttpProblem(409, code, detail)


def problem_response(
    status: int,
    code: str,
    detail: str,
    errors: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem document."""
    document: dict[str, Any] = {
        "type": f"urn:rune:problem:{code.lower().replace('_', '-')}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if errors:
        document["errors"] = list(errors)
    return Response(msgspec.json.encode(document), status, headers, MEDIA_TYPE)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems a route may answer with, for its description."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        for status in statuses
    }


def pointer(path: Iterable[str | int]) -> str:
    """A path as a JSON Pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def flaws_as_errors(flaws: Iterable[Flaw], prefix: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What is wrong with a workflow, as the entries of a problem document."""
    found = []
    for flaw in flaws:
        entry: dict[str, Any] = {
            "path": pointer((*prefix, *flaw.path)),
            "code": flaw.code,
            "message": flaw.message,
        }
        optional = {"hint": flaw.hint, "line": flaw.line, "column": flaw.column}
        found.append(entry | {key: value for key, value in optional.items() if value is not None})
    return found


# --- handlers ---


def install(app: FastAPI) -> None:
    """Have every error answered with a problem document."""
    app.add_exception_handler(HttpProblem, _known)  # type: ignore[arg-type]
    app.add_exception_handler(StarletteHTTPException, _plain)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    app.add_exception_handler(DefinitionError, _wrong_definition)  # type: ignore[arg-type]
    app.add_exception_handler(BadCursor, _bad_cursor)  # type: ignore[arg-type]
    app.add_exception_handler(InfrastructureError, _out_of_reach)  # type: ignore[arg-type]
    app.add_middleware(_Shield)


async def _known(request: Request, error: HttpProblem) -> Response:
    return problem_response(error.status_code, error.code, error.detail, error.errors, error.headers)


async def _plain(request: Request, error: StarletteHTTPException) -> Response:
    """What the framework itself refuses: unknown paths and methods."""
    status = HTTPStatus(error.status_code)
    details = {
        404: f"there is nothing at {request.url.path[:200]}",
        405: f"{request.method[:20]} is not possible at {request.url.path[:200]}",
    }
    detail = details.get(status, str(error.detail))
    return problem_response(status, status.name, detail, headers=error.headers)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    errors = [_entry(found) for found in error.errors()]
    first = errors[0]
    where = f"{first['path']}: " if first["path"] else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return problem_response(422, "INVALID_REQUEST", f"{where}{first['message']}{more}", errors)


def _entry(found: Mapping[str, Any]) -> dict[str, Any]:
    source, *path = found["loc"]
    # A parameter is named by where it stands, a part of the body by its pointer.
    place = pointer(path) if source == "body" else f"{source}{pointer(path)}"
    return {"path": place, "code": found["type"], "message": found["msg"]}


async def _wrong_definition(request: Request, error: DefinitionError) -> Response:
    errors = flaws_as_errors(error.problems)
    return problem_response(422, "INVALID_WORKFLOW", "the workflow cannot be run", errors)


async def _bad_cursor(request: Request, error: BadCursor) -> Response:
    return problem_response(400, "INVALID_CURSOR", str(error))


async def _out_of_reach(request: Request, error: InfrastructureError) -> Response:
    _log.error("%s %s: %s", request.method, request.url.path, error)
    detail = "a server that is needed for this is out of reach; try again"
    return problem_response(503, "OUT_OF_REACH", detail, headers={"Retry-After": "2"})


class _Shield:
    """Middleware, inside all other, for what nobody expects: it is told in the log, and to nobody else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            _log.error("%s %s: this is a bug", scope["method"], scope["path"], exc_info=error)
            if begun:
                # All that is left is to break the connection off.
                raise
            detail = "something unexpected happened; it is in the log"
            await problem_response(500, "INTERNAL_ERROR", detail)(scope, receive, send)
