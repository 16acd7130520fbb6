"""Pages of a web service: by number, or each by what the one before says of the next."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urljoin

import msgspec
from msgspec import Struct

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.node import Portion, StepContext
from rune.core.sources import Pages
from rune.nodes._http_request import Request, Url, parse_url
from rune.nodes.http import RETRYABLE, Http

__all__ = ["read_page"]


class _Place(Struct, omit_defaults=True):
    """The page to read, and what tells whether pages repeat themselves."""

    page: int = 0
    url: str = ""
    cursor: Any = None
    last: str = ""
    """Of the page before, its digest: of its items where pages have numbers, else of its address."""
    mark: str = ""
    """The digest of an earlier page. It moves up ever more rarely (Brent's algorithm), so that circles of any
    length are found with one mark."""
    since: int = 0
    """Pages since the mark."""
    lap: int = 1
    """Pages until it moves up."""


async def read_page(source: Pages, context: StepContext, position: Any) -> Portion:
    """The items of one page."""
    credential = await context.credential(source.auth)
    place = _Place(source.first) if position is None else msgspec.convert(position, _Place)
    body = await _fetch(source, context, credential, place)
    items = _items(source, body)
    if source.page:
        following, digest = (_Place(place.page + 1) if items else None), _digest(items)
    else:
        following = _following(source, place, _found(body, source.next), bool(credential))
        digest = _digest([place.url, place.cursor])
    if following is None:
        return Portion(items)
    _mark(source, place, following, digest)
    return Portion(items, msgspec.to_builtins(following))


def _following(source: Pages, place: _Place, said: Any, signed: bool) -> _Place | None:
    if said is None or said is False or said == "":
        return None
    if source.cursor:
        return _Place(cursor=said)
    if not isinstance(said, str):
        raise NodeError(
            f"`next`: at '{source.next}' is {kind_of(said)}, not a URL; for a cursor, say in `cursor` which "
            "parameter takes it",
            "SOURCE_NEXT",
        )
    before = place.url or source.url
    address = _address(said, before)
    if (source.headers or signed) and address.origin != _address(source.url).origin:
        where = msgspec.structs.replace(address, path="", query="")
        raise NodeError(
            f"the next page is at {where}, another place than `url`: what signs the first request is not "
            "sent there",
            "SOURCE_NEXT",
        )
    return _Place(url=urljoin(before, said))


def _address(text: str, base: str = "") -> Url:
    return parse_url(text, Request(method="GET", url=text), base)


def _mark(source: Pages, place: _Place, following: _Place, digest: str) -> None:
    """Refuse to go in circles: not to where we are, nor to where we have been."""
    same = not source.page and (following.url, following.cursor) == (place.url, place.cursor)
    if same or digest in (place.last, place.mark):
        what, name = (f"page {place.page}", "page") if source.page else ("the next of a page", "next")
        raise NodeError(
            f"the pages repeat themselves: {what} came before, so that they would never end; see whether "
            f"`{name}` is right",
            "SOURCE_ENDLESS",
        )
    following.last = digest
    if not place.mark or place.since + 1 == place.lap:
        following.mark, following.since, following.lap = digest, 0, place.lap * 2
    else:
        following.mark, following.since, following.lap = place.mark, place.since + 1, place.lap


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value)).hexdigest()[:32]


def _items(source: Pages, body: Any) -> list[Any]:
    found = _found(body, source.items)
    if found is None and source.items and isinstance(body, dict):
        outer, _, name = source.items.rpartition(".")
        holder = _found(body, outer)
        if isinstance(holder, dict) and name in holder:
            return []
    if not isinstance(found, list):
        where = f"at '{source.items}'" if source.items else "the answer itself"
        raise NodeError(
            f"`items`: {where} is {kind_of(found)}, not a list",
            "SOURCE_NOT_LIST",
            {"type": kind_of(found)},
        )
    return found


def _found(body: Any, path: str) -> Any:
    """What is at a path such as `data.users`; None where nothing is."""
    for name in path.split(".") if path else ():
        if isinstance(body, dict):
            body = body.get(name)
        elif isinstance(body, list) and name.isdecimal() and int(name) < len(body):
            body = body[int(name)]
        else:
            return None
    return body


async def _fetch(source: Pages, context: StepContext, credential: Mapping[str, Any], place: _Place) -> Any:
    asked = {source.page: place.page} if source.page else {}
    if place.cursor is not None:
        asked = {source.cursor: place.cursor}
    request = Http(
        url=place.url or source.url,
        # The address of a next page says all that it needs.
        query=None if place.url else {**(source.params or {}), **asked},
        headers=source.headers,
        timeout=source.timeout,
    )
    given = await request.ask(context, credential)
    status, body = given["status"], given["body"]
    if not 200 <= status < 300:
        details = {"status": status, "body": str(body)[:2000]}
        text = f"the server answered {status} {given['status_text']}".rstrip()
        raise NodeError(text, "HTTP_STATUS", details, retryable=status in RETRYABLE)
    return body
