"""Trying a credential out, as a node would use it; of what comes back only how it went is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rune.core.errors import NodeError
from rune.core.secrets import Mask
from rune.nodes import guarded_services
from rune.nodes.http import signed_headers
from rune.nodes.smtp import try_login

__all__ = ["try_credential"]

_TIMEOUT = 15.0


async def try_credential(
    type: str, credential: Mapping[str, Any], url: str | None, allow: Sequence[str]
) -> tuple[bool, str]:
    """Whether a credential works, and what was seen.

    One of the type `smtp` logs in at its mail server, one with a `url` to try signs a request to it, and any
    other one can be read, which is all that can be said of it.
    """
    mask = Mask()
    mask.learn(credential)
    try:
        if url is not None:
            return await _request(credential, url, allow)
        if type == "smtp":
            await try_login(credential, guarded_services(allow)["guard"]())
            return True, "the mail server takes it"
    except NodeError as error:
        return False, mask.text(error.message)
    return True, "it can be read; give a `url` to see whether a server takes it"


async def _request(credential: Mapping[str, Any], url: str, allow: Sequence[str]) -> tuple[bool, str]:
    from rune.nodes._http_client import Request

    headers = signed_headers(credential)
    client = guarded_services(allow)["http"]()
    try:
        request = Request(method="GET", url=url, headers=headers, secret=frozenset(headers))
        response = await client.fetch(request, _TIMEOUT)
    finally:
        await client.close()
    return response.status < 400, f"the server answered {response.status}"
