"""Scopes, path counts and dead paths: rules 7 to 9 of the design, on graphs by hand and at random."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.node import NodeType, Role
from rune.core.paths import Paths, cycle, scoping, topological
from rune.core.workflow import Edge, Node, Workflow


class Plain(NodeType):
    name: ClassVar = "plain"


class Split(NodeType):
    name: ClassVar = "split"
    role: ClassVar = Role.SPLIT


class Gather(NodeType):
    name: ClassVar = "gather"
    role: ClassVar = Role.GATHER


class Merge(NodeType):
    name: ClassVar = "merge"
    role: ClassVar = Role.MERGE


KINDS: Mapping[str, type[NodeType]] = {"s": Split, "g": Gather, "m": Merge}


def graph(*ways: str) -> Workflow:
    """A workflow of ways such as `a>s1>b>g1`: a name's first letter is its kind, `!` marks error edges."""
    nodes: dict[str, Node] = {}
    edges: dict[str, Edge] = {}
    for way in ways:
        names = way.replace("!", ">!").split(">")
        for name in (name.strip("!") for name in names):
            nodes.setdefault(name, Node(name, name, KINDS.get(name[0], Plain), None))
        for src, dst in pairwise(names):
            port = "error" if dst.startswith("!") else "out"
            made = Edge(f"{src.strip('!')}-{dst.strip('!')}", src.strip("!"), dst.strip("!"), port)
            edges.setdefault(made.id, made)
    return Workflow("w", nodes.values(), edges.values())


# Order and cycles


def test_order_leads_forward_and_leaves_cycles_out() -> None:
    flow = graph("a>b>c", "a>c", "x>y>x", "y>z")
    assert topological(flow) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        (["a>b>c", "a>c"], set()),
        (["a>b>c>b"], {"b", "c"}),
        (["a>b>a"], {"a", "b"}),
        (["x>y>z>x", "z>q>r"], {"x", "y", "z"}),
    ],
)
def test_a_cycle_is_named_by_its_nodes(ways: list[str], expected: set[str]) -> None:
    flow = graph(*ways)
    found = cycle(flow)
    assert set(found) == expected
    for src, dst in zip(found, found[1:] + found[:1], strict=False):
        assert any(edge.dst == dst for edge in flow.outgoing[src])


# Scopes


def test_nested_splits_give_nested_scopes() -> None:
    found = scoping(graph("a>s1>b>s2>c>g2>d>g1>e"))
    assert found.scope == {
        "a": (),
        "s1": (),
        "b": ("s1",),
        "s2": ("s1",),
        "c": ("s1", "s2"),
        "g2": ("s1", "s2"),
        "d": ("s1",),
        "g1": ("s1",),
        "e": (),
    }
    assert found.closer == {"s1": "g1", "s2": "g2"}
    assert [found.clashes, found.unopened, found.doubled] == [[], [], []]


def test_an_error_edge_leaves_from_where_the_node_stands() -> None:
    found = scoping(graph("a>s1>b>g1>c", "s1!d", "g1!e", "b!f"))
    assert (found.scope["d"], found.scope["e"], found.scope["f"]) == ((), (), ("s1",))
    assert not found.clashes


def test_what_contradicts_itself_is_found() -> None:
    assert scoping(graph("a>g1")).unopened == ["g1"]
    assert scoping(graph("s1>b>g1", "s1>c>g2")).doubled == [("s1", "g1", "g2")]
    [(node, *ways)] = scoping(graph("a>s1>b", "a>b")).clashes
    assert (node, set(ways)) == ("b", {"a", "s1"})


def test_a_gather_may_be_reached_by_several_ways_of_its_body() -> None:
    found = scoping(graph("s1>b>g1", "s1>c>g1", "s1>g1"))
    assert found.closer == {"s1": "g1"}
    assert [found.doubled, found.clashes] == [[], []]


# Counts


