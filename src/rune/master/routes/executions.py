"""Executions: started, listed, read, stopped and removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec import Raw

from rune.core.node import Role as NodeRole
from rune.core.workflow import Workflow as Flow
from rune.history.executions import Execution as Stored
from rune.history.executions import Filter, NewExecution
from rune.history.items import Split
from rune.master.answering import answer, listed
from rune.master.idempotency import IdempotencyKey, once
from rune.master.limits import JsonRoute
from rune.master.linking import compile_linked
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import HttpProblem, answers, conflict, not_found
from rune.master.results import whole_result
from rune.master.schemas import ExecutionId, ExecutionStatus, Page, TextQuery, TriggerKind
from rune.master.schemas.executions import Cancel, Execution, ExecutionSummary, Start
from rune.master.security.absorbing import keep_credentials, part_credentials
from rune.master.security.auditing import audit
from rune.master.security.roles import Principal, Role, needs
from rune.master.service import Master
from rune.master.views import summary, whole

__all__ = ["existing", "router", "standing"]

router = APIRouter(prefix="/api/executions", tags=["executions"], route_class=JsonRoute)

Operator = Annotated[Principal, needs(Role.OPERATOR)]
Moment = Annotated[datetime | None, Query(description="ISO 8601; UTC if it names no zone.")]


@router.post(
    "",
    status_code=201,
    response_model=Execution,
    responses={
        200: {"model": Execution, "description": "It was waited for, and has ended."},
        202: {"model": Execution, "description": "It was waited for, and goes on."},
        **answers(404, 409),
    },
)
async def start_execution(
    request: Request, body: Start, who: Operator, idempotency_key: IdempotencyKey = None
) -> Response:
    """Start a stored workflow, or a definition sent along; with `wait`, answer when it has ended."""
    master: Master = request.app.state.master

    async def start(identity: str) -> Response:
        flow, workflow_id, version, name = await _chosen(request, body, who)
        given = Raw(msgspec.json.encode(body.input)) if body.input is not None else None
        new = NewExecution(
            id=f"exec_{identity[:20]}",
            definition=flow.definition.decode(),
            name=name,
            workflow_id=workflow_id,
            workflow_version=version,
            trigger="api",
            input=given,
            priority=body.priority,
            labels=body.labels,
            created_by=who.name,
        )
        with master.endings.expecting(new.id) as ending:
            execution = await master.starter.start(flow, new)
            await audit(request, "execution.start", new.id, workflow=workflow_id)
            headers = {"Location": f"/api/executions/{new.id}"}
            if not body.wait:
                return answer(whole(execution), 201, headers)
            ended = await ending.wait(body.wait)
        if ended is None:
            return answer(await standing(master, execution.id), 202, headers)
        found = {**await _ended_view(master, ended, flow), "result": await whole_result(master, ended)}
        return answer(found, 200, headers)

    return await once(request, who.id, idempotency_key, start)


async def _chosen(request: Request, body: Start, who: Principal) -> tuple[Flow, str | None, int | None, str]:
    """The workflow to run, its id and version if it is stored, and its name."""
    master: Master = request.app.state.master
    if body.workflow_id is None:
        if who.role < Role.EDITOR:
            raise HttpProblem(403, "FORBIDDEN", "to run a definition of one's own needs the role editor")
        given, carried = part_credentials(body.definition)
        workflows = master.history.workflows
        linked = await compile_linked(workflows, master.registry, given, body.source, body.format)
        flow = linked.runnable()
        await keep_credentials(request, carried, who.name)
        return flow, None, None, flow.name
    stored = await master.history.workflows.get(body.workflow_id)
    if stored is None:
        raise not_found("workflow", body.workflow_id)
    number = body.version or stored.published or stored.version
    definition = stored.definition
    if number != stored.version:
        version = await master.history.workflows.version(stored.id, number)
        if version is None:
            raise not_found(f"version of {stored.id!r}", number)
        definition = version.definition
    return master.flows.flow(definition.encode()), stored.id, number, stored.name


@router.get("", response_model=Page[ExecutionSummary], dependencies=[needs(Role.VIEWER)])
async def list_executions(
    request: Request,
    workflow: TextQuery = None,
    status: Annotated[list[ExecutionStatus] | None, Query(max_length=6)] = None,
    trigger: Annotated[list[TriggerKind] | None, Query(max_length=9)] = None,
    since: Moment = None,
    until: Moment = None,
    text: TextQuery = None,
    parent: TextQuery = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """Executions, the newest first; `text` is looked for in id, name, labels and error."""
    filter = Filter(
        workflow=workflow,
        status=tuple(status or ()),
        trigger=tuple(trigger or ()),
        since=_seconds(since),
        until=_seconds(until),
        text=text or "",
        parent=parent,
    )
    executions = request.app.state.master.history.executions
    page = await executions.list(filter, limit=limit, cursor=unsealed("executions", after))
    return listed(map(summary, page.items), sealed("executions", page.next))


def _seconds(moment: datetime | None) -> float | None:
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@router.get("/{id}", response_model=Execution, dependencies=[needs(Role.VIEWER)], responses=answers(404))
async def read_execution(request: Request, id: ExecutionId) -> Response:
    """An execution: where it stands, node by node and split by split."""
    return answer(await standing(request.app.state.master, id))


@router.delete(
    "/{id}",
    status_code=204,
    response_class=Response,
    dependencies=[needs(Role.OPERATOR)],
    responses=answers(404, 409),
)
async def delete_execution(request: Request, id: ExecutionId) -> Response:
    """Forget an execution that has ended, and everything in it."""
    master: Master = request.app.state.master
    if not await master.history.executions.delete(id):
        if (await existing(master, id)).ended_at is None:
            raise conflict("NOT_ENDED", "only an execution that has ended can be deleted; cancel it first")
        raise conflict("BEING_READ", "another one is being made of it; delete it when that one runs")
    await audit(request, "execution.delete", id)
    return Response(status_code=204)


# --- stopping and going on ---


@router.post(
    "/{id}/cancel",
    status_code=202,
    response_model=Execution,
    dependencies=[needs(Role.OPERATOR)],
    responses=answers(404, 409),
)
async def cancel_execution(request: Request, id: ExecutionId, body: Cancel | None = None) -> Response:
    """Ask for an execution's end; it ends as `halted`, with the reason."""
    master: Master = request.app.state.master
    execution = await _alive(master, id)
    reason = body.reason if body else "cancelled"
    await master.runtime.cancel(
        id, reason, workflow=execution.workflow_id or "-", started_at=execution.started_at or 0.0
    )
    await audit(request, "execution.cancel", id, reason=reason)
    return answer(await standing(master, id), 202)


