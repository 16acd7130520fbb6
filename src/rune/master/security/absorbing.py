"""Definitions that carry a credential's values: the values go to the store, the reference stays."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from starlette.requests import Request

from rune.core.errors import ConflictError
from rune.history.credentials import CREDENTIAL_ID, CredentialStore
from rune.master.problems import HttpProblem, conflict, pointer
from rune.master.security.auditing import entry_for

__all__ = ["Carried", "keep_credentials", "part_credentials"]


class Carried(Struct, frozen=True):
    """A credential that came with a definition."""

    id: str
    name: str
    type: str
    data: dict[str, Any]


def part_credentials(definition: dict[str, Any] | None) -> tuple[dict[str, Any] | None, list[Carried]]:
    """A definition without values, and the credentials they make; nonsense is left to the checks."""
    nodes = definition.get("nodes") if definition else None
    if definition is None or not isinstance(nodes, list):
        return definition, []
    carried: list[Carried] = []
    parted = [_parted(node, n, carried) for n, node in enumerate(nodes)]
    return ({**definition, "nodes": parted}, carried) if carried else (definition, [])


def _parted(node: Any, place: int, carried: list[Carried]) -> Any:
    given = node.get("credentials") if isinstance(node, dict) else None
    values = given.get("values") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(values, dict):
        return node
    if not values:
        detail = "a credential's `values` are its fields, such as `token`, and there are none"
        path = pointer(("definition", "nodes", place, "credentials", "values"))
        error = {"path": path, "code": "EMPTY_CREDENTIAL", "message": detail}
        raise HttpProblem(422, "INVALID_REQUEST", detail, errors=[error])
    id = given.get("id") or CredentialStore.new_id()
    if not isinstance(id, str) or not re.fullmatch(CREDENTIAL_ID, id):
        return node
    reference = {key: value for key, value in given.items() if key != "values"} | {"id": id}
    carried.append(Carried(id, str(given.get("name") or id), str(given.get("type") or "generic"), values))
    return {**node, "credentials": reference}


async def keep_credentials(request: Request, carried: list[Carried], by: str) -> None:
    """Store what a definition brought; what is there already gets the new values."""
    store: CredentialStore | None = request.app.state.master.credentials
    if not carried:
        return
    if store is None:
        raise conflict("NO_KEY", "this master has no key to store credentials under; set RUNE_KEY")
    for each in carried:
        entry = entry_for(request, "credential.rotate", each.id)
        if await store.rotate(each.id, each.data, None, entry) is not None:
            continue
        entry = entry_for(request, "credential.create", each.id, type=each.type)
        try:
            await store.create(each.id, each.name, each.type, each.data, by, entry)
        except ConflictError:
            # Somebody has just made it.
            await store.rotate(each.id, each.data, None, entry_for(request, "credential.rotate", each.id))
