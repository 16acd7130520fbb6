"""Calls from outside that need no account: webhooks, which guard themselves, and links that end waits."""

from __future__ import annotations

import time
from html import escape
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Raw

from rune.core.ids import derive, new_execution_id
from rune.core.result import payload_of
from rune.history.executions import Execution
from rune.history.triggers import Trigger
from rune.history.vault import WrongKey
from rune.master.answering import answer
from rune.master.problems import HttpProblem, not_found
from rune.master.results import whole_result
from rune.master.security.roles import anyone
from rune.master.service import Master
from rune.master.triggers.calling import allowance, called_with, check, is_preflight, preflight
from rune.master.triggers.configuration import WebhookConfig
from rune.master.triggers.payload import BadPayload, read_body
from rune.master.triggers.resuming import NotWaiting, UnknownLink, Waiting
from rune.master.triggers.seals import NoKey
from rune.master.triggers.starting import Refused
from rune.master.triggers.tokens import token_hash

__all__ = ["router"]

router = APIRouter(dependencies=[anyone], include_in_schema=False)

_ANY = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_LONGEST_KEY = 200
_MAX_PAYLOAD = 1024 * 1024


# --- webhooks ---


@router.api_route("/webhook/{token}", methods=_ANY)
@router.api_route("/webhook/{token}/{path:path}", methods=_ANY)
async def call_webhook(request: Request, token: str) -> Response:
    """Start the published version of the workflow."""
    return await _called(request, token, test=False)


@router.api_route("/webhook-test/{token}", methods=_ANY)
@router.api_route("/webhook-test/{token}/{path:path}", methods=_ANY)
async def test_webhook(request: Request, token: str) -> Response:
    """Start the latest version, published or not; its execution is marked as a test."""
    return await _called(request, token, test=True)


async def _called(request: Request, token: str, *, test: bool) -> Response:
    master: Master = request.app.state.master
    trigger = await master.triggering.store.by_token(token_hash(token))
    if trigger is None or not (trigger.enabled or test):
        raise HttpProblem(404, "NOT_FOUND", "there is no such webhook")
    config = WebhookConfig.model_validate(trigger.config)
    if is_preflight(request):
        return Response(status_code=204, headers=preflight(config, request))
    try:
        response = await _answered(master, request, trigger, config, test)
    except HttpProblem as problem:
        problem.headers = {**(problem.headers or {}), **allowance(config, request)}
        raise
    response.headers.update(allowance(config, request))
    return response


async def _answered(
    master: Master, request: Request, trigger: Trigger, config: WebhookConfig, test: bool
) -> Response:
    try:
        secret = master.triggering.seals.open(trigger).secret
    except (WrongKey, NoKey):
        raise HttpProblem(503, "NO_KEY", "the webhook's secret cannot be read") from None
    body = await check(config, secret, request, time.time())
    input = Raw(msgspec.json.encode(called_with(config, request, body)))
    id = _execution_id(request, trigger, config, test)
    with master.endings.expecting(id) as ending:
        try:
            await master.triggering.starter.start(trigger, id, input, test=test)
        except Refused as refused:
            raise HttpProblem(404, "NOTHING_TO_START", str(refused)) from None
        if config.respond == "at_once":
            return _accepted(id, config.status or 202)
        ended = await ending.wait(config.timeout)
    if ended is None:
        if config.on_timeout == 202:
            return _accepted(id, 202)
        raise HttpProblem(504, "TIMEOUT", f"the execution {id} has not ended in time")
    return await _result(master, config, ended)


def _execution_id(request: Request, trigger: Trigger, config: WebhookConfig, test: bool) -> str:
    """A new one, or the one that the call's name stands for."""
    key = request.headers.get(config.dedupe_header, "") if config.dedupe_header else ""
    if not key:
        return new_execution_id()
    if len(key) > _LONGEST_KEY:
        raise HttpProblem(400, "BAD_PAYLOAD", f"{config.dedupe_header} is longer than {_LONGEST_KEY} letters")
    return f"exec_{derive(trigger.id, '~test' if test else '~call', key)}"


def _accepted(execution: str, status: int) -> Response:
    return answer({"execution_id": execution}, status)


async def _result(master: Master, config: WebhookConfig, ended: Execution) -> Response:
    if ended.status != "completed":
        raise HttpProblem(500, "EXECUTION_FAILED", f"the execution {ended.id} {ended.status}")
    result = await whole_result(master, ended)
    if config.response_node is None:
        return answer(result, config.status or 200)
    output = msgspec.json.decode(result, type=dict[str, Raw] | None) or {}
    if f"${config.response_node}" not in output:
        raise HttpProblem(500, "NO_OUTPUT", f"{config.response_node!r} has not run in {ended.id}")
    return answer(payload_of(output[f"${config.response_node}"]), config.status or 200)


# --- links that end waits ---


@router.api_route("/resume/{token}", methods=["GET", "HEAD"])
@router.api_route("/resume/{token}/{items:path}", methods=["GET", "HEAD"])
async def show_wait(request: Request, token: str, items: str = "") -> Response:
    """A page that asks; looking at a link, as many programs do to every link, changes nothing."""
    waiting = await _waiting(request, token, items)
    return _page(
        "Go on?",
        f"The step <b>{escape(waiting.node)}</b> of the execution <b>{escape(waiting.execution)}</b> "
        "waits for an answer.",
        '<form method="post"><button>Go on</button></form>',
    )


@router.post("/resume/{token}")
@router.post("/resume/{token}/{items:path}")
async def end_wait(request: Request, token: str, items: str = "") -> Response:
    """End a wait, once; the body becomes the payload."""
    master: Master = request.app.state.master
    waiting = await _waiting(request, token, items)
    payload = await _payload(request)
    try:
        await master.triggering.links.resume(waiting, Raw(msgspec.json.encode(payload)))
    except NotWaiting:
        raise _over() from None
    if "text/html" in request.headers.get("accept", ""):
        return _page("Thank you", "The execution goes on.", "")
    return answer({"resumed": True, "execution_id": waiting.execution, "node": waiting.node})


async def _waiting(request: Request, token: str, items: str) -> Waiting:
    master: Master = request.app.state.master
    numbers = items.split("/") if items else []
    if len(numbers) > 50 or not all(n.isascii() and n.isdigit() and len(n) < 12 for n in numbers):
        raise not_found("link", items)
    try:
        return await master.triggering.links.find(token, [int(number) for number in numbers])
    except UnknownLink:
        raise HttpProblem(404, "NOT_FOUND", "there is no such link") from None
    except NotWaiting as not_waiting:
        if not_waiting.over:
            raise _over() from None
        detail = "nothing waits for this link yet; try again"
        raise HttpProblem(409, "NOT_WAITING", detail, headers={"Retry-After": "2"}) from None


def _over() -> HttpProblem:
    return HttpProblem(410, "GONE", "this link was used, or what it was for has ended")


async def _payload(request: Request) -> Any:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_PAYLOAD:
            raise HttpProblem(413, "TOO_LARGE", f"the body is longer than {_MAX_PAYLOAD:,} bytes")
    try:
        return read_body(bytes(body), request.headers.get("content-type", ""))
    except BadPayload as error:
        raise HttpProblem(400, "BAD_PAYLOAD", str(error)) from None


def _page(title: str, text: str, form: str) -> Response:
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
        f"<h1>{title}</h1><p>{text}</p>{form}</html>"
    )
    return Response(page, media_type="text/html", headers={"Cache-Control": "no-store"})
