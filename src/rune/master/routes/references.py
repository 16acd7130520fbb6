"""Results by reference: what an execution keeps, one value at a time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from rune.core.references import hash_of
from rune.master.problems import answers, not_found
from rune.master.results import find_value
from rune.master.routes.executions import existing
from rune.master.schemas import ExecutionId
from rune.master.security.roles import Role, needs
from rune.master.service import Master

__all__ = ["router"]

router = APIRouter(prefix="/api/executions/{id}", tags=["executions"], dependencies=[needs(Role.VIEWER)])

Reference = Annotated[
    str,
    Path(
        pattern=r"^rune:[0-9a-f]{40}$",
        description="The `ref` of a `result_ref`, or of a part of a manifest.",
        examples=["rune:8bd37b19ffee7645e91313d109da7d6733d41cf0"],
    ),
]


@router.get("/references/{ref}", response_model=Any, responses=answers(404))
async def read_reference(request: Request, id: ExecutionId, ref: Reference) -> Response:
    """The value that a reference in a result stands for; of a part of a manifest, a list."""
    master: Master = request.app.state.master
    await existing(master, id)
    data = await find_value(master, id, hash_of(ref))
    if data is None:
        raise not_found(f"value of {id!r}", ref)
    return Response(data, media_type="application/json")
