"""Redrive and fork: executions that share the ids of an earlier one's steps, and do not run what stands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Raw, Struct

from rune.core.errors import RuneError
from rune.core.operations import Seed
from rune.core.references import follow, hashes_in
from rune.core.workflow import Workflow
from rune.engine.seeding import edits_of
from rune.history import History
from rune.history.executions import Execution, NewExecution
from rune.history.steps import StepRecord
from rune.master.rerunning import Generation, generations
from rune.master.runtime import Runtime
from rune.master.standing import LABEL, Selection, Wish, seed_of, wish_of

__all__ = ["Prepared", "RedriveError", "Redriving"]

_PAGE = 1000
_PAGE_BYTES = 16 << 20
"""Steps that are read, and bytes of outputs that are held, at a time."""
_NAMED = 100
"""Steps without their output that are named."""

_LOST = """
    SELECT s.step, s.{hash} AS hash FROM history_step s
    WHERE s.execution_id = $1 AND s.status = 'success' AND s.{hash} IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM history_value v WHERE v.execution_id = $1 AND v.hash = s.{hash})
    ORDER BY s.step LIMIT $2
"""
_OUTPUTS_LOST, _VARIABLES_LOST = _LOST.format(hash="output_hash"), _LOST.format(hash="sets_hash")


class RedriveError(RuneError):
    """A redrive or a fork that cannot be."""


class Prepared(Struct, frozen=True):
    """An execution to be stored and started."""

    new: NewExecution
    flow: Workflow
    wish: Wish
    """With what earlier wishes made of items."""
    again: Sequence[tuple[str, str]] = ()
    """Steps, with their nodes, that succeeded and run again all the same, for their output is no more."""


class Redriving:
    """Makes executions of earlier ones."""

    def __init__(self, history: History, runtime: Runtime) -> None:
        self._history = history
        self._runtime = runtime

    async def prepare(
        self,
        parent: Execution,
        wish: Wish,
        flow: Workflow,
        *,
        version: int | None = None,
        input: Raw | None = None,
        created_by: str | None = None,
    ) -> Prepared:
        """The execution that does what is wished with `flow`, the parent's own or another version of it."""
        await self._check(parent, wish, flow, changed=input is not None)
        edited = wish_of(parent).all_edits()
        wish = msgspec.structs.replace(wish, edited=edited, given=input is not None)
        labels = {**parent.labels, LABEL: msgspec.json.encode(wish).decode()}
        new = NewExecution(
            definition=flow.definition.decode(),
            name=parent.name,
            workflow_id=parent.workflow_id,
            workflow_version=parent.workflow_version if version is None else version,
            trigger="fork" if wish.fork else "redrive",
            input=parent.input if input is None else input,
            priority=parent.priority,
            parent=parent.id,
            root=parent.root or parent.id,
            labels=labels,
            created_by=created_by,
        )
        return Prepared(new, flow, wish, await self._lost(parent.id, wish, flow))

    async def _check(self, parent: Execution, wish: Wish, flow: Workflow, *, changed: bool) -> None:
        if parent.ended_at is None:
            raise RedriveError(f"{parent.id} has not ended; cancel it first, or wait for its end")
        for node in filter(None, (wish.fork, wish.node)):
            if node not in flow.nodes:
                raise RedriveError(f"the workflow has no node '{node}'")
        if (wish.edits or wish.items is not None) and not wish.barrier:
            raise RedriveError("items are those of a split: name its barrier")
        if wish.barrier:
            await self._check_items(parent.id, wish)
        if not (wish.fork or wish.edits or changed) and not await self._failed(parent, wish, flow):
            raise RedriveError(f"nothing of {parent.id} that could be redriven has failed")

    async def _check_items(self, parent: str, wish: Wish) -> None:
        row = await self._history.database.fetch_one(
            "SELECT total FROM history_split WHERE execution_id = $1 AND barrier = $2", parent, wish.barrier
        )
        if row is None:
            raise RedriveError(f"{parent} has no split '{wish.barrier}'")
        total = row["total"]
        strange = [
            i for i in (*wish.edits, *(wish.items or ())) if i < 0 or (total is not None and i >= total)
        ]
        if strange:
            raise RedriveError(f"the split has no item {strange[0]}")

    async def _failed(self, parent: Execution, wish: Wish, flow: Workflow) -> bool:
        """Whether there is anything to do again."""
        if parent.status != "completed":
            return True
        counts = await self._history.executions.nodes(parent.id)
        failed = [flow.nodes[id] for id, count in counts.items() if count.failed and id in flow.nodes]
        return any(node.error.type == "halt" or node.id == wish.node for node in failed)

    # --- seeds ---

    async def seeds_of(self, execution: Execution, flow: Workflow) -> AsyncIterator[Seed]:
        """What an execution that was prepared knows before it starts, however often it is asked for."""
        if execution.parent is not None and LABEL in execution.labels:
            async for seed in self.seeds(execution.parent, wish_of(execution), flow):
                yield seed

    async def seeds(self, parent: str, wish: Wish, flow: Workflow) -> AsyncIterator[Seed]:
        """What stands of an execution's steps, and of those before it."""
        for barrier, edits in wish.all_edits().items():
            data = msgspec.json.encode({str(item): value for item, value in edits.items()})
            yield Seed(barrier, (), values={edits_of(barrier): data})
        # Where nobody knows it any more nothing would stand: rather fail than run everything again.
        await self._definition(parent)
        # Of two outcomes of one step, State keeps what it is told first.
        for generation in await generations(self._history, parent, wish, flow):
            async for seed in self._standing(generation):
                yield seed

    async def _standing(self, generation: Generation) -> AsyncIterator[Seed]:
        """What stands of one execution's steps."""
        execution = generation.execution
        last: StepRecord | None = None
        while True:
            page = await self._history.steps.scan(execution, after=last, limit=_PAGE)
            for some in _portions([step for step in page if generation.stands(step)]):
                outputs = await self._outputs(execution, some)
                for step in some:
                    seed = seed_of(step, outputs, late=step.node_id in generation.late)
                    if seed is not None:
                        async for part in self._referring(execution, seed):
                            yield part
            if len(page) < _PAGE:
                return
            last = page[-1]

    async def _definition(self, execution: str) -> bytes:
        text = await self._history.executions.definition(execution)
        if text is None:
            raise RedriveError(f"the definition that {execution} ran is not known")
        return text.encode()

    async def _outputs(self, execution: str, steps: Iterable[StepRecord]) -> Mapping[str, bytes]:
        """What is not with the steps it belongs to, from the history or, for a while, from State."""
        named = {hash for step in steps for hash in (step.output_hash, step.sets_hash) if hash is not None}
        return await self._values(execution, list(named)) if named else {}

    async def _referring(self, execution: str, seed: Seed) -> AsyncIterator[Seed]:
        """A seed behind the values that its outcome names; none where one of them is no more."""
        named = hashes_in(seed.outcome).union(*map(hashes_in, seed.values.values()))
        async for wanted, found in follow(named, partial(self._values, execution)):
            if len(found) < len(wanted):
                return
            yield Seed(seed.step, seed.place, values=found)
        yield seed

    async def _values(self, execution: str, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """Stored values, from the history or, for a while, from State."""
        found = await self._history.values.get_all(execution, hashes)
        missing = [hash for hash in hashes if hash not in found]
        return {**found, **(await self._runtime.values(execution, missing) if missing else {})}

    async def _lost(self, parent: str, wish: Wish, flow: Workflow) -> list[tuple[str, str]]:
        """The steps that would stand if all that came of them were still to be had."""
        database = self._history.database
        rows = [
            row
            for sql in (_OUTPUTS_LOST, _VARIABLES_LOST)
            for row in await database.fetch(sql, parent, _NAMED)
        ]
        if not rows:
            return []
        selection = Selection(wish, flow, await self._definition(parent))
        kept = await self._runtime.values(parent, [row["hash"] for row in rows])
        missing = {row["step"]: None for row in rows if row["hash"] not in kept}
        steps = [await self._history.steps.get(parent, step) for step in missing]
        return [(step.step, step.node_id) for step in steps if step is not None and selection.stands(step)]


def _portions(steps: Sequence[StepRecord]) -> Iterator[list[StepRecord]]:
    """The same steps, in portions whose outputs can be held at a time."""
    portion: list[StepRecord] = []
    size = 0
    for step in steps:
        portion.append(step)
        size += (step.output_size or 0) + (step.sets_size or 0)
        if size > _PAGE_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
