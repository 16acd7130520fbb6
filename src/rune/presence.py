"""Saying that this process takes part, for as long as it does."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from rune import __version__
from rune.core.holding import Member

if TYPE_CHECKING:
    from rune.backends.redis.members import Members

__all__ = ["present"]

_BEAT = 5.0
"""Seconds between two signs of life."""
_PATIENCE = 2.0
"""Seconds in which we take our leave, if anybody hears it."""


@asynccontextmanager
async def present(
    members: Members,
    role: str,
    *,
    concurrency: int = 0,
    queues: Sequence[str] = (),
    running: Callable[[], int] = lambda: 0,
) -> AsyncIterator[None]:
    """Have this process listed among the members meanwhile."""
    member = Member(
        id=f"{role}-{secrets.token_hex(6)}",
        role=role,
        host=socket.gethostname(),
        pid=os.getpid(),
        since=time.time(),
        version=__version__,
        concurrency=concurrency,
        queues=tuple(queues),
    )
    beating = asyncio.create_task(_beat(members, member, running))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        with suppress(TimeoutError):
            await asyncio.wait_for(members.leave(member.id), _PATIENCE)


async def _beat(members: Members, member: Member, running: Callable[[], int]) -> None:
    while True:
        await members.announce(msgspec.structs.replace(member, running=running()))
        await asyncio.sleep(_BEAT)
