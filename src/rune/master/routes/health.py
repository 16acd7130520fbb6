"""Whether the master lives, whether it can work, and its numbers."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from rune.core.errors import InfrastructureError
from rune.master.answering import answer
from rune.master.metrics import MEDIA_TYPE
from rune.master.problems import answers
from rune.master.security.roles import Role, anyone, needs
from rune.master.service import Master

__all__ = ["router"]

router = APIRouter(tags=["system"])

_PATIENCE = 5.0


class Health(BaseModel):
    """Whether all is well, and if not, what is not."""

    status: str
    checks: dict[str, str] = {}


@router.get("/health/live", response_model=Health, dependencies=[anyone])
async def live() -> Response:
    """The process answers."""
    return answer({"status": "ok", "checks": {}})


@router.get(
    "/health/ready",
    response_model=Health,
    responses={503: {"model": Health, "description": "Something that is needed is out of reach."}},
    dependencies=[anyone],
)
async def ready(request: Request) -> Response:
    """The history and the runtime can be reached."""
    master: Master = request.app.state.master
    checks = {
        "history": await _works(master.history.database.fetch_one("SELECT 1 AS one")),
        "runtime": await _works(master.runtime.queues()),
    }
    well = all(found == "ok" for found in checks.values())
    return answer({"status": "ok" if well else "unavailable", "checks": checks}, 200 if well else 503)


async def _works(asked: object) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            await asked  # type: ignore[misc]
    except (InfrastructureError, TimeoutError):
        # Why is in the log: addresses are nobody's business here.
        return "out of reach"
    return "ok"


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Numbers.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **answers(401, 403),
    },
    dependencies=[needs(Role.VIEWER)],
)
async def metrics(request: Request) -> Response:
    """The numbers of this master, as Prometheus reads them."""
    master: Master = request.app.state.master
    master.metrics.look(await master.runtime.queues(), await master.runtime.members())
    return Response(master.metrics.text(), media_type=MEDIA_TYPE)
