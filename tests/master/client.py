"""A client of the API, for tests: what it is answered, whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp

from rune.core.registry import Registry
from rune.master.opening import open_local
from rune.master.service import Master
from rune.master.serving import serving
from rune.nodes import load_builtin
from rune.settings import Settings

__all__ = ["Answer", "Api", "flow_of", "open_api", "sleeper"]

_PATIENCE = 30.0
"""Seconds in which what is waited for must come."""


@dataclass
class Answer:
    """What a request was answered."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.data)

    def problem(self, status: int, code: str) -> Any:
        """The body, which must be a problem document of this kind."""
        assert (self.status, self.headers["content-type"]) == (status, "application/problem+json"), self
        found = self.json
        assert (found["status"], found["code"]) == (status, code), found
        assert set(found) <= {"type", "title", "status", "detail", "code", "errors"}
        return found


class Api:
    """Sends requests to a master that runs in this process."""

    def __init__(self, session: aiohttp.ClientSession, address: str, master: Master) -> None:
        self._session = session
        self.address = address
        self.master = master

    async def ask(self, method: str, path: str, **more: Any) -> Answer:
        """Send a request."""
        async with self._session.request(method, self.address + path, **more) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, headers, await response.read())

    async def get(self, path: str, **query: Any) -> Answer:
        """Ask for something."""
        return await self.ask("GET", path, params=query)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """Send something; header names have underscores here."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("POST", path, json=body if body is not None else {}, headers=named)

    async def put(self, path: str, body: Any, **headers: str) -> Answer:
        """Change something."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("PUT", path, json=body, headers=named)

    async def delete(self, path: str) -> Answer:
        """Remove something."""
        return await self.ask("DELETE", path)

    async def run(self, definition: Any, **more: Any) -> Any:
        """Run a definition to its end; the execution."""
        answer = await self.post("/api/executions", {"definition": definition, "wait": 30, **more})
        assert answer.status == 200, answer
        return answer.json

    async def until(self, path: str, **wanted: Any) -> Any:
        """Ask until these fields have these values."""
        return await self.once(
            path, lambda found: all(found.get(name) == value for name, value in wanted.items())
        )

    async def once(self, path: str, true: Callable[[Any], object]) -> Any:
        """Ask until this is true of what is answered."""
        async with asyncio.timeout(_PATIENCE):
            while not true(found := (await self.get(path)).json):
                await asyncio.sleep(0.02)
            return found


@asynccontextmanager
async def open_api(
    database: Path | None, history: str | None = None, *, types: Any = (), **settings: Any
) -> AsyncIterator[Api]:
    """A master as `rune dev` has it, on a free port."""
    configured = Settings(port=0, **settings)
    registry = Registry([*load_builtin(), *load_builtin("playbook"), *load_builtin("tools"), *types])
    async with (
        open_local(configured, registry, str(database) if database else None, history) as master,
        serving(master) as served,
        aiohttp.ClientSession() as session,
    ):
        yield Api(session, served.address, master)


def flow_of(*nodes: dict[str, Any], id: str | None = None, **more: Any) -> dict[str, Any]:
    """A definition of nodes one after another; a node of which only the id is given logs it."""
    made = [{"type": "log", "parameters": {"message": node["id"]}, **node} for node in nodes]
    edges = [
        {"id": f"e{n}", "src": before["id"], "dst": after["id"]}
        for n, (before, after) in enumerate(pairwise(made))
    ]
    named = {"workflow_id": id} if id else {}
    return {**named, "nodes": made, "edges": edges, **more}


def sleeper(seconds: float = 3600, id: str = "rest") -> dict[str, Any]:
    """A node that waits."""
    return {"id": id, "type": "wait", "parameters": {"amount": seconds}}
