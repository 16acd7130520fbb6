"""The artifact tool: put a value into a file, or get one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.playbook.tool import Tool, ToolContext, ToolError

__all__ = ["ArtifactTool"]


class ArtifactTool(Tool, kw_only=True):
    """Keep data outside of the playbook, and pass a reference on: `{store, key, range, size, checksum}`."""

    name: ClassVar = "tool.artifact"

    action: Annotated[Literal["put", "get"], Meta(description="Write or read.")] = "get"
    key: Annotated[str, Meta(description="Its name, below the directory of artifacts.", min_length=1)]
    content: Annotated[Any, Meta(description="What to write: text as it is, anything else as JSON.")] = None

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        artifacts, threads = context.service("artifacts"), context.service("threads")
        try:
            if self.action == "put":
                data = _written(self.content)
                return {"result": await threads.run(lambda: artifacts.put(self.key, data))}
            data = await threads.run(lambda: artifacts.get(self.key))
        except NodeError as error:
            raise ToolError(error.message, error.code, kind="artifact") from error
        return {"result": _read(data)}


def _written(content: Any) -> bytes:
    return content.encode() if isinstance(content, str) else msgspec.json.encode(content)


def _read(data: bytes) -> Any:
    """JSON as what it says, anything else as text."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace")
