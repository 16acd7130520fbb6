"""Credentials: values go in and never come out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from rune.core.errors import ConflictError
from rune.history.credentials import CREDENTIAL_ID, CredentialStore, Stored
from rune.history.vault import WrongKey
from rune.master.answering import answer, iso, listed
from rune.master.limits import JsonRoute
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import HttpProblem, answers, conflict, not_found
from rune.master.schemas import Body, Moment, Page, Text
from rune.master.security.auditing import audit, entry_for
from rune.master.security.roles import Principal, Role, needs
from rune.master.security.testing import try_credential

__all__ = ["router"]

router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["credentials"])

Id = Annotated[str, Path(pattern=CREDENTIAL_ID, description="The id by which workflows refer to it.")]
FieldName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
Data = Annotated[
    dict[FieldName, Any],
    Field(min_length=1, max_length=100, description="The fields, such as `username` and `password`."),
]


class NewCredential(Body):
    """A new credential."""

    id: Annotated[str, Field(pattern=CREDENTIAL_ID)] | None = Field(None, description="Made up if not given.")
    name: Text = ""
    type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$", examples=["http", "smtp"])] = "generic"
    data: Data


class Rotation(Body):
    """New values, in place of all the old ones."""

    name: Text | None = None
    data: Data


class Trial(Body):
    """How to try a credential out."""

    url: Annotated[str, Field(max_length=4000, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="An address to send a signed GET to."
    )


class Credential(BaseModel):
    """A credential without its values."""

    id: str
    name: str
    type: str
    fields: list[str] = Field(description="The names of its fields.")
    version: int
    created_at: Moment
    rotated_at: Moment
    created_by: str


class Verdict(BaseModel):
    """How trying it out went."""

    ok: bool
    detail: str


def _store(request: Request) -> CredentialStore:
    store: CredentialStore | None = request.app.state.master.credentials
    if store is None:
        raise conflict("NO_KEY", "this master has no key to store credentials under; set RUNE_KEY")
    return store


def _shown(credential: Stored) -> dict[str, Any]:
    fields = {name: getattr(credential, name) for name in Stored.__struct_fields__}
    return {**fields, "created_at": iso(credential.created_at), "rotated_at": iso(credential.rotated_at)}


@router.get(
    "/credentials",
    response_model=Page[Credential],
    responses=answers(400, 409),
    dependencies=[needs(Role.VIEWER)],
)
async def list_credentials(request: Request, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Response:
    """Credentials by id, without values."""
    page = await _store(request).list(limit, unsealed("credentials", after))
    return listed(map(_shown, page.items), sealed("credentials", page.next))


@router.post("/credentials", status_code=201, response_model=Credential, responses=answers(409))
async def create_credential(
    request: Request, body: NewCredential, who: Annotated[Principal, needs(Role.EDITOR)]
) -> Response:
    """Store a credential."""
    id = body.id or CredentialStore.new_id()
    entry = entry_for(request, "credential.create", id, type=body.type)
    try:
        made = await _store(request).create(id, body.name or id, body.type, body.data, who.name, entry)
    except ConflictError:
        raise conflict("ID_TAKEN", f"there is a credential '{id}' already; PUT rotates it") from None
    return answer(_shown(made), 201, {"Location": f"/api/credentials/{id}"})


@router.get(
    "/credentials/{id}",
    response_model=Credential,
    responses=answers(404, 409),
    dependencies=[needs(Role.VIEWER)],
)
async def read_credential(request: Request, id: Id) -> Response:
    """One credential, without values."""
    found = await _store(request).get(id)
    if found is None:
        raise not_found("credential", id)
    return answer(_shown(found))


@router.put(
    "/credentials/{id}",
    response_model=Credential,
    responses=answers(404, 409),
    dependencies=[needs(Role.EDITOR)],
)
async def rotate_credential(request: Request, id: Id, body: Rotation) -> Response:
    """Put new values in place of the old ones; workers use them within seconds."""
    entry = entry_for(request, "credential.rotate", id)
    rotated = await _store(request).rotate(id, body.data, body.name, entry)
    if rotated is None:
        raise not_found("credential", id)
    return answer(_shown(rotated))


@router.delete(
    "/credentials/{id}",
    status_code=204,
    responses=answers(404, 409),
    dependencies=[needs(Role.EDITOR)],
)
async def delete_credential(
    request: Request,
    id: Id,
    force: Annotated[bool, Query(description="Even if workflows refer to it.")] = False,
) -> Response:
    """Forget a credential, unless a workflow refers to it."""
    store = _store(request)
    users = await store.users_of(id)
    if users and not force:
        named = ", ".join(users[:5]) + (" …" if len(users) > 5 else "")
        raise conflict("IN_USE", f"these workflows refer to it: {named}; `?force=true` removes it anyway")
    if not await store.delete(id, entry_for(request, "credential.delete", id, force=force)):
        raise not_found("credential", id)
    return Response(status_code=204)


@router.post(
    "/credentials/{id}/test",
    response_model=Verdict,
    responses=answers(404, 409),
    dependencies=[needs(Role.EDITOR)],
)
async def try_out_credential(request: Request, id: Id, body: Trial | None = None) -> Response:
    """Try a credential out, as a node would use it."""
    store = _store(request)
    stored = await store.get(id)
    try:
        values = await store.reveal(id)
    except WrongKey as error:
        raise HttpProblem(409, "UNREADABLE", f"the credential cannot be read: {error}") from None
    if stored is None or values is None:
        raise not_found("credential", id)
    url = body.url if body else None
    ok, detail = await try_credential(stored.type, values, url, request.app.state.master.settings.http_allow)
    await audit(request, "credential.test", id, "ok" if ok else "failed")
    return answer({"ok": ok, "detail": detail})
