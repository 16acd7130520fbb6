"""What a workflow means, worked out one node after the other on plain data.

Nothing of the engine is used. Nodes are visited in topological order, so every branch that can reach a join
has reached it when the join's turn comes; what the engine has to count, tell and remember needs no thought.

Where the answer may depend on the order of events (which branch wins a race, which of two errors comes first)
the reference says so: ANY stands for a value that is not determined, MAYBE for one that may be missing, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.knowing import (
    ANY,
    MAYBE,
    Context,
    Version,
    having,
    joined,
    known,
    matches,
    plain,
    raced,
)
from tests.conformance.nodes import digest

__all__ = ["Reference", "Result"]


@dataclass(frozen=True)
class Branch:
    """One path of control."""

    node: str
    context: Context
    path: tuple[int, ...] = ()
    certain: bool = True
    """Whether its path is determined."""
    source: str | None = None
    order: int = 0
    """Which of its node's incoming edges it came along."""


@dataclass(frozen=True)
class Failure:
    """An error that ended a scope, and what the branch knew."""

    error: Any
    context: Context


@dataclass
class Scope:
    """How one scope ended: the execution's or an item's."""

    ends: list[tuple[Branch, Context]] = field(default_factory=list)
    arrivals: list[tuple[Branch, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """What an execution may end as."""

    status: str
    contexts: Sequence[dict[str, Any]]
    """The final contexts it may have: one, unless several branches may halt it first."""
    errors: Sequence[Any] = ()

    def allows(self, status: str, context: dict[str, Any], error: Any) -> bool:
        """Whether an execution may have ended so."""
        if status != self.status or not any(matches(c, context) for c in self.contexts):
            return False
        return not self.errors or any(matches(e, error) for e in self.errors)


@dataclass(frozen=True)
class Done:
    output: Any
    port: str = "out"
    working: bool = False


@dataclass(frozen=True)
class Failed:
    error: Any


class TooLarge(Exception):
    """The workflow takes more steps than a test should."""


class Reference:
    """Interprets one workflow definition."""

    def __init__(self, definition: Mapping[str, Any], limit: int = 400) -> None:
        self.nodes = {node["id"]: node for node in definition["nodes"]}
        self.edges = definition["edges"]
        self.order = self._topological()
        self.scopes, self.closers = self._scoping()
        self.steps = 0
        self.limit = limit
        self.trigger: Any = None

    def run(self, input: Any, start: str = "") -> Result:
        """What the workflow ends as when started with this input, or by hand at the node `start`."""
        self.trigger = input
        context = having({}, trigger=input)
        triggers = [id for id, node in self.nodes.items() if node["type"] == "ManualTrigger"]
        starts = [(e["dst"], t) for t in triggers for e in self._outgoing(t)]
        if not triggers:
            starts = [(id, None) for id in self.nodes if not self._incoming(id)]
        if start:
            starts = [(start, None)]
        branches = [
            Branch(id, context, (i,) if len(starts) > 1 else (), True, source)
            for i, (id, source) in enumerate(starts)
        ]
        scope = self._scope(branches)
        if scope.failures:
            return Result(
                "halted", [plain(f.context) for f in scope.failures], [f.error for f in scope.failures]
            )
        return Result("completed", [self._union(scope.ends)])

    def _union(self, ends: list[tuple[Branch, Context]]) -> dict[str, Any]:
        ends = sorted(ends, key=lambda end: end[0].path)
        union: dict[str, Any] = {}
        certain = all(branch.certain for branch, _ in ends)
        for _, context in ends:
            for key, value in plain(context).items():
                if key in union and union[key] is not value:
                    if value is MAYBE:
                        value = MAYBE if union[key] is MAYBE else ANY
                    elif not certain and union[key] != value:
                        value = ANY
                union[key] = value
        return union

    # --- the graph ---

    def _outgoing(self, id: str) -> list[dict[str, Any]]:
        return [e for e in self.edges if e["src"] == id]

    def _incoming(self, id: str) -> list[dict[str, Any]]:
        return [e for e in self.edges if e["dst"] == id]

    def _topological(self) -> list[str]:
        order: list[str] = []
        while len(order) < len(self.nodes):
            for id in self.nodes:
                if id not in order and all(e["src"] in order for e in self._incoming(id)):
                    order.append(id)
        return order

    def _scoping(self) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        scopes: dict[str, tuple[str, ...]] = {}
        closers: dict[str, str] = {}
        for id in self.order:
            here = scopes.setdefault(id, ())
            type = self.nodes[id]["type"]
            after = here
            if type == "aggregator":
                closers[here[-1]] = id
                after = here[:-1]
            for e in self._outgoing(id):
                inner = type == "split" and e["port"] != "error"
                scopes[e["dst"]] = (*here, id) if inner else after
        return scopes, closers

    # --- one scope ---

    def _scope(self, branches: Sequence[Branch]) -> Scope:
        scope = Scope()
        at: dict[str, list[Branch]] = {id: [] for id in self.nodes}
        for branch in branches:
            at[branch.node].append(branch)
        for id in self.order:
            here = sorted(at[id], key=lambda b: (b.order, b.path))
            if not here:
                continue
            match self.nodes[id]["type"]:
                case "merge":
                    self._merge(id, here, at, scope)
                case "aggregator":
                    scope.arrivals += [(b, self._previous(b)) for b in here]
                case "split":
                    for branch in here:
                        self._split(id, branch, at, scope)
                case _:
                    for branch in here:
                        self._conclude(branch, self._node(branch), at, scope)
        return scope

    def _conclude(
        self, branch: Branch, outcome: Done | Failed, at: dict[str, list[Branch]], scope: Scope
    ) -> None:
        """Go on from a node that has ended, in the scope it stands in."""
        self.steps += 1
        if self.steps > self.limit:
            raise TooLarge
        id = branch.node
        policy = self.nodes[id].get("error", {}).get("type", "halt")
        if isinstance(outcome, Done):
            context = having(branch.context, **{id: outcome.output})
            if outcome.working:
                context = having(context, json=outcome.output["$json"])
            self._leave(branch, context, outcome.port, at, scope)
        elif policy == "ignore":
            self._leave(branch, having(branch.context, **{id: {"error": outcome.error}}), "out", at, scope)
        elif policy == "branch":
            told = {id: {"error": outcome.error}, "error": outcome.error}
            self._leave(branch, having(branch.context, **told), "error", at, scope)
        else:
            scope.failures.append(Failure(outcome.error, branch.context))

    def _leave(
        self, branch: Branch, context: Context, port: str, at: dict[str, list[Branch]], scope: Scope
    ) -> None:
        taken = [e for e in self._outgoing(branch.node) if e["port"] == port]
        if self.nodes[branch.node]["type"] == "split" and port == "out":
            taken = []  # these were its items' business
        if not taken:
            scope.ends.append((branch, context))
        for i, e in enumerate(taken):
            path = (*branch.path, i) if len(taken) > 1 else branch.path
            order = self._incoming(e["dst"]).index(e)
            at[e["dst"]].append(Branch(e["dst"], context, path, branch.certain, branch.node, order))

    # --- joins ---

    def _merge(self, id: str, here: list[Branch], at: dict[str, list[Branch]], scope: Scope) -> None:
        parameters = self.nodes[id]["parameters"]
        mode = parameters.get("wait_mode", "wait_for_all")
        need = {"wait_for_all": len(here), "wait_for_any": 1, "wait_for_n": parameters.get("n", 0)}[mode]
        contexts = [b.context for b in here]
        first = min(here, key=lambda b: b.path)
        certain = first.certain and (len(here) == 1 or need == len(here))
        branch = replace(first, node=id, certain=certain)
        if need > len(here):
            # How many of them had come when it was known is a matter of order.
            details = {"arrived": 1 if len(here) == 1 else ANY, "expected": ANY}
            error = {"message": ANY, "code": "MERGE_IMPOSSIBLE", "details": details, "node": id}
            branch = replace(branch, context=contexts[0] if len(here) == 1 else raced(contexts))
            self._conclude(branch, Failed(error), at, scope)
            return
        if need < len(here):
            context, merged = raced(contexts), [ANY] * need
        else:
            context, merged = joined(contexts), [self._previous(b) for b in here]
        output: dict[str, Any] = {"merged": merged}
        if mode != "wait_for_all":
            output["winner"] = here[0].source if len(here) == 1 else ANY
        self._conclude(replace(branch, context=context), Done(output), at, scope)

    def _split(self, id: str, branch: Branch, at: dict[str, list[Branch]], scope: Scope) -> None:
        items = self._value(self.nodes[id]["parameters"]["input_array"], branch)
        closer = self.closers.get(id)
        body = [e for e in self._outgoing(id) if e["port"] != "error"]
        if not isinstance(items, list):
            error = {"message": ANY, "code": "SPLIT_NOT_ARRAY", "details": ANY, "node": id}
            if self.nodes[id].get("error", {}).get("type") != "ignore" or not closer:
                self._conclude(branch, Failed(error), at, scope)
                return
            # Ignored, it is a fan-out of nothing.
            items, branch = [], replace(branch, context=having(branch.context, **{id: {"error": error}}))
        context = having(branch.context, **{id: {"count": len(items)}})
        slots, counts, failed = self._items(id, items, context, body)
        resumed = replace(branch, node=closer or id, context=context, source=None)
        if failed:
            error = {"message": ANY, "code": "ITEMS_FAILED", "details": ANY, "node": closer or id}
            self._conclude(resumed, Failed(error), at, scope)
        elif closer:
            self._conclude(resumed, Done({"aggregated": slots, "count": len(items), **counts}), at, scope)
        else:
            scope.ends.append((resumed, context))

    def _items(
        self, id: str, items: list[Any], context: Context, body: list[dict[str, Any]]
    ) -> tuple[list[Any], dict[str, int], bool]:
        slots: list[Any] = []
        counts = {"succeeded": 0, "failed": 0, "skipped": 0}
        depth = len(self.scopes[id])
        outer = {f"item.{depth - 1}": context["$item"][-1].value} if depth else {}
        for index, item in enumerate(items):
            inside = having(context, **outer, item=item)
            inside["$index"] = (Version(index),)
            branches = [
                Branch(
                    e["dst"],
                    inside,
                    (j,) if len(body) > 1 else (),
                    True,
                    id,
                    self._incoming(e["dst"]).index(e),
                )
                for j, e in enumerate(body)
            ]
            slot, kind = self._slot(self._scope(branches))
            slots.append(slot)
            counts[kind] += 1
        return slots, counts, self._fails(id, counts, len(items))

    def _fails(self, id: str, counts: Mapping[str, int], total: int) -> bool:
        parameters = self.nodes[id]["parameters"]
        policy = parameters.get("on_item_error", "collect")
        tolerated = parameters.get("tolerated_failures", 0 if policy == "fail_fast" else total)
        hopeless = policy == "allow_partial" and counts["failed"] > 0 and counts["succeeded"] == 0
        return counts["failed"] > tolerated or hopeless

    def _slot(self, scope: Scope) -> tuple[Any, str]:
        if scope.failures:
            one = len(scope.failures) == 1
            return {"error": scope.failures[0].error if one else ANY}, "failed"
        if not scope.arrivals:
            return None, "skipped"
        arrivals = sorted(scope.arrivals, key=lambda a: a[0].path)
        if len(arrivals) == 1:
            return arrivals[0][1], "succeeded"
        certain = all(branch.certain for branch, _ in arrivals)
        by_node: dict[str, list[Any]] = {}
        for branch, value in arrivals:
            by_node.setdefault(branch.source or "", []).append(value)
        return {
            source: values[0] if len(values) == 1 else values if certain else [ANY] * len(values)
            for source, values in by_node.items()
        }, "succeeded"

    # --- nodes ---

    def _node(self, branch: Branch) -> Done | Failed:
        node = self.nodes[branch.node]
        parameters = node["parameters"]
        behaviour: Callable[[], Done | Failed] = {
            "digest": lambda: Done({"digest": self._digest(parameters["of"], branch)}),
            "note": lambda: Done(self._value(parameters["of"], branch)),
            "log": lambda: Done({"message": parameters["message"], "level": "info", "logged_at": ANY}),
            "dice": lambda: Done({"number": ANY}),
            "effect": lambda: self._effect(node, branch),
            "wait": lambda: Done({"resume_at": ANY, "timer_id": ANY}),
            "boom": lambda: self._boom(node, branch),
            "edit": lambda: self._edit(parameters, branch),
            "conditional": lambda: self._conditional(node, branch),
            "switch": lambda: self._switch(node, branch),
        }[node["type"]]
        return behaviour()

    def _digest(self, of: Mapping[str, str], branch: Branch) -> Any:
        seen = {name: self._value(template, branch) for name, template in of.items()}
        return digest(seen) if known(seen) else ANY

    def _effect(self, node: Mapping[str, Any], branch: Branch) -> Done | Failed:
        fails, attempts = node["parameters"].get("fails", 0), node.get("retry", {}).get("attempts", 1)
        if fails >= attempts:
            return Failed({"message": f"failed attempt {attempts}", "code": "FLAKY", "node": node["id"]})
        return Done({"done": self._value(node["parameters"]["of"], branch), "attempt": fails + 1})

    def _boom(self, node: Mapping[str, Any], branch: Branch) -> Done | Failed:
        if self._holds(node["x"], branch):
            return Failed({"message": "boom", "code": "BOOM", "node": node["id"]})
        return Done({"calm": True})

    def _edit(self, parameters: Mapping[str, Any], branch: Branch) -> Done:
        values = {a["name"]: self._value(a["value"], branch) for a in parameters["assignments"]}
        return Done({"$json": values}, working=True)

    def _conditional(self, node: Mapping[str, Any], branch: Branch) -> Done:
        result = self._holds(node["x"], branch)
        return Done({"result": result}, "true" if result else "false")

    def _switch(self, node: Mapping[str, Any], branch: Branch) -> Done:
        value = self._number(node["x"], branch)
        for index, rule in enumerate(node["parameters"]["rules"]):
            if value == rule["compare"]:
                return Done({"output_index": index, "matched_rule": ANY}, str(index))
        return Done({"output_index": len(node["parameters"]["rules"]), "fallback": True}, "fallback")

    def _holds(self, x: Mapping[str, Any], branch: Branch) -> bool:
        return self._number(x, branch) < x["below"]

    def _number(self, x: Mapping[str, Any], branch: Branch) -> int:
        """The small number that a decision is made on: the input's, or the item's."""
        if x["on"] == "item":
            base: int = plain(branch.context)["$item"]["v"]
        else:
            base = self.trigger["v"]
        return (base + x["add"]) % x["of"]

    # --- values ---

    def _value(self, template: Any, branch: Branch) -> Any:
        """What a template of a simple form stands for: `$a.b` or `{{ $a | default(null) }}`."""
        if not isinstance(template, str):
            return template
        if match := re.fullmatch(r"\{\{ \$([\w]+) \| default\(null\) \}\}", template):
            value = self._json(branch) if match[1] == "json" else plain(branch.context).get(f"${match[1]}")
            return value
        if match := re.fullmatch(r"\$(\w+)((?:\.\w+)*)", template):
            value = plain(branch.context)[f"${match[1]}"]
            for part in match[2].split(".")[1:]:
                value = value[part]
            return value
        return template

    def _json(self, branch: Branch) -> Any:
        context = plain(branch.context)
        if "$json" in context:
            return context["$json"]
        return self._output(branch)

    def _output(self, branch: Branch) -> Any:
        source = branch.source
        if source is None or self.nodes[source]["type"] == "ManualTrigger":
            return self.trigger
        return plain(branch.context)[f"${source}"]

    def _previous(self, branch: Branch) -> Any:
        """What a branch brings to a join: the output of the node before, or the working payload it left."""
        output = self._output(branch)
        return output["$json"] if isinstance(output, dict) and "$json" in output else output
