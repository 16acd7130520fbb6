"""The audit log."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from rune.history.audit import Entry
from rune.master.answering import iso, listed
from rune.master.limits import JsonRoute
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.schemas import Moment, Page
from rune.master.security.gate import Gate
from rune.master.security.roles import Role, needs

__all__ = ["router"]

router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["system"])

Filter = Annotated[str, Query(max_length=500, pattern=r"^[^\x00]*$")]


class AuditEntry(BaseModel):
    """What somebody did or tried to do."""

    id: str
    at: Moment
    account_id: str
    account: str = Field(description="Empty for the system itself, and for who has not logged in.")
    via: str = Field(description="`session`, `token`, `open` where there are no accounts, or empty.")
    address: str
    action: str = Field(examples=["execution.cancel"])
    object: str
    outcome: str = Field(description="`ok`, `denied` or `failed`.")
    details: dict[str, Any]


@router.get("/audit", response_model=Page[AuditEntry], dependencies=[needs(Role.ADMIN)])
async def list_audit(
    request: Request,
    action: Filter = "",
    object: Filter = "",
    account: Filter = "",
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """What was done, the newest first; by the beginning of the action, the object, the account."""
    gate: Gate = request.app.state.gate
    cursor = unsealed("audit", after)
    page = await gate.log.list(limit, cursor, action=action, object=object, account=account)
    return listed(map(_shown, page.items), sealed("audit", page.next))


def _shown(entry: Entry) -> dict[str, Any]:
    fields = {name: getattr(entry, name) for name in Entry.__struct_fields__}
    return {**fields, "at": iso(entry.at)}
