"""The same playbook, local and fanned out, leaves the same results."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.playbooks.playing import play

NUMBERS = st.lists(st.integers(-5, 5), max_size=6)
MODES = st.sampled_from(["sequential", "parallel"])
EXPRESSIONS = st.sampled_from(
    [
        "{{ iter.n * 2 }}",
        "{{ iter.n + workload.base }}",
        "{{ {'n': iter.n, 'before': _prev} }}",
        "{{ [iter.n, args.given | default('none')] }}",
        "{{ iter.kept | default(iter.n) }}",
        "{{ [shard.iter_index, shard.iter_key] }}",
    ]
)


@st.composite
def tasks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A pipeline of tasks that pass values on, and sometimes jump back or break off."""
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        writes = {"set_prev": draw(EXPRESSIONS), "set_iter": {"kept": draw(EXPRESSIONS)}}
        rules: list[dict[str, Any]] = []
        if number and draw(st.booleans()):
            again = {"set_iter": {"seen": "{{ (iter.seen | default(0)) + 1 }}"}}
            rules.append({"expr": "{{ (iter.seen | default(0)) < 2 }}", "do": "jump", "to": "t0", **again})
        if draw(st.booleans()):
            rules.append({"expr": "{{ iter.n > 3 }}", "do": "break", **writes})
        if draw(st.booleans()):
            writes["set_shared"] = {"total": "{{ iter.n }}", "all": draw(EXPRESSIONS)}
        rules.append({"else": {"do": "continue", **writes}})
        made.append({f"t{number}": {"kind": "noop", "eval": rules}})
    # What the pipeline gives is the result of its last task.
    large = draw(st.sampled_from(["", "", " + ['x' * 40_000]", " + ['x' * 70_000]"]))
    shown = {"kind": "python", "args": {"p": "{{ _prev }}"}, "code": f"result = [p]{large}"}
    return [*made, {"show": shown}]


@st.composite
def playbooks(draw: st.DrawFn) -> dict[str, Any]:
    """Some loops, one after another, and what each makes of the one before."""
    steps = []
    count = draw(st.integers(1, 3))
    for number in range(count):
        step: dict[str, Any] = {
            "step": f"s{number}",
            "loop": {"in": draw(NUMBERS), "iterator": "n", "spec": {"mode": draw(MODES)}},
            "tool": draw(tasks()),
        }
        if number < count - 1:
            step["next"] = [{"step": f"s{number + 1}", "args": {"given": f"{{{{ s{number}.results }}}}"}}]
        steps.append(step)
    fanout = {
        "reducers": {"total": "sum", "all": "append"},
        "max_shards": draw(st.sampled_from([None, 2])),
        "key": draw(st.sampled_from([None, "k{{ iter.n }}"])),
    }
    return {
        "workload": {"base": draw(st.integers(0, 9))},
        "executor": {"spec": {"fanout": fanout}},
        "workflow": steps,
    }


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(playbooks())
async def test_local_and_fanout_agree(playbook: dict[str, Any]) -> None:
    found = []
    for mode in ("local", "fanout"):
        document = {**playbook, "executor": {"spec": {**playbook["executor"]["spec"], "loop_mode": mode}}}
        text = "\n".join(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in document.items())
        found.append(await play(text))
    local, spread = found
    assert (local.status, local.steps) == (spread.status, spread.steps)
    assert local.status == "completed"
