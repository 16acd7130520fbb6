"""Workflows: what can be run, in versions that never change."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response

from rune.core.errors import ConflictError
from rune.history.workflows import Draft, StoredWorkflow, VersionMismatch, WorkflowVersion
from rune.master.answering import answer, iso, listed, raw
from rune.master.idempotency import IdempotencyKey, once
from rune.master.limits import JsonRoute
from rune.master.linking import compile_linked
from rune.master.paging import DEFAULT_LIMIT, After, Limit, sealed, unsealed
from rune.master.problems import HttpProblem, answers, conflict, not_found
from rune.master.schemas import Page, TextQuery, VersionNumber, WorkflowId
from rune.master.schemas.workflows import (
    Diff,
    Graph,
    NewWorkflow,
    Publish,
    Source,
    Validation,
    Version,
    VersionDetail,
    Workflow,
    WorkflowChange,
    WorkflowSummary,
)
from rune.master.security.absorbing import keep_credentials, part_credentials
from rune.master.security.auditing import audit
from rune.master.security.roles import Principal, Role, needs
from rune.master.service import Master
from rune.master.sources import Compiled, compile_definition, differences, drawn, flaws

__all__ = ["router"]

router = APIRouter(prefix="/api/workflows", tags=["workflows"], route_class=JsonRoute)

Editor = Annotated[Principal, needs(Role.EDITOR)]

RESERVED = frozenset({"export", "import", "validate"})
"""Ids that a workflow cannot have, for its address would be another thing's."""


@router.get("", response_model=Page[WorkflowSummary], dependencies=[needs(Role.VIEWER)])
async def list_workflows(
    request: Request, text: TextQuery = None, limit: Limit = DEFAULT_LIMIT, after: After = None
) -> Response:
    """Workflows by name; `text` is looked for in name, description and id."""
    master: Master = request.app.state.master
    page = await master.history.workflows.list(
        text=text or "", limit=limit, cursor=unsealed("workflows", after)
    )
    return listed(map(_summary, page.items), sealed("workflows", page.next))


@router.post("", status_code=201, response_model=Workflow, responses=answers(409))
async def create_workflow(
    request: Request, body: NewWorkflow, who: Editor, idempotency_key: IdempotencyKey = None
) -> Response:
    """Keep a workflow. Its id is the definition's `workflow_id`, or a new one."""
    master: Master = request.app.state.master

    async def create(identity: str) -> Response:
        definition, carried = part_credentials(body.definition)
        compiled = await compile_linked(
            master.history.workflows, master.registry, definition, body.source, body.format
        )
        flow = compiled.runnable()
        named = compiled.format != "graph" or "workflow_id" in compiled.definition
        id = flow.id if named else f"wf_{identity[:20]}"
        draft = drafted(body, compiled, id, who.name)
        if not await master.history.workflows.is_taken(id):
            # What is refused leaves no trace.
            await keep_credentials(request, carried, who.name)
        try:
            stored = await master.history.workflows.create(draft, id)
        except ConflictError:
            existing = await master.history.workflows.get(id)
            if existing is None:
                detail = f"a workflow {id!r} was deleted, and its versions stay; give this one another id"
                raise conflict("DELETED", detail) from None
            # A try before this one may have come as far as here.
            if idempotency_key is None or existing.definition != draft.definition:
                detail = f"there is a workflow {id!r}; change it, or give this one another id"
                raise conflict("EXISTS", detail) from None
            stored = existing
        await audit(request, "workflow.create", id)
        headers = {"Location": f"/api/workflows/{id}", "ETag": _etag(stored.version)}
        return answer(_whole(stored), 201, headers)

    return await once(request, who.id, idempotency_key, create)


