"""Steps, splits and items: what happened at each node, for each item."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import Raw

from rune.core.scope import unwrapped
from rune.history.steps import StepRecord
from rune.master.answering import answer, iso, listed
from rune.master.inspection import Inspected, inspect
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import answers, not_found
from rune.master.results import find_value
from rune.master.routes.details import NodeQuery
from rune.master.routes.executions import existing
from rune.master.schemas import ExecutionId, ItemState, Page, StepStatus
from rune.master.schemas.executions import Item, ItemDetail, Split, SplitDetail, Step, StepDetail
from rune.master.security.roles import Role, needs
from rune.master.service import Master

__all__ = ["router"]

router = APIRouter(prefix="/api/executions/{id}", tags=["steps"], dependencies=[needs(Role.VIEWER)])

_NAME = r"^[a-zA-Z0-9_-]{1,200}$"
Barrier = Annotated[str, Path(pattern=_NAME, description="The split's step, which names its barrier.")]
StepId = Annotated[str, Path(pattern=_NAME, description="A step's id.")]
ItemIndex = Annotated[int, Path(ge=0, le=2**31 - 1)]
_OUTSIDE = "root"
_STEPS_OF_ITEM = 500


@router.get("/steps", response_model=Page[Step], responses=answers(404))
async def list_steps(
    request: Request,
    id: ExecutionId,
    node: NodeQuery = None,
    status: Annotated[list[StepStatus] | None, Query(max_length=5)] = None,
    scope: Annotated[
        str | None,
        Query(pattern=_NAME, description="Only of one item of the split with this barrier; `root`: of none."),
    ] = None,
    item: Annotated[int, Query(ge=0, le=2**31 - 1, description="Which item of `scope`.")] = 0,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """Steps, in the order in which they started."""
    master: Master = request.app.state.master
    page = await master.history.steps.list(
        id,
        node=node,
        status=tuple(status or ()),
        scope=None if scope is None else ("" if scope == _OUTSIDE else scope, item),
        limit=limit,
        cursor=unsealed("steps", after),
    )
    if not page.items:
        await existing(master, id)
    return listed(map(_step, page.items), sealed("steps", page.next))


@router.get("/steps/{step}", response_model=StepDetail, responses=answers(404))
async def read_step(request: Request, id: ExecutionId, step: StepId) -> Response:
    """One step: what went in, what the parameters came to, what came out, and each try of it."""
    master: Master = request.app.state.master
    record = await master.history.steps.get(id, step)
    if record is None:
        raise not_found(f"step of {id!r}", step)
    execution = await existing(master, id)
    definition = await master.history.executions.definition(id)
    flow = None if definition is None else master.flows.flow_or_none(definition.encode())
    if flow is None:
        known = "is not known" if definition is None else "cannot be compiled here any more"
        seen = Inspected(exact=False, notes=(f"the definition that the execution runs {known}",))
    else:
        seen = await inspect(master.history, execution, flow, record)
    return answer(
        {
            **_step(record),
            "attempts": [{**_fields(attempt), "at": iso(attempt.at)} for attempt in record.attempts],
            "input": seen.input,
            "item": seen.item,
            "parameters": seen.parameters,
            "exact": seen.exact,
            "notes": seen.notes,
            "output": await _output(master, id, record),
        }
    )


async def _output(master: Master, id: str, record: StepRecord) -> Raw | None:
    output = record.output
    if output is None and record.output_hash is not None:
        data = await find_value(master, id, record.output_hash)
        # Null is also what there is of one that was lost before it could be kept.
        output = None if data is None else Raw(data)
    # What is left to the next node as a payload has a wrapping that only the engine needs.
    working = (record.details or {}).get("working")
    return unwrapped(output) if working and output is not None else output


# --- splits and their items ---


@router.get("/splits", response_model=Page[Split], responses=answers(404))
async def list_splits(request: Request, id: ExecutionId) -> Response:
    """The splits of an execution, the first thousand."""
    master: Master = request.app.state.master
    found = await master.history.items.splits(id)
    if not found:
        await existing(master, id)
    return listed(found, None)


@router.get("/splits/{barrier}", response_model=SplitDetail, responses=answers(404))
async def read_split(request: Request, id: ExecutionId, barrier: Barrier) -> Response:
    """A split: how many items are where, and what failed, by node and error code."""
    master: Master = request.app.state.master
    split = await master.history.items.split(id, barrier)
    if split is None:
        raise not_found(f"split of {id!r}", barrier)
    failures = await master.history.items.failures(id, barrier)
    return answer({**_fields(split), "failures": failures})


@router.get("/splits/{barrier}/items", response_model=Page[Item], responses=answers(404))
async def list_items(
    request: Request,
    id: ExecutionId,
    barrier: Barrier,
    state: Annotated[list[ItemState] | None, Query(max_length=5)] = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """A split's items in their order."""
    master: Master = request.app.state.master
    page = await master.history.items.list(
        id, barrier, state=tuple(state or ()), limit=limit, cursor=unsealed("items", after)
    )
    if not page.items and await master.history.items.split(id, barrier) is None:
        raise not_found(f"split of {id!r}", barrier)
    return listed(page.items, sealed("items", page.next))


@router.get("/splits/{barrier}/items/{index}", response_model=ItemDetail, responses=answers(404))
async def read_item(request: Request, id: ExecutionId, barrier: Barrier, index: ItemIndex) -> Response:
    """One item, with its steps."""
    master: Master = request.app.state.master
    item = await master.history.items.get(id, barrier, index)
    if item is None:
        raise not_found(f"item of {barrier!r}", index)
    page = await master.history.steps.list(id, scope=(barrier, index), limit=_STEPS_OF_ITEM)
    return answer({**_fields(item), "steps": [_step(step) for step in page.items]})


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _step(record: StepRecord) -> dict[str, Any]:
    return {
        "step": record.step,
        "node": record.node_id,
        "status": record.status,
        "attempt": record.attempt,
        "lineage": [
            {
                "split": frame.split_node_id,
                "barrier": frame.barrier,
                "index": frame.item_index,
                "total": frame.total_items,
                "label": frame.label,
                "key": frame.key,
            }
            for frame in record.lineage
        ],
        "started_at": iso(record.started_at),
        "ended_at": iso(record.ended_at),
        "duration_ms": record.duration_ms,
        "port": record.port,
        "error": record.error,
        "details": record.details,
        "output_size": record.output_size,
        "seq": record.seq,
    }
