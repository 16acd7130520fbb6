"""What happens while it happens: streams of one execution, and of the list."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response, WebSocket
from starlette.requests import HTTPConnection

from rune.master.live.framing import Framing
from rune.master.live.hub import TooMany, Watch
from rune.master.live.listing import ListWatch
from rune.master.live.streaming import EventStream, MayWatch, converse
from rune.master.live.view import Scopes
from rune.master.problems import HttpProblem, answers, not_found
from rune.master.schemas import ExecutionId
from rune.master.security.auditing import address_of
from rune.master.security.gate import Gate
from rune.master.security.roles import Principal, Role, needs
from rune.master.service import Master

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["live"])

_SCOPES = 16
"""Splits that one viewer may look at, at the same time."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,200}")

_STREAM: dict[str, Any] = {
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
    "description": "`snapshot`, then `change` at most ten times a second, `end`; `bye`: come back.",
}
Viewer = Annotated[Principal, needs(Role.VIEWER)]


@router.get(
    "/executions/{id}/live",
    response_class=Response,
    responses={200: _STREAM, **answers(404, 429)},
)
async def watch_execution(
    request: Request,
    id: ExecutionId,
    who: Viewer,
    scope: Annotated[
        list[Annotated[str, Query(pattern=r"^[a-zA-Z0-9_-]{1,200}$")]] | None,
        Query(max_length=_SCOPES, description="Barriers of splits whose items are wanted, too."),
    ] = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> Response:
    """An execution as server-sent events: how it stands, then what changes; outputs never."""
    await _known(request, id)
    last = int(last_event_id) if last_event_id and re.fullmatch(r"[0-9]{1,18}", last_event_id) else None
    return EventStream(
        _watched(request, who, id, frozenset(scope or ()), "sse", last), _may_watch(request, who)
    )


@router.websocket("/executions/{id}/live/ws")
async def talk_of_execution(socket: WebSocket, id: ExecutionId, who: Viewer) -> None:
    """The same events over a WebSocket; `{"scopes": [barrier, …]}` says at which splits to look."""
    await _known(socket, id)
    try:
        scopes = _scopes(socket.query_params.getlist("scope"))
    except ValueError as error:
        raise HttpProblem(422, "INVALID_REQUEST", str(error)) from None
    async with _watched(socket, who, id, scopes, "ws", None) as watch:
        await socket.accept()
        await converse(socket, watch, _may_watch(socket, who), lambda message: watch.look_at(_asked(message)))


@router.get("/live", response_class=Response, responses={200: _STREAM, **answers(429)})
async def watch_executions(request: Request, who: Viewer) -> Response:
    """The newest executions as server-sent events, those that run, and those that have just ended."""
    return EventStream(_listed(request, who), _may_watch(request, who))


@asynccontextmanager
async def _watched(
    connection: HTTPConnection, who: Principal, id: str, scopes: Scopes, framing: Framing, last: int | None
) -> AsyncIterator[Watch]:
    hub = _master(connection).live
    with _seat(connection, who):
        async with hub.watch(id, scopes, framing, last) as watch:
            yield watch


@asynccontextmanager
async def _listed(connection: HTTPConnection, who: Principal) -> AsyncIterator[ListWatch]:
    with _seat(connection, who):
        async with _master(connection).listing.watch() as watch:
            yield watch


@contextmanager
def _seat(connection: HTTPConnection, who: Principal) -> Iterator[None]:
    try:
        with _master(connection).live.seat(who.id or address_of(connection)):
            yield
    except TooMany:
        detail = "you have as many streams open as anybody may; close one"
        raise HttpProblem(429, "TOO_MANY_STREAMS", detail, headers={"Retry-After": "5"}) from None


def _may_watch(connection: HTTPConnection, who: Principal) -> MayWatch:
    gate: Gate = connection.app.state.gate
    return partial(gate.still_knows, who)


async def _known(connection: HTTPConnection, id: str) -> None:
    if not await _master(connection).history.changes.knows(id):
        raise not_found("execution", id)


def _asked(message: Any) -> Scopes:
    match message:
        case {"scopes": [*scopes]}:
            return _scopes(scopes)
    raise ValueError('say {"scopes": ["…"]}')


def _scopes(given: list[Any]) -> Scopes:
    if len(given) > _SCOPES:
        raise ValueError(f"at most {_SCOPES} scopes")
    if not all(isinstance(scope, str) and _ID.fullmatch(scope) for scope in given):
        raise ValueError("a scope is a barrier's id")
    return frozenset(given)


def _master(connection: HTTPConnection) -> Master:
    master: Master = connection.app.state.master
    return master
