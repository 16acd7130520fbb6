"""Triggers: webhooks and schedules, and the links that end waits."""

from __future__ import annotations

import os
import time
from itertools import islice
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Query, Request, Response

from rune.history.triggers import Trigger
from rune.history.vault import WrongKey
from rune.master.answering import answer, iso, listed
from rune.master.limits import JsonRoute
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import HttpProblem, answers, conflict, not_found
from rune.master.schemas import ExecutionId, Page, TextQuery
from rune.master.schemas.triggers import (
    Fired,
    NewSchedule,
    NewTrigger,
    NewWebhook,
    ScheduleView,
    Timetable,
    TriggerChange,
    TriggerId,
    WaitingStep,
    WebhookView,
)
from rune.master.security.auditing import entry_for
from rune.master.security.roles import Principal, Role, needs
from rune.master.service import Master
from rune.master.triggers.authentication import NoAuth
from rune.master.triggers.configuration import ScheduleConfig
from rune.master.triggers.seals import Kept, NoKey
from rune.master.triggers.timetable import dues
from rune.master.triggers.tokens import Resumable, new_token, token_hash
from rune.master.triggers.triggering import Triggering

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["triggers"], route_class=JsonRoute)

Viewer = Annotated[Principal, needs(Role.VIEWER)]
Editor = Annotated[Principal, needs(Role.EDITOR)]
View = WebhookView | ScheduleView
_SHOWN = 5
"""Due times that are shown."""


@router.get("/triggers", response_model=Page[View], responses=answers(400))
async def list_triggers(
    request: Request,
    who: Viewer,
    workflow: TextQuery = None,
    kind: Annotated[str, Query(pattern="^(webhook|schedule|)$")] = "",
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
) -> Response:
    """Triggers, of one workflow or kind if asked for."""
    triggering = _triggering(request)
    start = unsealed("triggers", after) or ""
    found = await triggering.store.page(start, limit + 1, workflow or "", kind)
    next = sealed("triggers", found[limit - 1].id) if len(found) > limit else None
    return listed([_shown(triggering, trigger, who) for trigger in found[:limit]], next)


@router.post("/triggers", status_code=201, response_model=View, responses=answers(404, 409))
async def create_trigger(request: Request, body: Annotated[NewTrigger, Body()], who: Editor) -> Response:
    """Have a workflow started by calls of a URL, or at certain times; its published version is."""
    triggering = _triggering(request)
    await _known(request, body.workflow_id)
    now = time.time()
    trigger = Trigger(
        id=f"tr_{os.urandom(8).hex()}",
        workflow_id=body.workflow_id,
        kind=body.kind,
        config={},
        created_at=now,
        updated_at=now,
        created_by=who.name,
    )
    trigger = _filled(triggering, trigger, body, Kept(new_token()), now)
    await triggering.store.create(trigger, entry_for(request, "trigger.create", trigger.id, kind=body.kind))
    triggering.clock.wake()
    location = {"Location": f"/api/triggers/{trigger.id}"}
    return answer(_shown(triggering, trigger, who), 201, location)


@router.post("/triggers/preview", response_model=Timetable, dependencies=[needs(Role.VIEWER)])
async def preview_schedule(request: Request, body: ScheduleConfig) -> Response:
    """When a schedule would be due, before there is one."""
    return answer(_timetable(body, time.time()))


@router.get("/triggers/{id}", response_model=View, responses=answers(404))
async def read_trigger(request: Request, id: TriggerId, who: Viewer) -> Response:
    """One trigger."""
    return answer(_shown(_triggering(request), await _existing(request, id), who))


@router.put("/triggers/{id}", response_model=View, responses=answers(404, 409))
async def change_trigger(
    request: Request, id: TriggerId, body: Annotated[TriggerChange, Body()], who: Editor
) -> Response:
    """Change a trigger, if nobody else has meanwhile; its kind stays."""
    triggering = _triggering(request)
    trigger = await _existing(request, id)
    if body.kind != trigger.kind:
        raise conflict("OTHER_KIND", f"this is a {trigger.kind}; make a new trigger instead")
    if body.workflow_id != trigger.workflow_id:
        await _known(request, body.workflow_id)
    if body.version != trigger.version:
        raise _mismatch(trigger.version)
    kept = _kept(triggering, trigger) if trigger.sealed else Kept("")
    return await _replaced(request, _filled(triggering, trigger, body, kept, time.time()), who, "change")


