"""What holds the whole together: queues, members, dead letters, timers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request, Response
from msgspec import Raw
from pydantic import BaseModel

from rune import __version__
from rune.core.errors import MessageError
from rune.core.messages import decode_task
from rune.master.answering import answer, iso, listed
from rune.master.limits import JsonRoute
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import answers, conflict, not_found
from rune.master.runtime import DeadLetter, Timer
from rune.master.schemas import Moment, Page
from rune.master.security.auditing import audit
from rune.master.security.roles import Role, needs
from rune.master.service import Master

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["system"], route_class=JsonRoute)

LetterId = Annotated[str, Path(max_length=200, pattern=r"^[A-Za-z0-9_:.-]+$")]


class About(BaseModel):
    """Which Rune this is."""

    version: str
    runtime: str
    history: str
    started_at: Moment


class Queue(BaseModel):
    """A queue of messages."""

    name: str
    ready: int
    consumers: int


class MemberShape(BaseModel):
    """A process that takes part."""

    id: str
    role: str
    host: str
    pid: int
    since: Moment | None
    seen: Moment | None
    version: str
    concurrency: int
    running: int
    queues: list[str]


class Letter(BaseModel):
    """A message that nobody could work on."""

    id: str
    reason: str
    node: str
    execution: str
    attempt: int
    at: Moment | None


class LetterDetail(Letter):
    """A dead letter with what it says."""

    body: Any


class TimerShape(BaseModel):
    """Something that is to happen at a time."""

    execution: str
    timer: str
    node: str
    due: Moment | None


@router.get("/system", response_model=About, dependencies=[needs(Role.VIEWER)])
async def about(request: Request) -> Response:
    """Which Rune this is, and what it runs on."""
    master: Master = request.app.state.master
    return answer(
        {
            "version": __version__,
            "runtime": type(master.runtime).__name__.lower(),
            "history": master.history.database.dialect,
            "started_at": iso(master.started_at),
        }
    )


@router.get("/queues", response_model=Page[Queue], dependencies=[needs(Role.VIEWER)])
async def list_queues(request: Request) -> Response:
    """The queues, and what waits in them."""
    return listed(await request.app.state.master.runtime.queues(), None)


@router.get("/members", response_model=Page[MemberShape], dependencies=[needs(Role.VIEWER)])
async def list_members(request: Request) -> Response:
    """The workers and schedulers that are there."""
    found = await request.app.state.master.runtime.members()
    items = [
        {**msgspec.structs.asdict(member), "since": iso(member.since), "seen": iso(member.seen)}
        for member in found
    ]
    return listed(items, None)


@router.get("/timers", response_model=Page[TimerShape], dependencies=[needs(Role.VIEWER)])
async def list_timers(request: Request, limit: Limit = DEFAULT_LIMIT) -> Response:
    """The timers that are due next."""
    return listed(map(_timer, await request.app.state.master.runtime.timers(limit)), None)


def _timer(timer: Timer) -> dict[str, Any]:
    try:
        node = decode_task(timer.task).current_node
    except MessageError:
        node = ""
    return {"execution": timer.execution, "timer": timer.id, "node": node, "due": iso(timer.due)}


# --- dead letters ---


@router.get("/letters", response_model=Page[Letter], dependencies=[needs(Role.VIEWER)])
async def list_letters(request: Request, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Response:
    """Dead letters, the oldest first."""
    behind = unsealed("letters", after) or ""
    found = await request.app.state.master.runtime.letters(behind, limit + 1)
    more = found[limit - 1].id if len(found) > limit else None
    return listed(map(_letter, found[:limit]), sealed("letters", more))


@router.get(
    "/letters/{id}", response_model=LetterDetail, dependencies=[needs(Role.VIEWER)], responses=answers(404)
)
async def read_letter(request: Request, id: LetterId) -> Response:
    """One dead letter, and why it is one."""
    letter = await request.app.state.master.runtime.letter(id)
    if letter is None:
        raise not_found("dead letter", id)
    return answer({**_letter(letter), "body": _body(letter.body)})


@router.post(
    "/letters/{id}/redrive",
    status_code=204,
    response_class=Response,
    dependencies=[needs(Role.OPERATOR)],
    responses=answers(404, 409),
)
async def redrive_letter(request: Request, id: LetterId) -> Response:
    """Put a dead letter back to be delivered."""
    try:
        found = await request.app.state.master.runtime.redrive_letter(id)
    except MessageError as error:
        raise conflict("NOT_A_TASK", str(error)) from None
    if not found:
        raise not_found("dead letter", id)
    await audit(request, "letter.redrive", id)
    return Response(status_code=204)


@router.delete(
    "/letters/{id}",
    status_code=204,
    response_class=Response,
    dependencies=[needs(Role.OPERATOR)],
    responses=answers(404),
)
async def drop_letter(request: Request, id: LetterId) -> Response:
    """Forget a dead letter."""
    if not await request.app.state.master.runtime.drop_letter(id):
        raise not_found("dead letter", id)
    await audit(request, "letter.drop", id)
    return Response(status_code=204)


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "reason": letter.reason,
        "node": letter.node,
        "execution": letter.execution,
        "attempt": letter.attempt,
        "at": iso(letter.at or None),
    }


def _body(body: bytes) -> Any:
    try:
        msgspec.json.decode(body.decode())
    except (ValueError, RecursionError):
        return body.decode(errors="replace")
    return Raw(body)
