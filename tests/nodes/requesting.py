"""Requests of the http node, and what comes of them."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import NodeError
from rune.nodes._http_client import HttpClient
from rune.nodes.http import Http
from tests.nodes.fakes import FakeContext, output

__all__ = ["JSON", "TEXT", "failure", "signed"]

JSON = ("Content-Type", "application/json")
TEXT = ("Content-Type", "text/plain; charset=utf-8")


def signed(client: HttpClient, **credential: Any) -> FakeContext:
    return FakeContext(services={"http": client}, credential=credential)


async def failure(context: FakeContext, /, **parameters: Any) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await output(Http, context, **parameters)
    return caught.value