def test_a_merge_expects_every_way_to_it() -> None:
    flow = graph("a>b>m1", "a>c>m1", "a>m1>d")
    assert flow.paths().expected == {"m1": 3}


def test_counts_multiply_and_start_anew_at_a_merge() -> None:
    flow = graph("a>b>d", "a>c>d", "d>e>m1", "d>f>m1", "m1>m2", "a>m2")
    assert flow.paths().expected == {"m1": 4, "m2": 2}


def test_a_fan_out_counts_as_one_node() -> None:
    flow = graph("a>s1>b>m1>g1>m2", "s1>c>m1", "a>m2")
    assert flow.paths().expected == {"m1": 2, "m2": 2}


def test_a_split_that_runs_twice_is_two_fan_outs() -> None:
    flow = graph("a>b>s1>c>m1>g1>m2", "a>d>s1>e>m1")
    assert flow.paths().expected == {"m1": 2, "m2": 2}


def test_large_counts_are_exact() -> None:
    ways = [f"n{i}>{side}{i}>n{i + 1}" for i in range(64) for side in "ab"]
    assert graph(*ways, "n64>m1").paths().expected == {"m1": 2**64}


def test_started_by_hand_it_counts_from_there() -> None:
    flow = graph("a>b>m1", "a>c>m1", "b>m1")
    assert flow.paths("b").expected == {"m1": 1}
    inside = graph("a>s1>b>m1>g1>m2", "s1>c>m1", "a>m2")
    assert inside.paths("b").expected == {"m1": 1, "m2": 1}


def test_an_untaken_edge_lets_down_the_merges_behind_it() -> None:
    flow = graph("a>b>c>m1>m2", "b>d>m1", "a>m2", "a>m1")
    lost = flow.paths().let_down
    assert lost(flow.edges["a-b"]) == {"m1": 2}
    assert lost(flow.edges["b-c"]) == {"m1": 1}
    assert lost(flow.edges["a-m2"]) == {"m2": 1}


def test_a_dead_path_passes_a_split_as_one_node() -> None:
    flow = graph("a>s1>b>m1>g1>m2", "s1>c>m1", "s1!m2", "a>m2")
    assert flow.paths().let_down(flow.edges["a-s1"]) == {"m2": 2}
    assert flow.paths().let_down(flow.edges["s1-b"]) == {"m1": 1}
    unclosed = graph("a>s1>b>m1", "s1>m1", "a>m2", "a>m2")
    assert unclosed.paths().let_down(unclosed.edges["a-s1"]) == {}


# At random: every merge of every scope is accounted for exactly, in any order, whatever is delivered twice.


def random_graph(rng: Random) -> tuple[Workflow, dict[str, str]]:
    """A graph with nested fan-outs, and how each node follows its edges: all, one or some of them."""
    ways: list[str] = []
    follows: dict[str, str] = {}
    _region(rng, ways, follows, depth=0)
    return graph(*ways), follows


def _region(rng: Random, ways: list[str], follows: dict[str, str], depth: int) -> tuple[str, list[str]]:
    """Some nodes that are reached from the first one; gives it, and the nodes that nothing follows."""
    ends: list[str] = []  # where edges leave each part of the region
    last: set[str] = set()
    first = ""
    for number in range(rng.randint(2, 6)):
        entry, leave = _part(rng, ways, follows, depth, first_of_region=number == 0)
        first = first or entry
        if number:
            for end in sorted(set(rng.choices(ends, k=rng.randint(1, 3)))):
                ways.append(f"{end}>{entry}")
                last.discard(end)
        if leave:
            ends.append(leave)
            last.add(leave)
    return first, sorted(last)