@router.post("/triggers/{id}/enable", response_model=View, responses=answers(404, 409))
async def enable_trigger(request: Request, id: TriggerId, who: Editor) -> Response:
    """Let a trigger start executions; a schedule goes on with its next due time."""
    return await _switched(request, id, who, enabled=True)


@router.post("/triggers/{id}/disable", response_model=View, responses=answers(404, 409))
async def disable_trigger(request: Request, id: TriggerId, who: Editor) -> Response:
    """Let a trigger start nothing."""
    return await _switched(request, id, who, enabled=False)


@router.post("/triggers/{id}/rotate", response_model=WebhookView, responses=answers(404, 409))
async def rotate_trigger(request: Request, id: TriggerId, who: Editor) -> Response:
    """Give a webhook another URL; the old one is good for nothing from now on."""
    triggering = _triggering(request)
    trigger = await _existing(request, id)
    if trigger.kind != "webhook":
        raise conflict("OTHER_KIND", "only a webhook has a URL")
    kept = msgspec.structs.replace(_kept(triggering, trigger), token=new_token())
    changed = msgspec.structs.replace(
        trigger,
        version=trigger.version + 1,
        updated_at=time.time(),
        token_hash=token_hash(kept.token),
        sealed=triggering.seals.close(kept, id),
    )
    return await _replaced(request, changed, who, "rotate")


@router.delete(
    "/triggers/{id}",
    status_code=204,
    response_class=Response,
    dependencies=[needs(Role.EDITOR)],
    responses=answers(404),
)
async def delete_trigger(request: Request, id: TriggerId) -> Response:
    """Remove a trigger; the executions it started stay."""
    if not await _triggering(request).store.delete(id, entry_for(request, "trigger.delete", id)):
        raise not_found("trigger", id)
    return Response(status_code=204)


@router.get(
    "/triggers/{id}/firings",
    response_model=Page[Fired],
    dependencies=[needs(Role.VIEWER)],
    responses=answers(404),
)
async def list_firings(request: Request, id: TriggerId, limit: Limit = DEFAULT_LIMIT) -> Response:
    """The latest times at which a schedule was due, and what became of them."""
    await _existing(request, id)
    found = await _triggering(request).store.firings(id, limit)
    items = [
        {
            "due": iso(firing.due),
            "execution_id": firing.execution_id,
            "settled_at": iso(firing.settled_at),
            "error": firing.error,
        }
        for firing in found
    ]
    return listed(items, None)


@router.get(
    "/executions/{id}/waits",
    response_model=Page[WaitingStep],
    # Whoever has the URL can go on with the execution.
    dependencies=[needs(Role.OPERATOR)],
    responses=answers(404),
)
async def list_waits(
    request: Request, id: ExecutionId, limit: Limit = DEFAULT_LIMIT, after: After = None
) -> Response:
    """The steps of an execution that wait to be called, with the URLs that end their waits."""
    master: Master = request.app.state.master
    if not await master.history.changes.knows(id):
        raise not_found("execution", id)
    links = _triggering(request).links
    page = await links.waiting(id, limit=limit, cursor=unsealed("waits", after))
    items = [
        {
            "step": waiting.step,
            "node": waiting.node,
            "item": waiting.item,
            "since": iso(waiting.since),
            "url": await links.link(Resumable(id, step=waiting.step)),
        }
        for waiting in page.items
    ]
    return listed(items, sealed("waits", page.next))


# --- what these share ---


def _triggering(request: Request) -> Triggering:
    triggering: Triggering = request.app.state.master.triggering
    return triggering


async def _existing(request: Request, id: str) -> Trigger:
    trigger = await _triggering(request).store.get(id)
    if trigger is None:
        raise not_found("trigger", id)
    return trigger


async def _known(request: Request, workflow: str) -> None:
    if await request.app.state.master.history.workflows.get(workflow) is None:
        raise not_found("workflow", workflow)


def _mismatch(version: int) -> HttpProblem:
    return conflict("VERSION_MISMATCH", f"the trigger has changed: its version is now {version}")


