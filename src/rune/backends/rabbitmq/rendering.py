"""The topology to look at: as a table, as JSON, and as the definitions file RabbitMQ imports."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rune.backends.rabbitmq.topology import Queue, Topology

__all__ = ["as_definitions", "as_json", "as_table"]


def as_table(topology: Topology) -> str:
    """The topology for a terminal."""
    exchanges = ((e.name, e.type) for e in topology.exchanges)
    queues = ((q.name, _arguments(q)) for q in topology.queues)
    bindings = ((b.exchange, b.key, b.queue) for b in topology.bindings)
    users = (
        (user.name, verb, pattern)
        for user in topology.users
        for verb, pattern in (("configure", user.configure), ("write", user.write), ("read", user.read))
    )
    parts = (
        _table(("exchange", "type"), exchanges),
        _table(("queue", "arguments"), queues),
        _table(("from exchange", "key", "to queue"), bindings),
        _table(("user", "may", "what matches"), users),
    )
    return "\n\n".join(parts) + "\n"


def _arguments(queue: Queue) -> str:
    return ", ".join(f"{name.removeprefix('x-')} {value}" for name, value in queue.arguments.items())


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def as_json(topology: Topology) -> bytes:
    """The topology for programs."""
    return msgspec.json.format(msgspec.json.encode(topology), indent=2)


def as_definitions(
    topology: Topology, *, vhost: str = "/", passwords: Mapping[str, str] | None = None
) -> bytes:
    """The topology for `rabbitmqctl import_definitions`; a user without a password cannot log in by one."""
    passwords = passwords or {}
    at: dict[str, Any] = {"vhost": vhost, "durable": True, "auto_delete": False}
    definitions = {
        "vhosts": [{"name": vhost}],
        "users": [
            {
                "name": user.name,
                "password_hash": _hash(passwords[user.name]) if user.name in passwords else "",
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": [],
            }
            for user in topology.users
        ],
        "permissions": [
            {
                "user": user.name,
                "vhost": vhost,
                "configure": user.configure,
                "write": user.write,
                "read": user.read,
            }
            for user in topology.users
        ],
        "exchanges": [
            at | {"name": exchange.name, "type": exchange.type, "internal": False, "arguments": {}}
            for exchange in topology.exchanges
        ],
        "queues": [at | {"name": queue.name, "arguments": queue.arguments} for queue in topology.queues],
        "bindings": [
            {
                "source": binding.exchange,
                "vhost": vhost,
                "destination": binding.queue,
                "destination_type": "queue",
                "routing_key": binding.key,
                "arguments": {},
            }
            for binding in topology.bindings
        ],
    }
    return msgspec.json.format(msgspec.json.encode(definitions), indent=2)


def _hash(password: str) -> str:
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
