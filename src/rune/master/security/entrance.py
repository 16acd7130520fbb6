"""Coming in and going out: passwords for sessions, and the cookie that carries them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from rune.history.accounts import Account
from rune.master.problems import HttpProblem
from rune.master.security.auditing import address_of, audit, entry_for
from rune.master.security.bearers import digest, new_secret
from rune.master.security.gate import Gate
from rune.master.security.roles import Principal, Role

__all__ = ["begin_session", "check_password", "forget_cookie", "log_in", "set_up"]


async def log_in(request: Request, response: Response, name: str, password: str) -> Account:
    """Begin a session of the account with this name and password; a problem if there is none."""
    gate: Gate = request.app.state.gate
    if not gate.required:
        raise HttpProblem(
            409, "NO_ACCOUNTS", "there are no accounts here: everybody on this machine is an admin"
        )
    account = await check_password(request, name, password)
    if account is None:
        await audit(request, "login", name, "denied")
        raise HttpProblem(401, "WRONG_PASSWORD", "the name or the password is wrong")
    await begin_session(request, response, account)
    await audit(request, "login", account.name)
    return account


async def check_password(request: Request, name: str, password: str) -> Account | None:
    """The account with this name and password; a problem if there were too many attempts lately."""
    gate: Gate = request.app.state.gate
    name, address = name.lower(), address_of(request)
    wait = gate.throttle.attempt(name, address)
    if wait > 0:
        await audit(request, "login", name, "denied", reason="too many attempts")
        headers = {"Retry-After": str(int(wait) + 1)}
        raise HttpProblem(429, "TOO_MANY_ATTEMPTS", "too many attempts; try again later", headers=headers)
    found = await gate.accounts.password(name)
    account, kept = found if found else (None, None)
    right = await gate.passwords.verify(kept, password)
    if account is None or kept is None or not right or account.disabled:
        return None
    gate.throttle.succeeded(name, address)
    newer = await gate.passwords.hash(password) if gate.passwords.is_outdated(kept) else None
    await gate.accounts.logged_in(account.id, newer)
    return account


async def begin_session(request: Request, response: Response, account: Account) -> None:
    """Give the browser a new session, in place of one that it may have had."""
    gate: Gate = request.app.state.gate
    name, secret = gate.cookie(request), new_secret()
    old = digest(request.cookies.get(name, ""))
    agent = request.headers.get("user-agent", "")
    await gate.sessions.begin(digest(secret), account, address_of(request), agent, old)
    request.state.principal = Principal(
        account.id, account.name, Role(account.role), "session", digest(secret)
    )
    response.set_cookie(
        name, secret, path="/", httponly=True, samesite="strict", secure=gate.is_secure(request)
    )


def forget_cookie(request: Request, response: Response) -> None:
    """Have the browser forget its session."""
    gate: Gate = request.app.state.gate
    response.delete_cookie(
        gate.cookie(request), path="/", httponly=True, samesite="strict", secure=gate.is_secure(request)
    )


async def set_up(request: Request, response: Response, token: str, name: str, password: str) -> Account:
    """Make the first account, an admin, and begin its session; a problem unless the token is good."""
    gate: Gate = request.app.state.gate
    refused = HttpProblem(
        403, "WRONG_SETUP_TOKEN", "this set-up link was used or is too old; start the master again"
    )
    if not await gate.accounts.expects(digest(token)):
        raise refused
    hashed = await gate.passwords.hash(password)
    entry = entry_for(request, "user.create", name.lower(), first=True)
    account = await gate.accounts.create_first(name, hashed, entry, setup=digest(token))
    if account is None:
        raise refused
    await begin_session(request, response, account)
    return account
