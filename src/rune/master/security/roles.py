"""Roles, who has one, and the dependency by which a route says which one it needs."""

# FastAPI reads the annotations of `Needs.__call__` as they are, so they are not postponed here.

from enum import IntEnum
from typing import Any

from fastapi import Depends
from msgspec import Struct
from starlette.requests import HTTPConnection

__all__ = ["Needs", "Principal", "Role", "anyone", "needs"]


class Role(IntEnum):
    """What somebody may do; each role may do all that the ones before it may."""

    VIEWER = 1
    """Look at workflows, executions and their data."""
    OPERATOR = 2
    """Start, stop, redrive and remove executions."""
    EDITOR = 3
    """Change workflows, triggers and credentials."""
    ADMIN = 4
    """Manage accounts and see the audit log."""

    @property
    def word(self) -> str:
        """The role as the API names it."""
        return self.name.lower()


class Principal(Struct, frozen=True):
    """Who makes a request."""

    id: str
    """The account's id; empty where there are no accounts."""
    name: str
    role: Role
    via: str
    """`session`, `token`, or `open` where there are no accounts."""
    key: str = ""
    """The session's hash or the token's id."""


class Needs:
    """Lets a request through if its principal has a role; `None` lets everybody through."""

    def __init__(self, role: Role | None) -> None:
        self.role = role

    async def __call__(self, connection: HTTPConnection) -> Principal | None:
        if self.role is None:
            return None
        principal: Principal = await connection.app.state.gate.admit(connection, self.role)
        return principal


def needs(role: Role) -> Any:
    """A dependency: only those with this role or a higher one; it gives the Principal.

    Either `dependencies=[needs(Role.VIEWER)]` of a route, or `who: Annotated[Principal, needs(Role.EDITOR)]`.
    """
    return Depends(Needs(role))


anyone: Any = Depends(Needs(None))
"""A dependency that says that a route is meant for everybody: it guards itself, or has nothing to hide."""
