"""The secrets tool: whether a credential is there. Its values never become data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.playbook.tool import Tool, ToolContext

__all__ = ["SecretsTool"]


class SecretsTool(Tool, kw_only=True):
    """Look a credential up and give a reference to it, for the `auth` of other tasks.

    What it holds is not given: a value that is data travels in messages and is stored in the history.
    """

    name: ClassVar = "tool.secrets"

    auth: Annotated[str, Meta(description="The credential.", min_length=1)]

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        found = await context.credential(self.auth)
        return {"result": {"auth": self.auth, "fields": sorted(found)}}