@router.post("/validate", response_model=Validation, dependencies=[needs(Role.VIEWER)])
async def validate_workflow(request: Request, body: Source) -> Response:
    """Say everything that is wrong with a workflow, and draw it as far as possible. Nothing is kept."""
    master: Master = request.app.state.master
    registry = master.registry
    compiled = await compile_linked(
        master.history.workflows, registry, body.definition, body.source, body.format
    )
    return answer(
        {
            "valid": compiled.flow is not None,
            "problems": flaws(compiled.problems),
            "graph": drawn(compiled, registry),
        }
    )


@router.get("/{id}", response_model=Workflow, dependencies=[needs(Role.VIEWER)], responses=answers(404))
async def read_workflow(request: Request, id: WorkflowId) -> Response:
    """A workflow with its latest definition."""
    stored = await existing(request, id)
    return answer(_whole(stored), headers={"ETag": _etag(stored.version)})


@router.put("/{id}", response_model=Workflow, responses=answers(404, 409, 412, 428))
async def change_workflow(
    request: Request,
    id: WorkflowId,
    body: WorkflowChange,
    who: Editor,
    if_match: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Add a version, if nobody else has meanwhile: say which one you changed, in `version` or `If-Match`."""
    master: Master = request.app.state.master
    definition, carried = part_credentials(body.definition)
    compiled = await compile_linked(
        master.history.workflows, master.registry, definition, body.source, body.format, id=id
    )
    compiled.runnable()
    changed = await _changed_version(request, id, body, if_match)
    try:
        if (current := await existing(request, id)).version != changed:
            raise VersionMismatch(current.version)
        await keep_credentials(request, carried, who.name)
        stored = await master.history.workflows.update(id, changed, drafted(body, compiled, id, who.name))
    except VersionMismatch as error:
        raise HttpProblem(412 if if_match else 409, "VERSION_MISMATCH", str(error)) from None
    if stored is None:
        raise not_found("workflow", id)
    await audit(request, "workflow.change", id, version=stored.version)
    return answer(_whole(stored), headers={"ETag": _etag(stored.version)})


async def _changed_version(request: Request, id: str, body: WorkflowChange, if_match: str | None) -> int:
    if if_match == "*":
        return (await existing(request, id)).version
    if if_match is not None:
        number = if_match.removeprefix("W/").strip('"')
        if not number.isdecimal() or len(number) > 9:
            raise HttpProblem(412, "VERSION_MISMATCH", "`If-Match` must be the ETag of the workflow")
        return int(number)
    if body.version is None:
        raise HttpProblem(428, "VERSION_NEEDED", "say in `version` or `If-Match` which version you changed")
    return body.version


@router.delete(
    "/{id}",
    status_code=204,
    response_class=Response,
    dependencies=[needs(Role.EDITOR)],
    responses=answers(404),
)
async def delete_workflow(request: Request, id: WorkflowId) -> Response:
    """Let nobody see or start it any more; its executions stay."""
    if not await request.app.state.master.history.workflows.delete(id):
        raise not_found("workflow", id)
    await audit(request, "workflow.delete", id)
    return Response(status_code=204)


@router.post(
    "/{id}/publish", response_model=Workflow, dependencies=[needs(Role.EDITOR)], responses=answers(404)
)
async def publish_workflow(request: Request, id: WorkflowId, body: Publish) -> Response:
    """Choose the version that triggers start, or none."""
    if not await request.app.state.master.history.workflows.publish(id, body.version):
        await existing(request, id)
        raise not_found(f"version of {id!r}", body.version)
    await audit(request, "workflow.publish", id, version=body.version)
    return answer(_whole(await existing(request, id)))


@router.get("/{id}/graph", response_model=Graph, dependencies=[needs(Role.VIEWER)], responses=answers(404))
async def draw_workflow(request: Request, id: WorkflowId) -> Response:
    """The latest version as something to draw."""
    definition = msgspec.json.decode((await existing(request, id)).definition)
    registry = request.app.state.master.registry
    return answer(drawn(compile_definition(definition, registry), registry))


# --- versions ---


@router.get(
    "/{id}/versions",
    response_model=Page[Version],
    dependencies=[needs(Role.VIEWER)],
    responses=answers(404),
)
async def list_versions(
    request: Request, id: WorkflowId, limit: Limit = DEFAULT_LIMIT, after: After = None
) -> Response:
    """A workflow's versions, the latest first."""
    master: Master = request.app.state.master
    page = await master.history.workflows.versions(id, limit=limit, cursor=unsealed("versions", after))
    if not page.items and after is None:
        raise not_found("workflow", id)
    return listed(map(_version, page.items), sealed("versions", page.next))


@router.get(
    "/{id}/versions/{version}",
    response_model=VersionDetail,
    dependencies=[needs(Role.VIEWER)],
    responses=answers(404),
)
async def read_version(request: Request, id: WorkflowId, version: VersionNumber) -> Response:
    """One version, with its definition."""
    found = await _existing_version(request, id, version)
    return answer({**_version(found), "definition": raw(found.definition), "source": found.source})


@router.get(
    "/{id}/versions/{version}/diff",
    response_model=Diff,
    dependencies=[needs(Role.VIEWER)],
    responses=answers(404),
)
async def compare_versions(
    request: Request,
    id: WorkflowId,
    version: VersionNumber,
    from_: Annotated[
        VersionNumber | None, Query(alias="from", description="The version before, if not given.")
    ] = None,
) -> Response:
    """What changed from one version to another."""
    earlier = from_ if from_ is not None else max(version - 1, 1)
    after = msgspec.json.decode((await _existing_version(request, id, version)).definition)
    before = msgspec.json.decode((await _existing_version(request, id, earlier)).definition)
    return answer({"from": earlier, "to": version, "changes": differences(before, after)})


# --- what these share ---


def drafted(body: NewWorkflow, compiled: Compiled, id: str, author: str) -> Draft:
    """What is kept of a workflow that somebody sends."""
    if id in RESERVED:
        raise HttpProblem(422, "RESERVED_ID", f"a workflow cannot have the id {id!r}")
    name = body.name or compiled.runnable().name
    return Draft(
        name=name.replace("\0", "")[:200],
        definition=settled(compiled, id),
        source=body.source,
        format=compiled.format,
        description=body.description or "",
        note=body.note or "",
        author=author,
        publish=body.publish,
    )


def settled(compiled: Compiled, id: str) -> str:
    """A definition as it is kept: a graph says the id that the workflow has here."""
    definition = compiled.definition
    if compiled.format == "graph":
        definition = {**definition, "workflow_id": id}
    return msgspec.json.encode(definition).decode()


async def existing(request: Request, id: str) -> StoredWorkflow:
    """A workflow; 404 if there is none."""
    found: StoredWorkflow | None = await request.app.state.master.history.workflows.get(id)
    if found is None:
        raise not_found("workflow", id)
    return found


async def _existing_version(request: Request, id: str, version: int) -> WorkflowVersion:
    found: WorkflowVersion | None = await request.app.state.master.history.workflows.version(id, version)
    if found is None:
        raise not_found(f"version of {id!r}", version)
    return found


def _etag(version: int) -> str:
    return f'"{version}"'


def _summary(stored: StoredWorkflow) -> dict[str, Any]:
    return {
        "id": stored.id,
        "name": stored.name,
        "description": stored.description,
        "format": stored.format,
        "version": stored.version,
        "published": stored.published,
        "created_at": iso(stored.created_at),
        "updated_at": iso(stored.updated_at),
    }


def _whole(stored: StoredWorkflow) -> dict[str, Any]:
    return {**_summary(stored), "definition": raw(stored.definition), "source": stored.source}


def _version(found: WorkflowVersion) -> dict[str, Any]:
    return {
        "workflow_id": found.workflow_id,
        "version": found.version,
        "hash": found.hash,
        "note": found.note,
        "author": found.author,
        "created_at": iso(found.created_at),
    }
