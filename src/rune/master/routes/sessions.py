"""Logging in and out, one's own password, and the first account."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.responses import RedirectResponse

from rune.master.answering import answer
from rune.master.limits import JsonRoute
from rune.master.problems import HttpProblem, answers
from rune.master.schemas import Body
from rune.master.security import pages
from rune.master.security.auditing import entry_for
from rune.master.security.entrance import begin_session, check_password, forget_cookie, log_in, set_up
from rune.master.security.gate import Gate
from rune.master.security.passwords import LONGEST, SHORTEST
from rune.master.security.roles import Principal, Role, anyone, needs

__all__ = ["Name", "Password", "RoleWord", "router"]

router = APIRouter(route_class=JsonRoute, tags=["accounts"])

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$", examples=["ada"])]
Password = Annotated[str, Field(min_length=SHORTEST, max_length=LONGEST, examples=["correct horse battery"])]
Given = Annotated[str, Field(max_length=LONGEST)]
RoleWord = Annotated[str, Field(pattern="^(viewer|operator|editor|admin)$", examples=["viewer"])]


class Login(Body):
    """A name and its password."""

    name: Given
    password: Given


class Logout(Body):
    """How to log out."""

    everywhere: bool = Field(False, description="End every session of the account, not only this one.")


class PasswordChange(Body):
    """A new password for one's own account."""

    old: Given
    new: Password


class Setup(Body):
    """The first account."""

    token: Given
    name: Name
    password: Password


class Me(BaseModel):
    """Who makes the request."""

    id: str = Field(description="Empty where there are no accounts.")
    name: str
    role: RoleWord
    via: str = Field(description="`session`, `token`, or `open` where there are no accounts.")
    accounts: bool = Field(description="Whether one has to log in here.")


def _me(request: Request, who: Principal) -> dict[str, Any]:
    gate: Gate = request.app.state.gate
    return {
        "id": who.id,
        "name": who.name,
        "role": who.role.word,
        "via": who.via,
        "accounts": gate.required,
    }


def _with_cookies(response: Response, cookies: Response) -> Response:
    for name, value in cookies.headers.items():
        if name == "set-cookie":
            response.headers.append(name, value)
    return response


@router.post(
    "/api/auth/login", response_model=Me, responses=answers(401, 403, 409, 429), dependencies=[anyone]
)
async def login(request: Request, body: Login) -> Response:
    """Begin a session, by a cookie."""
    gate: Gate = request.app.state.gate
    gate.check_origin(request, strict=False)
    cookies = Response()
    await log_in(request, cookies, body.name, body.password)
    return _with_cookies(answer(_me(request, request.state.principal)), cookies)


@router.post("/api/auth/logout", status_code=204)
async def logout(
    request: Request, who: Annotated[Principal, needs(Role.VIEWER)], body: Logout | None = None
) -> Response:
    """End this session, or all of one's sessions; tokens stay."""
    gate: Gate = request.app.state.gate
    everywhere = body is not None and body.everywhere
    if everywhere and who.id:
        await gate.sessions.end_all(who.id, entry_for(request, "logout", who.name, everywhere=True))
    elif who.via == "session":
        await gate.sessions.end(who.key, entry_for(request, "logout", who.name))
    response = Response(status_code=204)
    forget_cookie(request, response)
    return response


@router.get("/api/auth/me", response_model=Me)
async def me(request: Request, who: Annotated[Principal, needs(Role.VIEWER)]) -> Response:
    """Who one is, and what one may do."""
    return answer(_me(request, who))


@router.post("/api/auth/password", status_code=204, responses=answers(409, 429))
async def change_password(
    request: Request, body: PasswordChange, who: Annotated[Principal, needs(Role.VIEWER)]
) -> Response:
    """Change one's own password; all one's sessions end, and this one is renewed."""
    gate: Gate = request.app.state.gate
    if who.via != "session":
        raise HttpProblem(409, "NO_SESSION", "a password is changed by whoever has logged in with it")
    account = await check_password(request, who.name, body.old)
    if account is None:
        raise HttpProblem(403, "WRONG_PASSWORD", "the old password is wrong")
    hashed = await gate.passwords.hash(body.new)
    entry = entry_for(request, "user.password", who.name)
    await gate.accounts.change(who.id, entry, password=hashed)
    response = Response(status_code=204)
    await begin_session(request, response, account)
    return response


@router.post(
    "/api/auth/setup", status_code=201, response_model=Me, responses=answers(403), dependencies=[anyone]
)
async def setup(request: Request, body: Setup) -> Response:
    """Make the first account, with the token that the master printed when it started."""
    gate: Gate = request.app.state.gate
    gate.check_origin(request, strict=False)
    cookies = Response()
    await set_up(request, cookies, body.token, body.name, body.password)
    return _with_cookies(answer(_me(request, request.state.principal), 201), cookies)


# --- the same as plain pages ---


@router.get("/login", include_in_schema=False, dependencies=[anyone])
async def show_login(next: str = "/") -> Response:
    """The page to log in."""
    return pages.login_page(_local(next))


@router.post("/login", include_in_schema=False, dependencies=[anyone])
async def submit_login(request: Request) -> Response:
    """Log in by that page."""
    form = await _form(request)
    target = _local(form.get("next", "/"))
    response = RedirectResponse(target, 303)
    try:
        request.app.state.gate.check_origin(request, strict=True)
        await log_in(request, response, form.get("name", "")[:LONGEST], form.get("password", "")[:LONGEST])
    except HttpProblem as problem:
        return pages.login_page(target, problem.detail, problem.status_code)
    return response


@router.get("/setup", include_in_schema=False, dependencies=[anyone])
async def show_setup(token: str = "") -> Response:
    """The page to make the first account."""
    return pages.setup_page(token)


@router.post("/setup", include_in_schema=False, dependencies=[anyone])
async def submit_setup(request: Request) -> Response:
    """Make the first account by that page."""
    form = await _form(request)
    token = form.get("token", "")
    response = RedirectResponse("/", 303)
    try:
        request.app.state.gate.check_origin(request, strict=True)
        body = TypeAdapter(Setup).validate_python(form)
        await set_up(request, response, body.token, body.name, body.password)
    except ValidationError:
        detail = (
            f"a name has letters, digits and . _ @ + - only, and a password at least {SHORTEST} characters"
        )
        return pages.setup_page(token, detail, 422)
    except HttpProblem as problem:
        return pages.setup_page(token, problem.detail, problem.status_code)
    return response


async def _form(request: Request) -> dict[str, str]:
    try:
        return dict(parse_qsl((await request.body()).decode(), max_num_fields=20))
    except ValueError:
        raise HttpProblem(400, "MALFORMED_FORM", "the body is not a form") from None


def _local(target: str) -> str:
    """A path of ours; anything else would send people away with our name on it."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain else "/"
