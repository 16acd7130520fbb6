"""What is to be seen of one execution: its graph, its result, and everything that happened in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec.structs import asdict
from starlette.responses import StreamingResponse

from rune.core.playbook.identity import is_playbook
from rune.core.workflow import Workflow
from rune.history.asking import Conditions
from rune.history.events import Event as Happening
from rune.master.answering import answer, iso, listed
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import answers, conflict
from rune.master.projection import list_projected
from rune.master.results import streamed_result
from rune.master.routes.executions import existing
from rune.master.schemas import ExecutionId, Page
from rune.master.schemas.executions import Event, LogLine, Result, Why
from rune.master.schemas.workflows import Graph
from rune.master.security.roles import Role, needs
from rune.master.service import Master
from rune.master.sources import compile_definition, drawn
from rune.master.why import why

__all__ = ["router"]

router = APIRouter(prefix="/api/executions/{id}", tags=["executions"], dependencies=[needs(Role.VIEWER)])

ViewQuery = Annotated[
    Literal["engine", "playbook"] | None,
    Query(description="The engine's own events, or those of the playbook, which are the default for one."),
]
NodeQuery = Annotated[str | None, Query(pattern=r"^[^\x00]{1,300}$", description="Only of this node.")]


@router.get("/graph", response_model=Graph, responses=answers(404))
async def draw_execution(request: Request, id: ExecutionId) -> Response:
    """The graph that an execution runs, as something to draw."""
    master: Master = request.app.state.master
    definition = await master.history.executions.definition(id)
    if definition is None:
        await existing(master, id)
        # Whoever started it did not leave word of what it runs.
        return answer({"nodes": [], "edges": []})
    compiled = compile_definition(msgspec.json.decode(definition), master.registry)
    return answer(drawn(compiled, master.registry))


@router.get("/result", response_model=Result, responses=answers(404, 409))
async def read_result(request: Request, id: ExecutionId) -> Response:
    """What an execution ended with: its final context, however large the values in it are."""
    master: Master = request.app.state.master
    execution = await existing(master, id)
    if execution.ended_at is None:
        raise conflict("NOT_ENDED", f"the execution {id!r} has not ended")
    return StreamingResponse(streamed_result(master, execution), media_type="application/json")


@router.get("/why", response_model=Why, responses=answers(404))
async def explain_execution(request: Request, id: ExecutionId) -> Response:
    """Why an execution has not ended: what holds it, and where each branch was seen last."""
    master: Master = request.app.state.master
    execution = await existing(master, id)
    definition = await master.history.executions.definition(id)
    flow = None if definition is None else master.flows.flow_or_none(definition.encode())
    found = await why(master.history, master.runtime, execution, flow)
    return answer(
        {
            "status": found.status,
            "holds": [{**asdict(hold), "until": iso(hold.until)} for hold in found.holds],
            "positions": [{**asdict(place), "since": iso(place.since)} for place in found.positions],
        }
    )


@router.get("/events", response_model=Page[Event], responses=answers(404))
async def list_events(
    request: Request,
    id: ExecutionId,
    node: NodeQuery = None,
    view: ViewQuery = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """Everything that happened, in the order in which it became known.

    A page of one node's events may be short, or empty, and have a `next`.
    """
    master: Master = request.app.state.master
    definition = await master.history.executions.definition(id) if view != "engine" else None
    flow = None if definition is None else _playbook(master, definition)
    if flow is None:
        items, next = await _happenings(request, id, node, limit, after, "events")
        return listed(map(_event, items), next)
    cursor = unsealed("playbook events", after)
    page = await list_projected(master.history, id, flow, cursor=cursor, limit=limit, node=node)
    return listed(map(_event, page.items), sealed("playbook events", page.next))


def _playbook(master: Master, definition: str) -> Workflow | None:
    """What a playbook became; None of a graph, and of a playbook that cannot be compiled here any more."""
    if not is_playbook(msgspec.json.decode(definition)):
        return None
    return master.flows.flow_or_none(definition.encode())


@router.get("/logs", response_model=Page[LogLine], responses=answers(404))
async def list_log_lines(
    request: Request,
    id: ExecutionId,
    node: NodeQuery = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """The events to be read by people, one line each; what log nodes wrote is among them.

    A page of one node's lines may be short, or empty, and have a `next`.
    """
    items, next = await _happenings(request, id, node, limit, after, "logs")
    written = await _written(request.app.state.master, id, items)
    told = [_line(event, written.get(event.step) if event.kind == "success" else None) for event in items]
    return listed(told, next)


async def _happenings(
    request: Request, id: str, node: str | None, limit: int, after: str | None, kind: str
) -> tuple[list[Happening], str | None]:
    master: Master = request.app.state.master
    page = await master.history.events.list(id, cursor=unsealed(kind, after), limit=limit, node=node)
    if not page.items:
        await existing(master, id)
    return page.items, sealed(kind, page.next)


async def _written(master: Master, id: str, events: list[Happening]) -> dict[str, dict[str, str]]:
    """What log nodes wrote, by step."""
    definition = await master.history.executions.definition(id)
    flow = None if definition is None else master.flows.flow_or_none(definition.encode())
    nodes = {} if flow is None else flow.nodes
    steps = [
        event.step
        for event in events
        if event.kind == "success" and event.node in nodes and nodes[event.node].type.name == "log"
    ]
    if not steps:
        return {}
    where = Conditions()
    where.add("execution_id = ?", id)
    where.one_of("step", steps)
    sql = f"SELECT step, output FROM history_step WHERE {where} AND output IS NOT NULL"
    rows = await master.history.database.fetch(sql, *where.args)
    return {row["step"]: msgspec.json.decode(row["output"]) for row in rows}


def _event(event: Happening) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": iso(event.at),
        "kind": event.kind,
        "node": event.node or None,
        "step": event.step or None,
        "barrier": event.barrier or None,
        "item": event.item,
        "attempt": event.attempt,
        "duration_ms": event.duration_ms,
        "error": event.error,
        "details": event.details,
    }


def _line(event: Happening, written: dict[str, str] | None) -> dict[str, Any]:
    level, message = "info", event.kind
    if written is not None:
        level, message = written["level"], written["message"]
    elif event.error is not None:
        level, message = "error", f"{event.kind}: {event.error.message} [{event.error.code}]"
    elif event.kind == "success":
        message = f"success after {event.duration_ms} ms"
    return {
        "seq": event.seq,
        "at": iso(event.at),
        "level": level,
        "node": event.node or None,
        "step": event.step or None,
        "item": event.item,
        "message": message,
    }
