"""The registry, and node types that users add."""

from __future__ import annotations

import sys
import threading
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta

from rune.core.errors import DefinitionError
from rune.core.expressions import Expression
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.registry import Registry, load_entry_points, load_modules, node, node_types_of
from rune.core.workflow import Retry
from rune.nodes import SERVICES
from tests.nodes.fakes import FakeContext, made, run


def type_of(decorated: Any) -> type[NodeType]:
    (found,) = node_types_of(decorated)
    return found


@pytest.fixture
async def context() -> Any:
    threads = SERVICES["threads"]()
    yield FakeContext({"$u": {"name": "Ada"}}, services={"threads": threads})
    await threads.close()


# --- the decorator -----------------------------------------------------------------------------------------


async def test_function_is_a_node(context: FakeContext) -> None:
    @node
    def greet(name: str, times: int = 1, mood: Literal["glad", "sad"] = "glad") -> dict[str, Any]:
        """Greet somebody.

        More about it.
        """
        return {"greeting": f"Hello {name}! " * times, "mood": mood}

    type = type_of(greet)
    assert (type.name, type.effects, type.pure) == ("greet", True, False)
    assert (type.__doc__ or "").startswith("Greet somebody.")
    result = await run(type, context, **{"name": "{{ $u.name }}", "times": "2"})
    assert result == Done({"greeting": "Hello Ada! Hello Ada! ", "mood": "glad"})
    assert greet("Bob")["greeting"] == "Hello Bob! ", "the function is still one"
    with pytest.raises(DefinitionError, match="'name'"):
        made(type, context, {})
    with pytest.raises(DefinitionError, match="mood"):
        made(type, context, {"name": "x", "mood": "grim"})


async def test_names_and_facts(context: FakeContext) -> None:
    @node("company.double", effects=False, retry=Retry(attempts=3, delay=2))
    async def double(value: Annotated[float, Meta(ge=0, description="What to double.")]) -> float:
        return value * 2

    type = type_of(double)
    assert (type.name, type.effects) == ("company.double", False)
    assert made(type, context, {"value": 1}).retry_policy() == Retry(attempts=3, delay=2)
    assert await run(type, context, value=4) == Done(8.0)
    with pytest.raises(DefinitionError, match="value"):
        made(type, context, {"value": -1})


async def test_context_is_handed_over(context: FakeContext) -> None:
    @node
    async def by_type(where: StepContext) -> str:
        return where.step

    @node
    def by_name(context, suffix="!"):  # type: ignore[no-untyped-def]
        return context.step + suffix

    assert await run(type_of(by_type), context) == Done("step-1")
    assert await run(type_of(by_name), context) == Done("step-1!")


async def test_outcomes_pass_through(context: FakeContext) -> None:
    @node
    async def choose() -> Outcome:
        return Done({"x": 1}, port="left")

    assert await run(type_of(choose), context) == Done({"x": 1}, port="left")


async def test_blocking_functions_run_in_threads(context: FakeContext) -> None:
    @node
    def where() -> str:
        return threading.current_thread().name

    @node(pure=True)
    def here() -> str:
        return threading.current_thread().name

    outcome = await run(type_of(where), context)
    assert isinstance(outcome, Done)
    assert outcome.output.startswith("rune-node")
    assert await run(type_of(here), context) == Done(threading.current_thread().name)
    assert (type_of(here).pure, type_of(here).effects) == (True, False)


async def test_arguments_are_copies(context: FakeContext) -> None:
    @node(pure=True)
    def spoil(values: list[Any], more: dict[str, Any] = {}) -> int:  # noqa: B006
        values.append(1)
        more["x"] = 1
        return len(values) + len(more)

    context.values["$list"] = [{"a": 1}]
    for _ in range(2):
        assert await run(type_of(spoil), context, values="$list") == Done(3)
    assert context.values["$list"] == [{"a": 1}]


async def test_errors_reach_the_engine(context: FakeContext) -> None:
    @node
    def fail() -> None:
        raise LookupError("not today")

    with pytest.raises(LookupError, match="not today"):
        await run(type_of(fail), context)


