"""Whatever a playbook holds, it is compiled, or refused with problems that can be shown."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.cli.types import node_types
from rune.formats.definition import examine
from rune.formats.report import render
from rune.settings import Settings

SEED: dict[str, Any] = yaml.safe_load("""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: all}
executor:
  kind: local
  spec:
    entry_step: start
    final_step: end
    pool: p
    loop_mode: fanout
    fanout: {max_shards: 3, queue_ttl: 4, key: "{{ iter.n }}", reducers: {s: sum}}
workload: {n: 1}
workbook: [{name: w, tool: {kind: noop, eval: [{else: {do: fail}}]}}]
workflow:
  - step: start
    spec: {timeout: 3, lease: {ttl: 4}, pool: x, next_mode: inclusive}
    when: "{{ workload.n }}"
    args: {x: 1}
    loop: {in: {range: 3}, iterator: n, spec: {mode: parallel, max_in_flight: 3}}
    tool:
      - one: {kind: workbook, name: w}
      - two:
          kind: http
          url: "{{ workload.url }}"
          eval:
            - {expr: "{{ outcome.http.status == 429 }}", do: jump, to: one, set_shared: {s: 1}}
            - else: {do: retry, attempts: 3, backoff: linear, delay: 1}
    next: [{step: more, when: "{{ fanin.status }}", args: {a: 1}}, more]
  - {step: more, tool: {kind: artifact, action: put, key: x, content: 5}, next: more}
  - {step: end, tool: {kind: python, code: result = 1}}
""")
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**30),
    *("", "x", "{{ 1 +", "{{ a }}", "ü☃", "a" * 300),
    *([], {}, [1], ["a"], {"a": 1}, [{}], [[]], {"else": {}}, {"kind": "noop"}),
]
NAMES = ("case", "vars", "loop", "tool", "next", "eval", "do", "to", "else", "expr", "spec", "")
TYPES = node_types(Settings())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def spoiled(random: Random) -> dict[str, Any]:
    """The playbook with some of its parts replaced, left out, or put where they do not belong."""
    made = deepcopy(SEED)
    for _ in range(random.randint(1, 3)):
        *way, last = random.choice(places(made)[1:])
        within: Any = made
        for key in way:
            within = within[key]
        what = random.random()
        if what < 0.2:
            del within[last]
        elif what < 0.4 and isinstance(within, dict):
            within[random.choice(NAMES)] = deepcopy(random.choice(ODD))
        else:
            within[last] = deepcopy(random.choice(ODD))
        if len(places(made)) == 1:
            return made
    return made


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_it_is_compiled_or_refused(random: Random) -> None:
    text = msgspec.json.format(msgspec.json.encode(spoiled(random)), indent=2).decode()
    document, flow, problems = examine(text, "playbook.json", TYPES)
    assert (flow is None) == any(problem.severity == "error" for problem in problems)
    assert all(problem.line for problem in problems)
    render(problems, document)
