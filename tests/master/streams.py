"""Streams of events as a program reads them, and what somebody who applies them comes to know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

__all__ = ["Event", "Picture", "Stream", "streamed"]


@dataclass
class Event:
    """One event."""

    name: str
    id: str | None
    data: Any


class Stream:
    """The events of an answer that goes on."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments = 0

    async def next(self, timeout: float = 20) -> Event | None:
        """The next event; None when the stream has ended."""
        async with asyncio.timeout(timeout):
            name, id, data = "message", None, ""
            while line := await self.response.content.readline():
                key, _, value = line.decode().rstrip("\n").partition(":")
                value = value.removeprefix(" ")
                match key:
                    case "event":
                        name = value
                    case "id":
                        id = value
                    case "data":
                        data += value
                    case "":
                        if line != b"\n":
                            self.comments += 1
                        elif data:
                            return Event(name, id, json.loads(data))
            return None

    async def all(self) -> list[Event]:
        """What there is until the end."""
        events = []
        while event := await self.next():
            events.append(event)
        return events


@asynccontextmanager
async def streamed(address: str, last: str | None = None, **headers: str) -> AsyncIterator[Stream]:
    """The stream at an address."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if last is not None:
        named["Last-Event-ID"] = last
    async with (
        aiohttp.ClientSession(read_bufsize=2**24) as session,
        session.get(address, headers=named) as response,
    ):
        yield Stream(response)


@dataclass
class Picture:
    """What somebody knows who started with a snapshot and applied every change."""

    execution: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Any] = field(default_factory=dict)
    splits: dict[str, Any] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)
    seq: int = -1

    def apply(self, event: Event) -> None:
        """Take an event in."""
        data = event.data
        assert event.id == str(data["seq"])
        if event.name == "snapshot":
            self.nodes, self.splits, self.items = {}, {}, {}
        assert event.name in ("snapshot", "change", "end")
        self.seq, self.execution = data["seq"], data["execution"]
        self.nodes |= data.get("nodes", {})
        self.splits |= {split["barrier"]: split for split in data.get("splits", [])}
        for scope, told in data.get("scopes", {}).items():
            if "states" in told:
                self.items[scope] = [state for state, count in told["states"] for _ in range(count)]
            for first, state, count in told.get("runs", []):
                known = self.items[scope]
                known.extend(["pending"] * (first + count - len(known)))
                known[first : first + count] = [state] * count
