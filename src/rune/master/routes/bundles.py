"""Workflows on the move: all of them as one document, and back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from rune.core.errors import ConflictError
from rune.history.workflows import Draft, StoredWorkflow, VersionMismatch
from rune.master.answering import answer, raw
from rune.master.idempotency import IdempotencyKey, once
from rune.master.limits import JsonRoute
from rune.master.problems import HttpProblem, answers, conflict, flaws_as_errors, not_found
from rune.master.routes.workflows import RESERVED, Editor, settled
from rune.master.schemas import Id
from rune.master.schemas.workflows import Bundle, BundledWorkflow, Imported
from rune.master.security.auditing import audit
from rune.master.security.roles import Role, needs
from rune.master.service import Master
from rune.master.sources import Compiled, compile_definition

__all__ = ["router"]

router = APIRouter(prefix="/api/workflows", tags=["workflows"], route_class=JsonRoute)

_PAGE = 200


@router.get("/export", response_model=Bundle, dependencies=[needs(Role.VIEWER)], responses=answers(404))
async def export_workflows(
    request: Request,
    id: Annotated[list[Id] | None, Query(max_length=100, description="Only these.")] = None,
) -> Response:
    """The latest versions of all workflows, or of some. Credentials are named in it, never contained."""
    workflows = request.app.state.master.history.workflows
    found: list[StoredWorkflow] = []
    if id is not None:
        for each in dict.fromkeys(id):
            stored = await workflows.get(each)
            if stored is None:
                raise not_found("workflow", each)
            found.append(stored)
    else:
        cursor = None
        while True:
            page = await workflows.list(limit=_PAGE, cursor=cursor)
            found += page.items
            cursor = page.next
            if cursor is None:
                break
    headers = {"Content-Disposition": 'attachment; filename="workflows.json"'}
    bundle = {"format": "rune-workflows", "version": 1, "workflows": [_bundled(each) for each in found]}
    return answer(bundle, headers=headers)


def _bundled(stored: StoredWorkflow) -> dict[str, Any]:
    return {
        "id": stored.id,
        "name": stored.name,
        "description": stored.description,
        "format": stored.format,
        "definition": raw(stored.definition),
        "source": stored.source,
        "published": stored.published == stored.version,
    }


@router.post("/import", response_model=Imported, responses=answers(409))
async def import_workflows(
    request: Request, body: Bundle, who: Editor, idempotency_key: IdempotencyKey = None
) -> Response:
    """Keep all workflows of a bundle, or none if one is wrong; those that exist get a new version."""
    master: Master = request.app.state.master

    async def bring_in(_: str) -> Response:
        drafts = _drafts(body, master, who.name)
        done: dict[str, list[str]] = {"created": [], "updated": [], "unchanged": []}
        for id, draft in drafts.items():
            done[await _kept(master, id, draft)].append(id)
        await audit(request, "workflow.import", "", **{word: len(ids) for word, ids in done.items()})
        return answer(done)

    return await once(request, who.id, idempotency_key, bring_in)


def _drafts(bundle: Bundle, master: Master, author: str) -> dict[str, Draft]:
    """What to keep, once all of it is found right."""
    drafts: dict[str, Draft] = {}
    errors: list[dict[str, Any]] = []
    for index, each in enumerate(bundle.workflows):
        where = ("workflows", str(index))
        if each.id in drafts or each.id in RESERVED:
            message = f"the id {each.id!r} is " + ("there twice" if each.id in drafts else "reserved")
            errors.append({"path": f"/workflows/{index}/id", "code": "INVALID_ID", "message": message})
            continue
        compiled = compile_definition(each.definition, master.registry, each.format)
        if compiled.flow is None:
            errors += flaws_as_errors(compiled.problems, (*where, "definition"))
        drafts[each.id] = _draft(each, compiled, author)
    if errors:
        raise HttpProblem(422, "INVALID_WORKFLOW", "a workflow of the bundle cannot be run", errors=errors)
    return drafts


def _draft(each: BundledWorkflow, compiled: Compiled, author: str) -> Draft:
    return Draft(
        name=each.name or each.id,
        definition=settled(compiled, each.id),
        source=each.source,
        format=compiled.format,
        description=each.description or "",
        note="imported",
        author=author,
        publish=each.published,
    )


async def _kept(master: Master, id: str, draft: Draft) -> Literal["created", "updated", "unchanged"]:
    workflows = master.history.workflows
    try:
        stored = await workflows.get(id)
        if stored is None:
            await workflows.create(draft, id)
            return "created"
        same = (stored.definition, stored.source, stored.name, stored.description) == (
            draft.definition,
            draft.source,
            draft.name,
            draft.description,
        )
        if same and (not draft.publish or stored.published == stored.version):
            return "unchanged"
        await workflows.update(id, stored.version, draft)
    except (ConflictError, VersionMismatch):
        raise conflict("EXISTS", f"the workflow {id!r} was deleted here, or has just been changed") from None
    return "updated"