@router.post(
    "/{id}/pause",
    status_code=202,
    response_model=Execution,
    dependencies=[needs(Role.OPERATOR)],
    responses=answers(404, 409),
)
async def pause_execution(request: Request, id: ExecutionId) -> Response:
    """Let nothing further of an execution start; what is running ends."""
    master: Master = request.app.state.master
    await _alive(master, id)
    if not await master.runtime.pause(id):
        raise _ended(id)
    await master.history.executions.set_status(id, "paused", ("pending", "running"))
    await audit(request, "execution.pause", id)
    return answer(await standing(master, id), 202)


@router.post(
    "/{id}/resume",
    status_code=202,
    response_model=Execution,
    dependencies=[needs(Role.OPERATOR)],
    responses=answers(404, 409),
)
async def resume_execution(request: Request, id: ExecutionId) -> Response:
    """Let a paused execution go on."""
    master: Master = request.app.state.master
    await _alive(master, id)
    # First the history: what goes on may end at once.
    await master.history.executions.set_status(id, "running", ("paused",))
    if not await master.runtime.resume(id):
        raise _ended(id)
    await audit(request, "execution.resume", id)
    return answer(await standing(master, id), 202)


# --- what these share ---


async def existing(master: Master, id: str) -> Stored:
    """An execution; 404 if there is none."""
    found = await master.history.executions.get(id)
    if found is None:
        raise not_found("execution", id)
    return found


async def _alive(master: Master, id: str) -> Stored:
    found = await existing(master, id)
    if found.ended_at is not None:
        raise _ended(id)
    return found


def _ended(id: str) -> HttpProblem:
    return conflict("ENDED", f"the execution {id!r} has ended")


async def standing(master: Master, id: str) -> dict[str, Any]:
    """An execution and where it stands."""
    return await _view(master, await existing(master, id))


async def _ended_view(master: Master, execution: Stored, flow: Flow) -> dict[str, Any]:
    """The same of an execution that has just been started and ended, with less to look for."""
    nodes = await master.history.executions.nodes(execution.id)
    splits: list[Split] = []
    if any(node.role is NodeRole.SPLIT for node in flow.nodes.values()):
        splits = await master.history.items.splits(execution.id)
    return whole(execution, nodes, splits)


async def _view(master: Master, execution: Stored) -> dict[str, Any]:
    nodes, splits, children = await asyncio.gather(
        master.history.executions.nodes(execution.id),
        master.history.items.splits(execution.id),
        master.history.executions.children(execution.id),
    )
    return whole(execution, nodes, splits, children)
