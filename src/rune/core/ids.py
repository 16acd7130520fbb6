"""Names that a redelivered task derives again, letter by letter."""

from __future__ import annotations

import os
from hashlib import blake2b

__all__ = ["CHILD", "EVERYBODY", "POOL", "child_of", "content_hash", "derive", "is_child", "new_execution_id"]

POOL = r"(?!(dead|dlx|retry)\Z)[a-zA-Z0-9_-]{1,200}"
"""The pattern of a pool's name, which ends the name of its queue: some of these are taken."""
EVERYBODY = "default"
"""The pool of all workers that name none; a Task's own is then empty."""
CHILD = "child_"
"""How the ids of executions begin that others have started, and no others' do."""


def derive(*parts: str) -> str:
    """The id that follows from `parts`: the same parts, the same id.

    Parts of our own start with `~`, which no id of a user's has.
    """
    return blake2b("/".join(parts).encode(), digest_size=12).hexdigest()


def content_hash(data: bytes) -> str:
    """The address of a stored value: the same bytes, the same address."""
    return blake2b(data, digest_size=20).hexdigest()


def child_of(execution: str, key: str) -> str:
    """The execution that `execution` starts by the call `key`: to start it twice is to start it once."""
    return f"{CHILD}{derive(execution, key)}"


def is_child(execution: str) -> bool:
    """Whether an execution was started by another one."""
    return execution.startswith(CHILD)


def new_execution_id() -> str:
    """A fresh execution id."""
    return f"exec_{os.urandom(10).hex()}"