def _part(
    rng: Random, ways: list[str], follows: dict[str, str], depth: int, first_of_region: bool
) -> tuple[str, str | None]:
    """A node, or a fan-out: where edges enter and where they leave."""
    kind = rng.choice("pppmm" if depth > 1 or first_of_region else "pppmms")
    kind = "p" if first_of_region else kind
    name = f"{kind}{len(follows)}"
    follows[name] = rng.choice(["all", "all", "one", "some"]) if kind == "p" else "all"
    if kind != "s":
        ways.append(name)
        return name, name
    first, last = _region(rng, ways, follows, depth + 1)
    ways.append(f"{name}>{first}")
    if not last or rng.random() < 0.2:
        return name, None
    gather = f"g{len(follows)}"
    follows[gather] = rng.choice(["all", "some"])
    for end in last:
        if end == last[0] or rng.random() < 0.7:
            ways.append(f"{end}>{gather}")
    return name, gather


Scope = tuple[tuple[str, str, int], ...]
"""(split, its step, item) from the outside in."""


class Simulation:
    """Runs a graph by messages that come in any order, some of them twice."""

    def __init__(
        self, flow: Workflow, follows: Mapping[str, str], seed: int, doubled: bool, entry: str = ""
    ) -> None:
        self.flow, self.follows, self.seed, self.doubled = flow, follows, seed, doubled
        self.paths: Paths = flow.paths(entry)
        self.rng = Random(f"{seed}/{doubled}")
        self.queue: list[tuple[str, str, Scope]] = []
        self.runs: Counter[str] = Counter()
        self.known: set[str] = set()
        self.arrived: dict[tuple[Scope, str], dict[str, tuple[int, bool]]] = defaultdict(dict)
        self.closed: dict[tuple[Scope, str], tuple[str, bool]] = {}
        self.live: Counter[Scope] = Counter()
        self.settled: set[str] = set()
        self.ended: Counter[Scope] = Counter()
        self.items: dict[
            str, tuple[str, Scope, int]
        ] = {}  # step of a split -> (split, its scope, items left)
        entries = (entry,) if entry else flow.entries
        self.live[()] = len(entries)
        self.publish([(f"t/{id}", id, ()) for id in entries])
        while self.queue:
            self.step(*self.queue.pop(self.rng.randrange(len(self.queue))))

    def publish(self, tasks: list[tuple[str, str, Scope]]) -> None:
        for task in tasks:
            self.queue += [task] * (2 if self.doubled and self.rng.random() < 0.3 else 1)

    def step(self, id: str, node: str, scope: Scope) -> None:
        role = self.flow.nodes[node].role
        if id not in self.known:
            self.known.add(id)
            self.runs[f"{node}@{scope}"] += 1
        if role is Role.MERGE:
            follow = self.after([node] if self.tell(id, node, scope, id, 1, True) == "open" else [], scope)
            self.settle(id, scope, follow)
        elif role is Role.GATHER:
            self.settle(id, scope, [])
        elif role is Role.SPLIT:
            self.fan_out(id, node, scope)
        else:
            self.settle(id, scope, self.go_on(id, node, scope))

    def go_on(self, id: str, node: str, scope: Scope) -> list[tuple[str, str, Scope]]:
        """Follow some edges of a node, and tell the merges behind the others."""
        edges = self.flow.outgoing[node]
        choice = Random(f"{self.seed}/{id}")
        taken = {
            "all": edges,
            "one": [choice.choice(edges)] if edges else [],
            "some": [edge for edge in edges if choice.random() < 0.6],
        }[self.follows[node]]
        opened = self.skip(id, [edge for edge in edges if edge not in taken], scope)
        return [(f"{id}/{edge.id}", edge.dst, scope) for edge in taken] + self.after(opened, scope)

    def after(self, opened: list[str], scope: Scope) -> list[tuple[str, str, Scope]]:
        return [(f"M{m}{scope}/{edge.id}", edge.dst, scope) for m in opened for edge in self.flow.outgoing[m]]

    def skip(self, id: str, dead: list[Edge], scope: Scope) -> list[str]:
        """Tell merges what will not come; a merge that is found dead passes it on."""
        opened: list[str] = []
        todo = [(f"{id}!{edge.id}", edge) for edge in dead]
        while todo:
            member, edge = todo.pop()
            for merge, weight in self.paths.let_down(edge).items():
                answer = self.tell(id, merge, scope, member, weight, False)
                if answer == "open" and merge not in opened:
                    opened.append(merge)
                if answer == "dead":
                    todo += [(f"M{merge}!{edge.id}", edge) for edge in self.flow.outgoing[merge]]
        return opened

    def tell(self, id: str, merge: str, scope: Scope, member: str, weight: int, live: bool) -> str | None:
        """Account for an arrival; what became of the merge if it was this step that closed it."""
        at = (scope, merge)
        members = self.arrived[at]
        new = member not in members
        members.setdefault(member, (weight, live))
        total = sum(weight for weight, _ in members.values())
        assert total <= self.paths.expected[merge], f"too many at {merge}"
        if total == self.paths.expected[merge] and at not in self.closed:
            assert new
            self.closed[at] = (id, any(live for _, live in members.values()))
        closer, alive = self.closed.get(at, ("", False))
        return ("open" if alive else "dead") if closer == id else None

    def fan_out(self, id: str, node: str, scope: Scope) -> None:
        body = self.flow.outgoing[node]
        items = Random(f"{self.seed}/{id}/items").randint(0, 2)
        if id not in self.items:
            self.items[id] = (node, scope, items)
            for item in range(items):
                self.live[(*scope, (node, id, item))] = len(body)
        for item in range(items):
            inner = (*scope, (node, id, item))
            if not self.ended[inner]:
                self.publish([(f"{id}/{item}/{edge.id}", edge.dst, inner) for edge in body])
        if not items:
            self.gathered(id)

    def settle(self, id: str, scope: Scope, follow: list[tuple[str, str, Scope]]) -> None:
        if id not in self.settled:
            self.settled.add(id)
            self.live[scope] += len(follow) - 1
            assert self.live[scope] >= 0
            if self.live[scope] == 0:
                self.end(scope)
        self.publish([task for task in follow if not self.ended[scope]])

    def end(self, scope: Scope) -> None:
        self.ended[scope] += 1
        if scope:
            step = scope[-1][1]
            node, outer, left = self.items[step]
            self.items[step] = (node, outer, left - 1)
            if left == 1:
                self.gathered(step)

    def gathered(self, id: str) -> None:
        node, scope, _ = self.items[id]
        gather = self.paths.closer.get(node)
        self.settle(id, scope, self.go_on(f"{id}!g", gather, scope) if gather else [])

    def check(self) -> None:
        """Every scope ended once, and every merge that could be reached was closed with nothing missing."""
        static = scoping(self.flow).scope
        for scope, live in self.live.items():
            assert live == 0
            assert self.ended[scope] == 1
            for merge, expected in self.paths.expected.items():
                if expected and static[merge] == tuple(split for split, _, _ in scope):
                    members = self.arrived[scope, merge]
                    assert (scope, merge) in self.closed, (merge, scope)
                    assert sum(weight for weight, _ in members.values()) == expected


@given(seed=st.integers(0, 2**32))
def test_every_merge_is_accounted_for_exactly(seed: int) -> None:
    flow, follows = random_graph(Random(seed))
    runs = []
    for doubled in (False, True):
        simulation = Simulation(flow, follows, seed, doubled)
        simulation.check()
        runs.append(simulation.runs)
    assert runs[0] == runs[1]


@given(seed=st.integers(0, 2**32))
def test_also_when_started_by_hand_in_mid_graph(seed: int) -> None:
    rng = Random(seed)
    flow, follows = random_graph(rng)
    static = scoping(flow).scope
    starts = [id for id in flow.nodes if not static[id] and flow.nodes[id].role in (Role.PLAIN, Role.SPLIT)]
    Simulation(flow, follows, seed, doubled=True, entry=rng.choice(starts)).check()
