"""What names mean to an expression at one branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Raw, Struct, field, json

from rune.core.context import Layer, Ref
from rune.core.messages import Branch
from rune.core.workflow import Workflow

__all__ = ["BranchScope", "Over", "context_names", "output_name", "unwrapped"]


def context_names(names: frozenset[str], flow: Workflow, branch: Branch) -> frozenset[str]:
    """The names of the context that `names` may read: some stand for others."""
    wanted = set(names)
    if "$json" in wanted or "$previous" in wanted:
        wanted.add(output_name(flow, branch.from_node))
    if "$input" in wanted or any(n[1:] in flow.nodes and flow.nodes[n[1:]].trigger for n in names):
        wanted.add("$trigger")
    if "$items" in wanted:
        wanted.update(_item_names(branch))
    return frozenset(wanted)


def output_name(flow: Workflow, from_node: str | None) -> str:
    """The context's name for the output of the node before; a trigger's is the payload."""
    node = flow.nodes.get(from_node or "")
    return "$trigger" if node is None or node.trigger else f"${node.id}"


def _item_names(branch: Branch) -> list[str]:
    """The enclosing items' names in the context, outermost first."""
    depth = len(branch.lineage)
    return [f"$item.{i}" for i in range(depth - 1)] + ["$item"] * (depth > 0)


class _Working(Struct):
    payload: Raw = field(name="$json")


_working_decoder = json.Decoder(_Working)


def unwrapped(output: Raw) -> Raw:
    """The payload in an output of the form `{"$json": payload, …}`."""
    return _working_decoder.decode(output).payload


class BranchScope(Struct, eq=False, gc=False):
    """Looks names up in a branch: its context, its place, its execution."""

    _flow: Workflow
    _execution: str
    _branch: Branch
    _layers: Mapping[Ref, Layer]

    def lookup(self, name: str) -> Any:
        """The value of a root name such as `$fetch`; KeyError if it means nothing here."""
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self)
        try:
            return self._branch.context.value(name, self._layers.__getitem__)
        except KeyError:
            node = self._flow.nodes.get(name[1:])
            if node is not None and node.trigger:
                return self._branch.context.value("$trigger", self._layers.__getitem__)
            raise

    def names(self) -> Iterator[str]:
        """Every name that means something here."""
        yield from self._branch.context.names(self._layers.__getitem__)
        yield from _SPECIAL

    def _value(self, name: str) -> Any:
        return self._branch.context.value(name, self._layers.__getitem__)

    def _json(self) -> Any:
        try:
            return self._value("$json")
        except KeyError:
            return self._output()

    @property
    def _left_payload(self) -> bool:
        """Whether the node before left a working payload, rather than data that looks like one."""
        before = self._branch.from_node
        return before is not None and self._branch.context.writers[0] == before

    @property
    def _output_name(self) -> str:
        return output_name(self._flow, self._branch.from_node)

    def _output(self) -> Any:
        return self._value(self._output_name)

    def previous(self) -> Raw:
        """The output of the node before, or the working payload it left, undecoded."""
        output = self._branch.context.raw(self._output_name, self._layers.__getitem__)
        return unwrapped(output) if self._left_payload else output

    def _previous(self) -> Any:
        """The output of the node before, or the working payload it left."""
        output = self._output()
        return output["$json"] if self._left_payload else output

    def _input(self) -> Any:
        try:
            return self._value("$input")
        except KeyError:
            return self._value("$trigger")

    def _index(self) -> int:
        if not self._branch.lineage:
            raise KeyError("$index")
        return self._branch.lineage[-1].item_index

    def _items(self) -> list[Any]:
        known = self._branch.context.has
        return [
            self._value(name) for name in _item_names(self._branch) if known(name, self._layers.__getitem__)
        ]

    def _execution_facts(self) -> dict[str, str]:
        return {"id": self._execution}

    def _workflow_facts(self) -> dict[str, str]:
        return {"id": self._flow.id, "name": self._flow.name}


class Over:
    """Names laid over a scope."""

    __slots__ = ("_names", "_scope")

    def __init__(self, names: Mapping[str, Any], scope: BranchScope) -> None:
        self._names = names
        self._scope = scope

    def lookup(self, name: str) -> Any:
        """The value of a name."""
        return self._names[name] if name in self._names else self._scope.lookup(name)

    def names(self) -> list[str]:
        """Every name that means something here."""
        return [*self._names, *self._scope.names()]


_SPECIAL = {
    "$json": BranchScope._json,
    "$previous": BranchScope._previous,
    "$input": BranchScope._input,
    "$index": BranchScope._index,
    "$items": BranchScope._items,
    "$execution": BranchScope._execution_facts,
    "$workflow": BranchScope._workflow_facts,
}