async def test_parameters_may_be_called_like_facts_of_a_node_type(context: FakeContext) -> None:
    @node(pure=True)
    def odd(name: str, role: str, run: int = 1, ports: int = 2) -> list[Any]:
        return [name, role, run, ports]

    assert type_of(odd).name == "odd"
    assert await run(type_of(odd), context, name="n", role="r", ports=5) == Done(["n", "r", 1, 5])


async def test_expressions_arrive_compiled(context: FakeContext) -> None:
    @node
    async def each(values: list[Any], of: Expression, context: StepContext) -> list[Any]:
        return [context.evaluate(of, {"$item": value}) for value in values]

    assert await run(type_of(each), context, values=[1, 2], of="$item * 10") == Done([10, 20])


async def test_class_is_a_node(context: FakeContext) -> None:
    @node("company.shout")
    class Shout(NodeType, kw_only=True):
        """Shout."""

        text: str

        async def run(self, context: StepContext) -> Outcome:
            return Done(self.text.upper())

    @node
    class Whisper(Shout, kw_only=True):
        name: ClassVar = "company.whisper"

    assert Shout.name == "company.shout"
    assert Whisper.name == "company.whisper"
    assert await run(Shout, context, text="hey") == Done("HEY")


def test_what_cannot_be_a_node() -> None:
    def rest(*values: int) -> None: ...
    async def waits() -> None: ...

    for target, error in ((rest, "need names"), (int, "NodeType")):
        with pytest.raises(TypeError, match=error):
            node(target)
    with pytest.raises(TypeError, match="pure"):
        node(pure=True)(waits)
    with pytest.raises(ValueError, match="name"):
        node("no spaces please")(waits)


# --- the registry ------------------------------------------------------------------------------------------


class First(NodeType, kw_only=True):
    """First."""

    name: ClassVar = "first"


class Rival(NodeType, kw_only=True):
    """Another first."""

    name: ClassVar = "first"


def test_registry() -> None:
    registry = Registry([First])
    registry.add(First)
    assert registry.get("first") is First
    assert registry.get("second") is None
    assert registry.names() == ["first"]
    assert registry.suggest("frist") == "first"
    assert registry.suggest("zzz") is None
    with pytest.raises(DefinitionError, match=r"'first'.*First.*Rival"):
        registry.add(Rival)


MODULE = '''
from typing import ClassVar
import rune.core.registry
from rune.core.node import NodeType
from rune.nodes.log import Log

@rune.core.registry.node("company.greet")
def greet(who: str = "you"):
    """Greet."""
    return who

class Abstract(NodeType, kw_only=True):
    """No name, no node."""

class Named(Abstract, kw_only=True):
    """Named."""
    name: ClassVar = "company.named"

VALUE = object()
'''


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "company_nodes.py").write_text(MODULE)
    (tmp_path / "broken_nodes.py").write_text("import no_such_module_anywhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("company_nodes", None)


@pytest.mark.usefixtures("company")
def test_modules() -> None:
    assert [type.name for type in load_modules(["company_nodes"])] == [
        "log",
        "company.greet",
        "company.named",
    ]
    assert load_modules([]) == []


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("name", ["no_such_nodes", "broken_nodes"])
def test_module_that_cannot_be_imported(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"'{name}'.*ModuleNotFoundError"):
        load_modules([name])


@pytest.mark.usefixtures("company")
def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("module", "company_nodes", "rune.nodes"),
        EntryPoint("function", "company_nodes:greet", "rune.nodes"),
        EntryPoint("class", "company_nodes:Named", "rune.nodes"),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: EntryPoints(points).select(group=group)
    )
    registry = Registry(load_entry_points())
    assert registry.names() == ["company.greet", "company.named", "log"]
    points[:] = [EntryPoint("bad", "company_nodes:missing", "rune.nodes")]
    with pytest.raises(DefinitionError, match=r"'bad'.*company_nodes:missing"):
        load_entry_points()


def test_parameters_of_functions_make_a_schema() -> None:
    @node
    def shaped(count: Annotated[int, Meta(ge=1)] = 1) -> int:
        return count

    schema = msgspec.json.schema(type_of(shaped))
    (definition,) = schema["$defs"].values()
    assert definition["properties"]["count"] == {"minimum": 1, "type": "integer", "default": 1}
