"""The artifact tool: put a value into a file, or get one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.playbook.references import is_manifest, is_result_ref
from rune.core.playbook.tool import Tool, ToolContext, ToolError
from rune.nodes._results import loaded

__all__ = ["ArtifactTool"]


class ArtifactTool(Tool, kw_only=True):
    """Keep data outside of the playbook, and pass a reference on: `{store, key, range, size, checksum}`."""

    name: ClassVar = "tool.artifact"

    action: Annotated[Literal["put", "get"], Meta(description="Write or read.")] = "get"
    key: Annotated[str, Meta(description="Its name, below the directory of artifacts.")] = ""
    ref: Annotated[
        Any,
        Meta(
            description="Instead of a key: a `result_ref`, its `ref`, or a manifest. Gives the value itself."
        ),
    ] = None
    content: Annotated[Any, Meta(description="What to write: text as it is, anything else as JSON.")] = None

    def __post_init__(self) -> None:
        if (not self.key) == (self.ref is None):
            raise ValueError("give `key`, the name of an artifact, or `ref`, a reference to a result")
        if self.ref is not None and self.action == "put":
            raise ValueError("`put` takes a `key`: Rune itself stores results by reference")

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        if self.ref is not None:
            return {"result": await _value(context, self.ref)}
        artifacts, threads = context.service("artifacts"), context.service("threads")
        try:
            if self.action == "put":
                data = _written(self.content)
                return {"result": await threads.run(lambda: artifacts.put(self.key, data))}
            data = await threads.run(lambda: artifacts.get(self.key))
        except NodeError as error:
            raise ToolError(error.message, error.code, kind="artifact") from error
        return {"result": _read(data)}


async def _value(context: ToolContext, ref: Any) -> Any:
    """What a reference in any of its forms stands for."""
    if isinstance(ref, dict) and ref.get("kind") == "result_ref" and "store" not in ref:
        # As `fanin.refs` names what a shard gave.
        ref = ref.get("result") if is_result_ref(ref.get("result")) else ref.get("ref")
    try:
        if isinstance(ref, str):
            return await context.load(ref)
        if is_result_ref(ref) or is_manifest(ref):
            return await loaded(context, ref)
    except NodeError as error:
        raise ToolError(error.message, error.code, kind="artifact") from error
    message = f"`ref` is {kind_of(ref)}; give a `result_ref`, its `ref`, or a manifest"
    raise ToolError(message, "REFERENCE_INVALID", kind="artifact")


def _written(content: Any) -> bytes:
    return content.encode() if isinstance(content, str) else msgspec.json.encode(content)


def _read(data: bytes) -> Any:
    """JSON as what it says, anything else as text."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace")
