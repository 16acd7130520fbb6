"""Accounts and tokens."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from rune.core.errors import ConflictError
from rune.history.accounts import Account, LastAdmin
from rune.history.keys import Token, Tokens
from rune.master.answering import answer, iso, listed
from rune.master.limits import JsonRoute
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import HttpProblem, answers, conflict, not_found
from rune.master.routes.sessions import Name, Password, RoleWord
from rune.master.schemas import Body, Moment, Page, Text
from rune.master.security.auditing import entry_for
from rune.master.security.bearers import PREFIX, digest, new_secret
from rune.master.security.gate import Gate
from rune.master.security.roles import Principal, Role, needs

__all__ = ["router"]

router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["accounts"])

Id = Annotated[str, Path(pattern=r"^[a-zA-Z0-9_-]{1,200}$")]
_LONGEST = 10 * 365 * 24 * 3600.0


class NewUser(Body):
    """A new account."""

    name: Name
    password: Password
    role: RoleWord = "viewer"


class UserChange(Body):
    """What to change of an account."""

    role: RoleWord | None = None
    disabled: bool | None = None
    password: Password | None = None


class User(BaseModel):
    """One who can log in."""

    id: str
    name: str
    role: RoleWord
    disabled: bool
    created_at: Moment
    updated_at: Moment
    login_at: Moment | None = Field(description="When its password was last used.")


class NewToken(Body):
    """A new token of one's own."""

    name: Annotated[Text, Field(min_length=1)]
    role: RoleWord = Field("viewer", description="At most one's own role.")
    expires_in: float | None = Field(None, gt=0, le=_LONGEST, description="Seconds; null is never.")


class KnownToken(BaseModel):
    """A token, without the token."""

    id: str
    name: str
    account_id: str
    account: str
    role: RoleWord
    created_at: Moment
    expires_at: Moment | None
    used_at: Moment | None = Field(description="When it was last used, to a minute.")


class FreshToken(KnownToken):
    """A token that has just been made."""

    token: str = Field(description="Shown this once.")


def _user(account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "name": account.name,
        "role": Role(account.role).word,
        "disabled": account.disabled,
        "created_at": iso(account.created_at),
        "updated_at": iso(account.updated_at),
        "login_at": iso(account.login_at),
    }


def _token(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "account_id": token.account_id,
        "account": token.account,
        "role": Role(token.role).word,
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "used_at": iso(token.used_at),
    }


def _gate(request: Request) -> Gate:
    gate: Gate = request.app.state.gate
    return gate


# --- users ---


@router.get("/users", response_model=Page[User], dependencies=[needs(Role.ADMIN)])
async def list_users(request: Request, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Response:
    """Accounts, by name."""
    page = await _gate(request).accounts.list(limit, unsealed("users", after))
    return listed(map(_user, page.items), sealed("users", page.next))


@router.post(
    "/users",
    status_code=201,
    response_model=User,
    responses=answers(409),
    dependencies=[needs(Role.ADMIN)],
)
async def create_user(request: Request, body: NewUser) -> Response:
    """Make an account."""
    gate = _gate(request)
    hashed = await gate.passwords.hash(body.password)
    entry = entry_for(request, "user.create", body.name.lower(), role=body.role)
    try:
        account = await gate.accounts.create(body.name, hashed, Role[body.role.upper()], entry)
    except ConflictError:
        raise conflict("NAME_TAKEN", f"there is an account '{body.name}' already") from None
    return answer(_user(account), 201, {"Location": f"/api/users/{account.id}"})


@router.get("/users/{id}", response_model=User, responses=answers(404), dependencies=[needs(Role.ADMIN)])
async def read_user(request: Request, id: Id) -> Response:
    """One account."""
    account = await _gate(request).accounts.get(id)
    if account is None:
        raise not_found("account", id)
    return answer(_user(account))


@router.patch("/users/{id}", response_model=User, responses=answers(404, 409))
async def change_user(
    request: Request, id: Id, body: UserChange, who: Annotated[Principal, needs(Role.ADMIN)]
) -> Response:
    """Change an account's role or password, or disable it; the last admin stays one."""
    gate = _gate(request)
    hashed = await gate.passwords.hash(body.password) if body.password is not None else None
    role = Role[body.role.upper()] if body.role is not None else None
    changes = body.model_dump(exclude_none=True, exclude={"password"})
    entry = entry_for(request, "user.change", id, **changes, password=hashed is not None)
    keep = who.key if who.via == "session" and who.id == id else ""
    try:
        account = await gate.accounts.change(
            id, entry, role=role, disabled=body.disabled, password=hashed, keep=keep
        )
    except LastAdmin as error:
        raise conflict("LAST_ADMIN", str(error)) from None
    if account is None:
        raise not_found("account", id)
    return answer(_user(account))


@router.delete("/users/{id}", status_code=204, responses=answers(404, 409), dependencies=[needs(Role.ADMIN)])
async def delete_user(request: Request, id: Id) -> Response:
    """Remove an account with its sessions and tokens; the last admin stays."""
    try:
        account = await _gate(request).accounts.delete(id, entry_for(request, "user.delete", id))
    except LastAdmin as error:
        raise conflict("LAST_ADMIN", str(error)) from None
    if account is None:
        raise not_found("account", id)
    return Response(status_code=204)


# --- tokens ---


@router.get("/tokens", response_model=Page[KnownToken])
async def list_tokens(
    request: Request,
    who: Annotated[Principal, needs(Role.VIEWER)],
    all: Annotated[bool, Query(description="Everybody's, for admins.")] = False,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """One's own tokens, or everybody's."""
    whose = None if all and who.role >= Role.ADMIN else who.id or "-"
    page = await _gate(request).tokens.list(whose, limit, unsealed("tokens", after))
    return listed(map(_token, page.items), sealed("tokens", page.next))


@router.post("/tokens", status_code=201, response_model=FreshToken, responses=answers(409))
async def create_token(
    request: Request, body: NewToken, who: Annotated[Principal, needs(Role.VIEWER)]
) -> Response:
    """Make a token for a program; it is shown this once."""
    if who.via != "session":
        raise HttpProblem(409, "NO_SESSION", "a token is made by whoever has logged in, not by another token")
    role = Role[body.role.upper()]
    if role > who.role:
        raise HttpProblem(403, "FORBIDDEN", f"a token cannot do more than its owner, who is {who.role.word}")
    secret, id = new_secret(PREFIX), Tokens.new_id()
    expires = None if body.expires_in is None else time.time() + body.expires_in
    entry = entry_for(request, "token.create", id, name=body.name, role=body.role)
    token = await _gate(request).tokens.create(digest(secret), who.id, body.name, role, expires, entry)
    return answer({**_token(token), "token": secret}, 201, {"Location": f"/api/tokens/{id}"})


@router.delete("/tokens/{id}", status_code=204, responses=answers(404))
async def revoke_token(request: Request, id: Id, who: Annotated[Principal, needs(Role.VIEWER)]) -> Response:
    """Revoke a token of one's own; admins anybody's."""
    whose = None if who.role >= Role.ADMIN else who.id
    if not await _gate(request).tokens.revoke(id, whose, entry_for(request, "token.revoke", id)):
        raise not_found("token", id)
    return Response(status_code=204)
