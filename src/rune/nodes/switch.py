"""The switch node: one of several ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.nodes._rules import check_operator, holds

__all__ = ["Switch", "SwitchRule"]


class SwitchRule(Struct, frozen=True, kw_only=True):
    """One way, and when to go it."""

    value: Annotated[Any, Meta(description="Left side, such as `$fetch.body.kind`.")]
    operator: Annotated[str, Meta(description="eq, neq, gt, lt, gte, lte, contains, in, …")] = "eq"
    compare: Annotated[Any, Meta(description="Right side.")] = None

    def __post_init__(self) -> None:
        check_operator(self.operator)


class Switch(NodeType, kw_only=True):
    """Go the way of the first rule that holds; its port is the rule's number, from 0, or `fallback`."""

    name: ClassVar = "switch"
    ports: ClassVar = ()
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    numeric_strings: ClassVar = True

    rules: Annotated[list[SwitchRule], Meta(description="Rules, tried in order.", min_length=1)]
    routes: Annotated[
        list[str] | None, Meta(description="Edge of each rule; one more is the fallback. Or use ports.")
    ] = None

    @classmethod
    def edge_ports(cls, parameters: Mapping[str, Any]) -> Mapping[tuple[str | int, ...], str]:
        rules, routes = parameters.get("rules"), parameters.get("routes")
        if not isinstance(rules, list) or not isinstance(routes, list):
            return {}
        return {("routes", i): "fallback" if i == len(rules) else str(i) for i in range(len(routes))}

    def __post_init__(self) -> None:
        if self.routes is not None and len(self.routes) > len(self.rules) + 1:
            raise ValueError(
                f"{len(self.routes)} `routes` for {len(self.rules)} `rules`: one for each, and a fallback"
            )

    async def run(self, context: StepContext) -> Outcome:
        for index, rule in enumerate(self.rules):
            if holds(rule.operator, rule.value, rule.compare):
                return Done({"output_index": index, "matched_rule": rule}, port=str(index))
        return Done({"output_index": len(self.rules), "fallback": True}, port="fallback")
