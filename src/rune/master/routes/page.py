"""The page at `/`, and the files it is made of."""

from __future__ import annotations

from functools import cache
from hashlib import sha256

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from rune.master.problems import HttpProblem, answers, not_found
from rune.master.security.roles import Role, anyone
from rune.web import assets

__all__ = ["router"]

router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/", dependencies=[anyone])
async def page(request: Request) -> Response:
    """The page, for whoever may look; others are sent to log in."""
    try:
        await request.app.state.gate.admit(request, Role.VIEWER)
    except HttpProblem as problem:
        if problem.status_code != 401:
            raise
        return RedirectResponse("/login?next=/", 303)
    return _answer(request, "index.html")


@router.get("/web/{path:path}", dependencies=[anyone], responses=answers(404))
async def asset(request: Request, path: str) -> Response:
    """One of its files; there is nothing to hide in them."""
    return _answer(request, path)


@router.get("/favicon.ico", dependencies=[anyone])
async def icon(request: Request) -> Response:
    """What browsers ask for unasked."""
    return _answer(request, "rune.svg")


def _answer(request: Request, path: str) -> Response:
    found = _files().get(path)
    if found is None:
        raise not_found("file", path)
    data, kind, tag = found
    # Asked for again each time, and sent only if it is another: a new version is seen at once.
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    return {
        path: (data, kind, f'"{sha256(data).hexdigest()[:16]}"') for path, (data, kind) in assets().items()
    }
