"""`Idempotency-Key`: a request that is sent again gets the first one's answer, and does nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Annotated

from fastapi import Header, Request, Response

from rune.core.errors import DefinitionError
from rune.history.idempotency import Answer, Claim, Idempotency, InProgress, OtherRequest
from rune.master.problems import HttpProblem

__all__ = ["IdempotencyKey", "once"]

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="A request sent again with the same key gets the first one's answer, for 24 hours.",
    ),
]

_PATIENCE = 10.0
"""Seconds to wait for somebody who carries the same request out."""
_KEPT_HEADERS = ("content-type", "location", "etag")


async def once(
    request: Request, who: str, key: str | None, work: Callable[[str], Awaitable[Response]]
) -> Response:
    """Have a POST carried out once for its key.

    `work` is given a text that is the same for every try of this request: ids that are made of it make
    even a try after a crash harmless.
    """
    if key is None:
        return await work(os.urandom(10).hex())
    keys: Idempotency = request.app.state.master.idempotency
    body = await request.body()
    fingerprint = blake2b(body, digest_size=16, key=request.url.query.encode()[:64]).hexdigest()
    found = await _claimed(keys, f"{who} {request.method} {request.url.path}", key, fingerprint)
    if isinstance(found, Answer):
        headers = {**found.headers, "Idempotency-Replayed": "true"}
        return Response(found.body.encode(), found.status, headers)
    return await _carried_out(keys, found, work)


async def _claimed(keys: Idempotency, scope: str, key: str, fingerprint: str) -> Claim | Answer:
    loop = asyncio.get_running_loop()
    patience, rest = loop.time() + _PATIENCE, 0.02
    while True:
        try:
            return await keys.claim(scope, key, fingerprint)
        except OtherRequest:
            detail = "this Idempotency-Key was used for a request with another body"
            raise HttpProblem(422, "IDEMPOTENCY_KEY_REUSED", detail) from None
        except InProgress:
            if loop.time() > patience:
                detail = "a request with this Idempotency-Key is being carried out; ask again"
                headers = {"Retry-After": "1"}
                raise HttpProblem(409, "IN_PROGRESS", detail, headers=headers) from None
        await asyncio.sleep(rest)
        rest = min(rest * 2, 0.5)


async def _carried_out(
    keys: Idempotency, claim: Claim, work: Callable[[str], Awaitable[Response]]
) -> Response:
    try:
        response = await work(claim.identity)
    except (HttpProblem, DefinitionError):
        await keys.release(claim)
        raise
    except BaseException:
        # How far it came is not known; whoever asked may have gone, too.
        await asyncio.shield(keys.abandon(claim))
        raise
    headers = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
    await keys.settle(claim, Answer(response.status_code, headers, bytes(response.body).decode()))
    return response
