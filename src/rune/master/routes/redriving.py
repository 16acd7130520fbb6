"""Executions made of earlier ones: what failed is run again, or all from some node on."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Raw

from rune.core.workflow import Workflow
from rune.history.executions import Execution as Stored
from rune.master.answering import answer
from rune.master.idempotency import IdempotencyKey, once
from rune.master.limits import JsonRoute
from rune.master.problems import answers, conflict, not_found
from rune.master.redrive import RedriveError
from rune.master.routes.executions import Operator, existing
from rune.master.schemas import ExecutionId
from rune.master.schemas.executions import Execution, Fork, Redrive
from rune.master.security.auditing import audit
from rune.master.service import Master
from rune.master.standing import Wish
from rune.master.views import whole

__all__ = ["router"]

router = APIRouter(prefix="/api/executions/{id}", tags=["executions"], route_class=JsonRoute)


@router.post("/redrive", status_code=202, response_model=Execution, responses=answers(404, 409))
async def redrive_execution(
    request: Request,
    id: ExecutionId,
    who: Operator,
    body: Redrive | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Run what failed again: of the whole, of one node, or of a split's items, which may be changed.

    It is a new execution. What had succeeded is not run again, and stands in it as it was.
    """
    asked = body or Redrive.model_validate({})
    wish = Wish(
        node=asked.node or "",
        barrier=asked.split.barrier if asked.split else "",
        items=tuple(asked.split.items) if asked.split and asked.split.items is not None else None,
        edits={item: _raw(value) for item, value in (asked.items or {}).items()},
    )

    async def redrive(identity: str) -> Response:
        master: Master = request.app.state.master
        parent = await existing(master, id)
        made = await _made(master, parent, wish, await _flow(master, parent), asked.input, identity, who.name)
        await audit(request, "execution.redrive", id, made=made.id)
        return answer(whole(made), 202, {"Location": f"/api/executions/{made.id}"})

    return await once(request, who.id, idempotency_key, redrive)


@router.post("/fork", status_code=202, response_model=Execution, responses=answers(404, 409))
async def fork_execution(
    request: Request, id: ExecutionId, body: Fork, who: Operator, idempotency_key: IdempotencyKey = None
) -> Response:
    """Run a node and all that lies behind it again, in a new execution; what lies before stands as it was."""

    async def fork(identity: str) -> Response:
        master: Master = request.app.state.master
        parent = await existing(master, id)
        flow = await _flow(master, parent, body.version)
        wish = Wish(fork=body.node)
        made = await _made(master, parent, wish, flow, body.input, identity, who.name, body.version)
        await audit(request, "execution.fork", id, made=made.id, node=body.node)
        return answer(whole(made), 202, {"Location": f"/api/executions/{made.id}"})

    return await once(request, who.id, idempotency_key, fork)


async def _made(
    master: Master,
    parent: Stored,
    wish: Wish,
    flow: Workflow,
    input: Any,
    identity: str,
    author: str,
    version: int | None = None,
) -> Stored:
    """The new execution, started."""
    redriving = master.redriving
    given = None if input is None else _raw(input)
    try:
        prepared = await redriving.prepare(
            parent, wish, flow, version=version, input=given, created_by=author
        )
        new = msgspec.structs.replace(prepared.new, id=f"exec_{identity[:20]}")
        return await master.starter.sow(flow, new, redriving.seeds(parent.id, prepared.wish, flow))
    except RedriveError as error:
        raise conflict("CANNOT_REDRIVE", str(error)) from None


async def _flow(master: Master, parent: Stored, version: int | None = None) -> Workflow:
    if version is None:
        definition = await master.history.executions.definition(parent.id)
        if definition is None:
            raise conflict("CANNOT_REDRIVE", f"the definition that {parent.id!r} ran is not known")
    else:
        found = await master.history.workflows.version(parent.workflow_id or "", version)
        if found is None:
            raise not_found(f"version of {parent.workflow_id!r}", version)
        definition = found.definition
    return master.flows.flow(definition.encode())


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))
