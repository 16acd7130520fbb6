"""Requests that are carried out once, and their answers, for a day."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from rune.history.database import Database

__all__ = ["Answer", "Claim", "Idempotency", "InProgress", "OtherRequest"]

KEPT = 24 * 3600.0
"""Seconds an answer is kept."""
HELD = 15.0
"""Seconds after which a request that has not been answered may be carried out by another."""


class Answer(Struct, frozen=True):
    """What a request was answered."""

    status: int
    headers: dict[str, str]
    body: str


class Claim(Struct, frozen=True):
    """The right to carry a request out."""

    scope: str
    key: str
    holder: str
    identity: str
    """The same for all who carry this request out, one after another: what they make is named after it."""


class OtherRequest(Exception):
    """The key was used for another request."""


class InProgress(Exception):
    """Somebody is carrying this request out."""


class Idempotency:
    """The keys of requests."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, scope: str, key: str, fingerprint: str) -> Claim | Answer:
        """The right to carry a request out, or its answer; OtherRequest or InProgress if neither."""
        now, holder = self._clock(), os.urandom(10).hex()
        row = (scope, key, fingerprint, holder, now + HELD, now + KEPT, now)
        (claimed,) = await self._database.write((_CLAIM, [row]))
        if claimed:
            return Claim(scope, key, holder, claimed[0]["identity"])
        found = await self._database.fetch_one(_READ, scope, key)
        if found is None:
            # Whoever had it has just let it go.
            raise InProgress
        if found["fingerprint"] != fingerprint:
            raise OtherRequest
        if found["status"] is None:
            raise InProgress
        return Answer(found["status"], msgspec.json.decode(found["headers"]), found["body"])

    async def settle(self, claim: Claim, answer: Answer) -> None:
        """Keep the answer; the first one stands."""
        headers = msgspec.json.encode(answer.headers).decode()
        row = (claim.scope, claim.key, claim.holder, answer.status, headers, answer.body)
        await self._database.write((_SETTLE, [row]))

    async def release(self, claim: Claim) -> None:
        """The request was refused, and nothing done: the key is free."""
        await self._database.write((_RELEASE, [(claim.scope, claim.key, claim.holder)]))

    async def abandon(self, claim: Claim) -> None:
        """The request may have been carried out in part: whoever sends it again goes on at once."""
        await self._database.write((_ABANDON, [(claim.scope, claim.key, claim.holder)]))

    async def forget(self) -> None:
        """Remove the answers that have been kept long enough."""
        await self._database.write((_FORGET, [(self._clock(),)]))


# Who takes over from one that died goes on under the same identity.
_CLAIM = """
INSERT INTO idempotency AS kept (scope, key, fingerprint, identity, holder, claimed_until, expires_at)
VALUES ($1, $2, $3, $4, $4, $5, $6)
ON CONFLICT (scope, key) DO UPDATE SET
    identity = CASE WHEN kept.expires_at <= $7 THEN excluded.identity ELSE kept.identity END,
    fingerprint = excluded.fingerprint,
    holder = excluded.holder,
    claimed_until = excluded.claimed_until,
    expires_at = excluded.expires_at,
    status = NULL, headers = NULL, body = NULL
WHERE kept.expires_at <= $7
    OR (kept.status IS NULL AND kept.claimed_until <= $7 AND kept.fingerprint = excluded.fingerprint)
RETURNING identity
"""
_READ = "SELECT fingerprint, status, headers, body FROM idempotency WHERE scope = $1 AND key = $2"
_SETTLE = """
UPDATE idempotency SET status = $4, headers = $5, body = $6
WHERE scope = $1 AND key = $2 AND holder = $3 AND status IS NULL
"""
_RELEASE = "DELETE FROM idempotency WHERE scope = $1 AND key = $2 AND holder = $3 AND status IS NULL"
_ABANDON = """
UPDATE idempotency SET claimed_until = 0 WHERE scope = $1 AND key = $2 AND holder = $3 AND status IS NULL
"""
_FORGET = "DELETE FROM idempotency WHERE expires_at <= $1"
