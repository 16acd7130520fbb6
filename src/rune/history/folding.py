"""What statuses and completions, in whatever order and however often they come, make of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from rune.core.messages import Caller, CompletionMessage, Frame, NodeStatusMessage
from rune.history.events import Event
from rune.history.rows import ExecutionRow, ItemRow, NodeRow, SplitRow, StepRow, precedence
from rune.history.telling import clean, gathers, moment, resumes, retried, told, united

__all__ = ["Fold", "Known"]

_encode = msgspec.json.Encoder().encode
_ALIVE = ("pending", "running", "paused")


class Known:
    """The rows that a fold starts from, by their keys."""

    def __init__(self) -> None:
        self.executions: dict[str, ExecutionRow] = {}
        self.steps: dict[tuple[str, str, int, str], StepRow] = {}
        self.nodes: dict[tuple[str, str], NodeRow] = {}
        self.splits: dict[tuple[str, str], SplitRow] = {}
        self.items: dict[tuple[str, str, int], ItemRow] = {}


class Fold:
    """Takes in messages; what has changed by then are the rows in `changed`, events, values and more.

    The rows depend on which messages were taken in, not on their order, and not on how often.
    """

    def __init__(self, known: Known, clock: Callable[[], float]) -> None:
        self.known = known
        self.changed = Known()
        self.events: dict[str, list[Event]] = {}
        self.values: dict[tuple[str, str], bytes] = {}
        """Outputs and variables that are too large to be kept with their steps."""
        self.strangers: dict[str, tuple[str, float, Caller | None]] = {}
        """Executions nobody has heard of before: their workflow, when that was, and who called them."""
        self.ended: list[str] = []
        """Executions that ended with these messages."""
        self.moved: list[tuple[str, str, str, str]] = []
        """(execution, barrier, from, to): fan-outs whose stragglers are in another state now."""
        self._clock = clock
        self._stragglers: dict[tuple[str, str], str] = {}

    # --- statuses ------------------------------------------------------------------------------------------

    def status(self, message: NodeStatusMessage) -> None:
        """Take in what became of one step."""
        at = moment(message.executed_at) or self._clock()
        execution = self._execution(message, at)
        self._begun(execution, at - message.duration_ms / 1000)
        news = False
        if message.lineage_stack:
            news = self._item(message, at)
        if message.closes:
            news = self._close(message) or news
        if message.join and message.status == "waiting" and message.details:
            news = self._progress(message) or news
        if not message.join or message.details or message.error is not None:
            news = self._step(execution, message, at) or news
        if news and (not message.join or message.status != "running"):
            self._log(message, at)

    def _execution(self, message: NodeStatusMessage | CompletionMessage, at: float) -> ExecutionRow:
        id = message.execution_id
        execution = self.known.executions.get(id)
        if execution is None:
            execution = ExecutionRow(id, "pending", None, None, None, None, None, None, None, 0)
            self.known.executions[id] = execution
            self.strangers[id] = (message.workflow_id, at, message.caller)
        return execution

    def _begun(self, execution: ExecutionRow, at: float) -> None:
        if execution.started_at is None or at < execution.started_at:
            execution.started_at = at
            self.changed.executions[execution.id] = execution
        if execution.status == "pending":
            execution.status = "running"
            self.changed.executions[execution.id] = execution

    def _log(self, message: NodeStatusMessage, at: float) -> None:
        frame = message.lineage_stack[-1] if message.lineage_stack else None
        event = Event(
            at=at,
            kind=message.status,
            node=message.node_id,
            step=message.step,
            barrier=frame.barrier if frame else "",
            item=frame.item_index if frame else None,
            attempt=message.attempt,
            duration_ms=message.duration_ms,
            error=message.error,
            details=message.details,
        )
        self.events.setdefault(message.execution_id, []).append(event)

    # --- steps ---------------------------------------------------------------------------------------------

    def _step(self, execution: ExecutionRow, message: NodeStatusMessage, at: float) -> bool:
        """Take in what this says of the step, or of the join it came to; whether that is news."""
        row, large = told(message, at)
        self.values.update(((execution.id, hash), data) for hash, data in large.items())
        key = (row.execution_id, row.barrier, row.item_index, row.step)
        old = self.known.steps.get(key)
        self._seen(row)
        if old is None:
            self._counted(execution, None, row)
        else:
            counts = precedence(row) > precedence(old)
            started_at = min(old.started_at, row.started_at)
            attempts = united(old.attempts, row.attempts)
            if not counts and started_at == old.started_at and attempts == old.attempts:
                return False
            row = msgspec.structs.replace(row if counts else old, started_at=started_at, attempts=attempts)
            self._counted(execution, old, row)
        self.known.steps[key] = self.changed.steps[key] = row
        return True

    def _counted(self, execution: ExecutionRow, old: StepRow | None, row: StepRow) -> None:
        """Let the node's counts follow; what is not at its end when the execution is, is stopped."""
        if execution.ended_at is not None and row.ended_at is None:
            row.status, row.ended_at = "stopped", execution.ended_at
        key = (row.execution_id, row.node_id)
        node = self.known.nodes[key]
        if old is not None:
            setattr(node, old.status, getattr(node, old.status) - 1)
        setattr(node, row.status, getattr(node, row.status) + 1)
        self.changed.nodes[key] = node

    def _seen(self, row: StepRow) -> None:
        """Keep when something was last told of the node, and until when it rests."""
        key = (row.execution_id, row.node_id)
        node = self.known.nodes.get(key)
        if node is None:
            node = self.known.nodes[key] = NodeRow(*key, 0, 0, 0, 0, 0, row.at, None, 0)
        if row.at > node.last_at:
            node.last_at = row.at
            self.changed.nodes[key] = node
        until = resumes(row.details)
        if until is not None and until > (node.resume_at or 0.0):
            node.resume_at = until
            self.changed.nodes[key] = node

    # --- items ---------------------------------------------------------------------------------------------

    def _item(self, message: NodeStatusMessage, at: float) -> bool:
        """Take in what this says of the innermost item; whether that is news."""
        frame = message.lineage_stack[-1]
        split = self._split(message.execution_id, message.lineage_stack)
        key = (message.execution_id, frame.barrier, frame.item_index)
        item = self.known.items.get(key)
        failed = message.status == "failed" and not message.handled and not retried(message)
        if failed:
            state = "failed"
        elif message.join and gathers(message):
            state = "succeeded"
        else:
            state = "" if item is not None else self._stragglers[key[:2]]
        if item is None:
            item = ItemRow(*key, state, clean(frame.label), clean(frame.key), 0.0, None, None, 0)
        elif not _advances(item, state, (at, message.node_id)):
            return False
        else:
            setattr(split, item.state, getattr(split, item.state) - 1)
            item.state = state
        if failed:
            item.at = at
            item.error_code = clean(message.error.code) if message.error else None
            item.error_node = message.node_id
        setattr(split, state, getattr(split, state) + 1)
        self.known.items[key] = self.changed.items[key] = item
        self.changed.splits[key[:2]] = split
        return True

    def _split(self, execution: str, lineage: tuple[Frame, ...]) -> SplitRow:
        frame = lineage[-1]
        split = self._known_split(execution, frame.barrier)
        if not split.node_id:
            split.node_id, split.total = frame.split_node_id, frame.total_items
            if len(lineage) > 1:
                split.scope, split.scope_item = lineage[-2].barrier, lineage[-2].item_index
            self.changed.splits[execution, frame.barrier] = split
        elif split.total is None:
            self._count(split, frame.total_items)
        return split

    def _count(self, split: SplitRow, total: Any) -> None:
        """Take in how many items there are, which may be found out late."""
        if split.total is None and isinstance(total, int):
            split.total = total
            self.changed.splits[split.execution_id, split.barrier] = split

    def _known_split(self, execution: str, barrier: str) -> SplitRow:
        key = (execution, barrier)
        split = self.known.splits.get(key)
        if split is None:
            split = self.known.splits[key] = SplitRow(*key, "", "", 0, None, 0, 0, 0, 0, 0, 0, None, 0)
        if key not in self._stragglers:
            ended = self.known.executions[execution].ended_at is not None
            self._stragglers[key] = split.stragglers(ended=ended)
        return split

    def _close(self, message: NodeStatusMessage) -> bool:
        split = self._known_split(message.execution_id, message.closes)
        if split.closed_by is not None:
            return False
        split.closed_by = message.node_id
        if message.gathered is not None:
            # How many there are, nobody may have known before.
            split.processed, split.left_out = message.gathered
            self._count(split, split.processed)
        self.changed.splits[message.execution_id, message.closes] = split
        return True

    def _progress(self, message: NodeStatusMessage) -> bool:
        """Take in how far a fan-out says it has come."""
        details = message.details or {}
        processed, skipped = details.get("processed"), details.get("skipped", 0)
        if not message.lineage_stack or not isinstance(processed, int) or not isinstance(skipped, int):
            return False
        split = self._split(message.execution_id, message.lineage_stack)
        if processed <= split.processed:
            return False
        split.processed, split.left_out = processed, skipped
        self._count(split, details.get("total"))
        self.changed.splits[message.execution_id, split.barrier] = split
        return True

    # --- ends ----------------------------------------------------------------------------------------------

    def completion(self, message: CompletionMessage) -> None:
        """Take in how an execution ended; the first time it is told counts."""
        at = moment(message.completed_at) or self._clock()
        execution = self._execution(message, at)
        if execution.status not in _ALIVE:
            return
        self._begun(execution, at - message.total_duration_ms / 1000)
        execution.status = message.status
        execution.ended_at = at
        execution.duration_ms = message.total_duration_ms
        execution.error = _encode(message.error).decode() if message.error is not None else None
        execution.reason = clean(message.reason) if message.reason else None
        execution.result = _encode(message.final_context).decode(errors="replace")
        execution.result_refs = _encode(message.refs).decode() if message.refs else None
        self.changed.executions[execution.id] = execution
        self.ended.append(execution.id)
        details: dict[str, Any] | None = {"reason": message.reason} if message.reason else None
        event = Event(at=at, kind=message.status, error=message.error, details=details)
        self.events.setdefault(execution.id, []).append(event)

    def finish(self) -> None:
        """Number what has changed, and see to the items of fan-outs that have closed."""
        for key, before in self._stragglers.items():
            split = self.known.splits[key]
            # Whoever ended with these messages is settled as a whole, afterwards.
            was_ended = self.known.executions[key[0]].ended_at is not None and key[0] not in self.ended
            now = split.stragglers(ended=was_ended)
            if now != before:
                self._move(split, before, now)
        changed = self.changed
        for execution in {*self.events, *(row.execution_id for row in self._rows())}:
            changed.executions[execution] = self.known.executions[execution]
        for id, row in changed.executions.items():
            # Rows can change without an event; whoever follows the numbers must see that, too.
            row.seq += max(1, len(self.events.get(id, ())))
        for other in self._rows():
            other.seq = self.known.executions[other.execution_id].seq

    def _move(self, split: SplitRow, before: str, now: str) -> None:
        key = (split.execution_id, split.barrier)
        setattr(split, now, getattr(split, now) + getattr(split, before))
        setattr(split, before, 0)
        for item in self.changed.items.values():
            if item.state == before and (item.execution_id, item.barrier) == key:
                item.state = now
        self.changed.splits[key] = split
        self.moved.append((*key, before, now))

    def _rows(self) -> Iterable[StepRow | NodeRow | SplitRow | ItemRow]:
        changed = self.changed
        yield from changed.steps.values()
        yield from changed.nodes.values()
        yield from changed.splits.values()
        yield from changed.items.values()


def _advances(item: ItemRow, state: str, place: tuple[float, str]) -> bool:
    """Whether a state tells more of an item than is known; of several failures the first counts."""
    if state == "failed":
        return item.state != "failed" or place < (item.at, item.error_node or "")
    return state == "succeeded" and item.state in ("running", "skipped")
