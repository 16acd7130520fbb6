"""Random workflows that are valid, and inputs for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from tests.conformance.flows import edge, node

__all__ = ["Case", "cases", "random_case"]

T = TypeVar("T")

Case = tuple[dict[str, Any], dict[str, Any], str]
"""A definition, an input, and the node to start at by hand, if any."""

_SIZES = {0: 6, 1: 4, 2: 3, 3: 2}
"""Units that one scope has at most, by its depth."""


class _Unit:
    """A node, or a fan-out as a whole: where edges lead into it, and the ports they leave by."""

    def __init__(self, entry: str, ports: list[tuple[str, str]]) -> None:
        self.entry = entry
        self.ports = ports


class _Chooser(Protocol):
    """Who decides: Hypothesis, which can shrink what it chose, or plain chance, which is fast."""

    def pick(self, *choices: T) -> T: ...
    def number(self, low: int, high: int) -> int: ...


class _Drawing:
    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def pick(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))


class _Chance:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class _Builder:
    """Makes one workflow."""

    def __init__(self, chooser: _Chooser) -> None:
        self.pick = chooser.pick
        self.number = chooser.number
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []
        self.roots: list[str] = []

    # --- scopes ---

    def case(self) -> Case:
        """A workflow, an input, and where to start."""
        definition = self.workflow()
        start = self.pick("", "", "", *self.roots)
        return definition, _input(self), start

    def workflow(self) -> dict[str, Any]:
        """A whole definition."""
        units = self.scope(0, [])
        self.roots = [unit.entry for unit in units]
        if self.pick(False, False, True):
            self.nodes.append(node("t", "ManualTrigger"))
            entries = [u.entry for u in units if not any(e["dst"] == u.entry for e in self.edges)]
            self.edges += [edge("t", entry) for entry in entries]
        if self.pick(False, True):
            self.edges.reverse()
        failing = {e["src"] for e in self.edges if e["port"] == "error"}
        for made in self.nodes:
            if made.get("error") == {"type": "branch"} and made["id"] not in failing:
                del made["error"]
        return {"workflow_id": "wf", "nodes": self.nodes, "edges": self.edges}

    def scope(self, depth: int, before: list[tuple[str, str]]) -> list[_Unit]:
        """The units of one scope; in a split they hang on its ports `before`."""
        units: list[_Unit] = []
        seen: list[str] = []
        for i in range(self.number(1, _SIZES[depth])):
            ways = before + [port for unit in units for port in unit.ports]
            ins = self._ins(ways, needed=depth > 0)
            unit = self.unit(depth, len(ins), seen, first=not ins or i == 0)
            for src, port in ins:
                self.edges.append(edge(src, unit.entry, port))
            units.append(unit)
            seen = [*seen, *{src for src, _ in unit.ports}]
        return units

    def _ins(self, ways: list[tuple[str, str]], *, needed: bool) -> list[tuple[str, str]]:
        """Where a unit is reached from: usually one or two ports, sometimes none at all."""
        if not ways:
            return []
        many = self.pick(1, 1, 1, 2, 2, 3) if needed else self.pick(0, 1, 1, 1, 1, 2, 2, 2, 3)
        found: dict[str, tuple[str, str]] = {}
        for _ in range(many):
            # The later ones more often: long chains rather than wide fans.
            at = max(self.number(0, len(ways) - 1), self.number(0, len(ways) - 1))
            found[f"{ways[at]}"] = ways[at]
        return list(found.values())

    # --- units ---

    def unit(self, depth: int, ins: int, seen: list[str], *, first: bool) -> _Unit:
        id = f"n{len(self.nodes)}"
        kinds = [
            "digest",
            "digest",
            "note",
            "edit",
            "wait",
            "boom",
            "boom",
            "conditional",
            "switch",
            "dice",
            "effect",
        ]
        if ins > 1:
            kinds += ["merge"] * 8
        if depth < 3:
            kinds += ["split"] * 4
        kind = self.pick(*kinds)
        make: Callable[[str, int, int, list[str]], _Unit] = getattr(self, f"_{kind}")
        return make(id, depth, ins, seen)

    def _add(self, made: dict[str, Any], *ports: str) -> _Unit:
        self.nodes.append(made)
        return _Unit(made["id"], [(made["id"], port) for port in ports])

    def _decision(self, depth: int, of: int, below: int) -> tuple[dict[str, Any], str]:
        """A decision that only the input or the item makes, for the reference and as an expression."""
        on = self.pick("item", "item", "input") if depth else "input"
        add = self.number(0, of - 1)
        base = "$item.v" if on == "item" else "$trigger.v"
        return {"on": on, "add": add, "of": of, "below": below}, f"({base} + {add}) % {of}"

    def _error(self, made: dict[str, Any]) -> list[str]:
        """An error policy, and the port it adds."""
        policy = self.pick("halt", "ignore", "branch", "branch")
        if policy != "halt":
            made["error"] = {"type": policy}
        return ["error"] if policy == "branch" else []

    def _digest(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        names = [*seen, "json", "error", *(["item", "index"] if depth else [])]
        of = {name: f"{{{{ ${name} | default(null) }}}}" for name in names}
        return self._add(node(id, "digest", of=of), "out")

    def _note(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        of = self.pick("$item", "$item.v", "{{ $index | default(null) }}") if depth else "$trigger.v"
        return self._add(node(id, "note", of=of), "out")

    def _edit(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        value = "$item.v" if depth else id
        assignments = [{"name": "by", "value": id}, {"name": "v", "value": value}]
        return self._add(node(id, "edit", assignments=assignments, mode="keep_only"), "out")

    def _wait(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        return self._add(node(id, "wait", amount=self.pick(1, 5, 100, 1000)), "out")

    def _dice(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        return self._add(node(id, "dice"), "out")

    def _effect(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        made = node(id, "effect", of="$item.v" if depth else id, fails=self.pick(0, 0, 1, 2))
        made["retry"] = {"attempts": self.pick(1, 2, 3), "delay": self.pick(0, 10, 400)}
        return self._add(made, "out", *self._error(made))

    def _boom(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        x, number = self._decision(depth, 4, self.pick(0, 1, 2, 4))
        made = node(id, "boom", when=f"{{{{ {number} < {x['below']} }}}}", x=x)
        return self._add(made, "out", *self._error(made))

    def _conditional(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        x, number = self._decision(depth, 2, 1)
        return self._add(node(id, "conditional", expression=f"{number} < 1", x=x), "true", "false")

    def _switch(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        x, number = self._decision(depth, 3, 0)
        rules = [{"value": f"{{{{ {number} }}}}", "operator": "eq", "compare": i} for i in (0, 1)]
        return self._add(node(id, "switch", rules=rules, x=x), "0", "1", "fallback")

    def _merge(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        modes = ["wait_for_all", "wait_for_all", "wait_for_all", "wait_for_any", "wait_for_n"]
        made = node(id, "merge", wait_mode=self.pick(*modes))
        ports: list[str] = []
        if made["parameters"]["wait_mode"] == "wait_for_n":
            made["parameters"]["n"] = self.number(1, ins)
            ports = self._error(made)
        return self._add(made, "out", *ports)

    def _split(self, id: str, depth: int, ins: int, seen: list[str]) -> _Unit:
        parameters: dict[str, Any] = {"batch_size": self.pick("auto", "auto", 1, 2)}
        parameters["input_array"] = (
            "$item.kids" if depth else self.pick("$trigger.kids", "$trigger.kids", "$trigger.v")
        )
        if self.pick(False, False, True):
            parameters["max_concurrency"] = self.pick(1, 2, 5)
        policy = self.pick("collect", "collect", "fail_fast", "allow_partial", "tolerated")
        if policy == "tolerated":
            parameters["tolerated_failures"] = self.pick(0, 1, 2)
        else:
            parameters["on_item_error"] = policy
        made = node(id, "split", **parameters)
        self.nodes.append(made)
        gather = node(f"g{id[1:]}", "aggregator")
        body = self.scope(depth + 1, [(id, "out")])
        ends = [port for unit in body for port in unit.ports]
        arriving = [port for port in ends if self.pick(True, True, False)]
        if arriving and self.pick(True, True, True, False):
            self.nodes.append(gather)
            self.edges += [edge(src, gather["id"], port) for src, port in dict.fromkeys(arriving)]
            ports = [(gather["id"], p) for p in ("out", *self._error(gather))]
            ports += [(id, p) for p in self._error(made)]
            return _Unit(id, ports)
        return _Unit(id, [(id, p) for p in self._error(made)])


def _input(chooser: _Chooser, depth: int = 0) -> dict[str, Any]:
    """A number to decide on, and lists of the same for splits to run over."""
    many = chooser.number(0, 3) if depth < 3 else 0
    return {"v": chooser.number(0, 11), "kids": [_input(chooser, depth + 1) for _ in range(many)]}


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Case:
    """A workflow and an input for it, as Hypothesis draws them."""
    return _Builder(_Drawing(draw)).case()


def random_case(seed: int) -> Case:
    """The case of this number."""
    return _Builder(_Chance(seed)).case()