def _filled(
    triggering: Triggering, trigger: Trigger, body: NewWebhook | NewSchedule, kept: Kept, now: float
) -> Trigger:
    """A trigger as the body asks for it, one version on if it was there before."""
    fresh = not trigger.config
    trigger = msgspec.structs.replace(
        trigger,
        workflow_id=body.workflow_id,
        name=body.name,
        enabled=body.enabled,
        config=body.config.model_dump(mode="json"),
        version=trigger.version + (not fresh),
        updated_at=now,
    )
    if isinstance(body, NewSchedule):
        return _scheduled(trigger, now)
    if isinstance(body.config.auth, NoAuth):
        kept = Kept(kept.token)
    elif body.secret is not None:
        kept = Kept(kept.token, body.secret)
    elif not kept.secret:
        message = "this kind of `auth` needs a secret"
        errors = [{"path": "/secret", "code": "missing", "message": message}]
        raise HttpProblem(422, "INVALID_REQUEST", f"/secret: {message}", errors=errors)
    return msgspec.structs.replace(
        trigger, token_hash=token_hash(kept.token), sealed=_sealed(triggering, kept, trigger.id)
    )


def _kept(triggering: Triggering, trigger: Trigger) -> Kept:
    try:
        return triggering.seals.open(trigger)
    except (WrongKey, NoKey):
        detail = (
            "what the trigger keeps cannot be read: it is sealed under a key that this master does not have"
        )
        raise HttpProblem(503, "NO_KEY", detail) from None


def _sealed(triggering: Triggering, kept: Kept, id: str) -> bytes:
    try:
        return triggering.seals.close(kept, id)
    except NoKey:
        detail = "there is no key to keep a secret under; set RUNE_KEY or RUNE_KEY_FILE"
        raise conflict("NO_KEY", detail) from None


def _scheduled(trigger: Trigger, now: float) -> Trigger:
    """With the time it is due next: the first one from now on."""
    if not trigger.enabled:
        return msgspec.structs.replace(trigger, next_due=None)
    timetable = ScheduleConfig.model_validate(trigger.config).timetable(trigger.created_at)
    return msgspec.structs.replace(trigger, next_due=timetable.after(now))


async def _switched(request: Request, id: str, who: Principal, *, enabled: bool) -> Response:
    trigger = await _existing(request, id)
    if trigger.enabled == enabled:
        return answer(_shown(_triggering(request), trigger, who))
    now = time.time()
    changed = msgspec.structs.replace(trigger, enabled=enabled, version=trigger.version + 1, updated_at=now)
    changed = _scheduled(changed, now) if changed.kind == "schedule" else changed
    return await _replaced(request, changed, who, "enable" if enabled else "disable")


async def _replaced(request: Request, changed: Trigger, who: Principal, verb: str) -> Response:
    triggering = _triggering(request)
    entry = entry_for(request, f"trigger.{verb}", changed.id, version=changed.version)
    if not await triggering.store.replace(changed, entry):
        raise _mismatch((await _existing(request, changed.id)).version)
    triggering.clock.wake()
    return answer(_shown(triggering, changed, who))


def _shown(triggering: Triggering, trigger: Trigger, who: Principal) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": trigger.id,
        "workflow_id": trigger.workflow_id,
        "kind": trigger.kind,
        "name": trigger.name,
        "enabled": trigger.enabled,
        "config": trigger.config,
        "version": trigger.version,
        "created_at": iso(trigger.created_at),
        "updated_at": iso(trigger.updated_at),
        "created_by": trigger.created_by,
    }
    if trigger.kind == "schedule":
        config = ScheduleConfig.model_validate(trigger.config)
        timetable = _timetable(config, trigger.created_at)
        return shown | timetable | ({} if trigger.enabled else {"next": []})
    may = who.role >= Role.OPERATOR
    try:
        kept = triggering.seals.open(trigger)
    except (WrongKey, NoKey):
        # While keys are changed, another master may know one that this does not.
        return shown | {"has_secret": None, "url": None, "test_url": None}
    return shown | {
        "has_secret": bool(kept.secret),
        "url": f"{triggering.address}/webhook/{kept.token}" if may else None,
        "test_url": f"{triggering.address}/webhook-test/{kept.token}" if may else None,
    }


def _timetable(config: ScheduleConfig, made_at: float) -> dict[str, Any]:
    timetable = config.timetable(made_at)
    times = islice(dues(timetable, time.time()), _SHOWN)
    return {"explanation": timetable.explain(), "next": [iso(due) for due in times]}
