"""What a definition calls is found by name, and becomes part of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from rune.core.errors import DefinitionError, Problem
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.formats.definition import compile_definition, examine
from rune.formats.linking import DEEPEST, Found
from rune.nodes import load_builtin
from tests.formats.definitions import flow, log, node


@pytest.fixture(scope="module")
def registry() -> Registry:
    """The types of both formats."""
    return Registry([*load_builtin(), *load_builtin("playbook"), *load_builtin("tools")])


class Shelf:
    """Definitions by name, which call one another by these names."""

    def __init__(self, **definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions

    def find(self, name: str) -> Found | None:
        if name == "broken":
            raise DefinitionError([Problem("E002", "the JSON is broken", line=7, column=1)])
        found = self.definitions.get(name)
        return None if found is None else Found(found, name, self)


class Stored(Shelf):
    """Definitions that carry already what they call."""

    def find(self, name: str) -> Found | None:
        found = super().find(name)
        return None if found is None else msgspec.structs.replace(found, resolver=None)


def call(*names: str, **more: Any) -> dict[str, Any]:
    """A workflow that calls these."""
    calls = [node(f"call{n}", "workflow", {"workflow": name}) for n, name in enumerate(names)]
    return {**json.loads(flow(*calls)), **more}


PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "book"},
    "workbook": [{"name": "shared", "tool": {"kind": "playbook", "path": "leaf"}}],
    "workflow": [{"step": "one", "tool": {"kind": "workbook", "name": "shared"}}],
}
LEAF = json.loads(flow(log("a")))


def linked(registry: Registry, shelf: Shelf, *names: str) -> tuple[Workflow | None, list[Problem]]:
    """What becomes of a workflow that calls these."""
    text = json.dumps(call(*names), indent=1)
    _, found, problems = examine(text, "main", registry, resolver=shelf, identity="main")
    return found, problems


def test_what_is_called_and_what_that_calls_is_carried(registry: Registry) -> None:
    made, problems = linked(registry, Shelf(middle=call("book"), book=PLAYBOOK, leaf=LEAF), "middle", "leaf")
    assert (problems, made is not None) == ([], True)
    assert made is not None
    carried = json.loads(made.definition)["workflows"]
    assert set(carried) == {"middle", "leaf"}
    assert set(carried["middle"]["workflows"]["book"]["workflows"]) == {"leaf"}
    again = compile_definition(made.definition, registry)
    assert set(again.called) == {"middle", "leaf"}, "a worker needs nothing else"


def test_a_graph_without_an_id_is_known_by_the_name_it_is_called(registry: Registry) -> None:
    made, _ = linked(registry, Shelf(leaf=LEAF), "leaf")
    assert made is not None
    assert compile_definition(bytes(made.called["leaf"]), registry).id == "leaf"


def test_e050_a_workflow_that_is_not_there(registry: Registry) -> None:
    made, (problem,) = linked(registry, Shelf(), "nobody")
    assert made is None
    assert (problem.code, problem.message) == ("E050", "there is no workflow 'nobody' to call")
    assert (problem.line, problem.column) == (7, 17)


def test_e050_a_template_is_no_name(registry: Registry) -> None:
    _, (problem,) = linked(registry, Shelf(), "{{ $trigger.name }}")
    assert problem.code == "E050"
    assert "write the name itself" in (problem.hint or "")


def test_what_nobody_finds_may_be_carried_already(registry: Registry) -> None:
    text = json.dumps(call("leaf", workflows={"leaf": LEAF}))
    _, made, problems = examine(text, "main", registry, resolver=Shelf(), identity="main")
    assert (made is not None, problems) == (True, [])
    fresh = json.loads(flow(log("fresh")))
    _, made, _ = examine(text, "main", registry, resolver=Shelf(leaf=fresh), identity="main")
    assert made is not None
    assert json.loads(bytes(made.called["leaf"]))["nodes"][0]["id"] == "fresh"


def test_e051_a_circle_is_refused_with_the_way_around_it(registry: Registry) -> None:
    shelf = Shelf(first=call("second"), second=call("main"), main=call("first"))
    made, (problem,) = linked(registry, shelf, "first")
    assert made is None
    assert (problem.code, problem.line) == ("E051", 7)
    assert problem.message == "the calls go in a circle: main → first → second → main"


def test_e051_a_circle_in_what_is_carried_already(registry: Registry) -> None:
    first = call("older", workflows={"older": {**LEAF, "workflow_id": "main"}})
    made, (problem,) = linked(registry, Stored(first=first), "first")
    assert made is None
    assert problem.message == "the calls go in a circle: main → first → older"


@pytest.mark.parametrize("name", ["bad", "broken", "deep"])
def test_e052_what_is_called_cannot_be_run(registry: Registry, name: str) -> None:
    bad = json.loads(flow(node("a", "logg")))
    made, (problem,) = linked(registry, Shelf(bad=bad, deep=call("bad")), name)
    assert made is None
    assert (problem.code, problem.line) == ("E052", 7)
    assert f"the workflow {name!r} cannot be run: " in problem.message
    assert ("line 7" in problem.message) == (name == "broken")


def test_e053_too_many_calls_inside_one_another(registry: Registry) -> None:
    chain = {f"w{n}": call(f"w{n + 1}") for n in range(DEEPEST + 1)}
    made, (problem,) = linked(registry, Shelf(**chain), "w0")
    assert (made, problem.code, problem.line) == (None, "E053", 7)
    fits = {f"w{n}": call(f"w{n + 1}") for n in range(DEEPEST - 1)}
    fits[f"w{DEEPEST - 1}"] = LEAF
    made, problems = linked(registry, Shelf(**fits), "w0")
    assert (made is not None, problems) == (True, [])


def test_e053_calls_that_double_at_every_level(registry: Registry) -> None:
    """A few lines could otherwise become more bytes than there are."""
    long = json.loads(flow(log("a", "x" * 500_000)))
    chain = {f"{side}{n}": call(f"a{n + 1}", f"b{n + 1}") for n in range(8) for side in "ab"}
    made, problems = linked(registry, Shelf(**chain, a8=long, b8=long), "a0", "b0")
    assert (made, {problem.code for problem in problems}) == (None, {"E053"})


def test_e053_what_a_worker_is_given_by_hand_is_checked_as_well(registry: Registry) -> None:
    definition: dict[str, Any] = LEAF
    for _ in range(DEEPEST + 1):
        definition = call("x", workflows={"x": definition})
    with pytest.raises(DefinitionError, match="calls inside one another"):
        compile_definition(msgspec.json.encode(definition), registry)
    for strange in ([], {"x": 1}):
        with pytest.raises(DefinitionError, match="'workflows' must be an object"):
            compile_definition(msgspec.json.encode(call("x", workflows=strange)), registry)
