"""The node types that workflows can be made of."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from rune.core.node import NodeType
from rune.formats.schema import parameters_schema
from rune.master.answering import answer
from rune.master.schemas import Page
from rune.master.schemas.workflows import NodeKind
from rune.master.security.roles import Role, needs

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["workflows"])


@router.get("/nodes", response_model=Page[NodeKind], dependencies=[needs(Role.VIEWER)])
async def list_node_types(request: Request) -> Response:
    """Every node type, with the JSON Schema of its parameters."""
    registry = request.app.state.master.registry
    types = (registry.get(name) for name in registry.names())
    return answer({"items": [_described(type) for type in types if type is not None], "next": None})


def _described(type: type[NodeType]) -> dict[str, Any]:
    return {
        "name": type.name,
        "summary": (type.__doc__ or "").strip().partition("\n")[0],
        "role": type.role.value,
        "trigger": type.trigger,
        "ports": list(type.ports),
        "parameters": parameters_schema(type),
    }
