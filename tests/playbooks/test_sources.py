"""Loops over what is read, portion by portion: the same on one worker and spread over many."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.settings import Settings
from tests.nodes.web import Answer, Seen, Web
from tests.playbooks.playing import Played, play, problems_of
from tests.servers.postgres import shared_postgres

MODES = pytest.mark.parametrize("mode", ["local", "fanout"])

LOOP = """
workload: {source: null}
executor: {spec: {loop_mode: MODE}}
workflow:
  - step: each
    loop: {in: "{{ workload.source }}", iterator: row}
    spec: {fanout: {key: "k-{{ iter.row }}"}}
    tool: {kind: artifact, action: get, key: "{{ iter.row }}"}
    next: [{step: rest, when: "{{ event.name == 'loop.done' }}", args: {rows: "{{ each.results }}"}}]
  - {step: rest, tool: {kind: python, code: "result = rows"}}
"""
"""Each element is the name of a file, and gives what it holds."""


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of artifacts, with some to get."""
    monkeypatch.setenv("RUNE_ARTIFACTS", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    for n in range(8):
        (tmp_path / f"f{n}").write_text(str(n * n))
    return tmp_path


async def each(mode: str, source: Any, **settings: Any) -> Played:
    return await play(LOOP.replace("MODE", mode), {"source": source}, settings=Settings(**settings))


@MODES
@pytest.mark.parametrize("count", [0, 1, 8])
async def test_the_lines_of_a_file(artifacts: Path, mode: str, count: int) -> None:
    (artifacts / "names").write_text("".join(f"f{n}\n" for n in range(count)))
    played = await each(mode, {"lines": "names"})
    assert played.steps["each"] == {"results": [n * n for n in range(count)], "count": count}
    assert played.steps["rest"] == [n * n for n in range(count)]


@MODES
async def test_elements_know_who_they_are(artifacts: Path, mode: str) -> None:
    (artifacts / "names").write_text('"f1"\n"f3"\n')
    played = await each(mode, {"jsonl": "names"})
    assert played.steps["rest"] == [1, 9]
    shards = [
        told.details for told in played.told if told.node_id == "each~shard" and told.status == "success"
    ]
    keys = sorted((shard["iter_index"], shard["iter_key"]) for shard in shards if shard)
    assert keys == ([(0, "k-f1"), (1, "k-f3")] if mode == "fanout" else [])


@MODES
async def test_a_broken_line_fails_the_step_where_it_is_met(artifacts: Path, mode: str) -> None:
    (artifacts / "names").write_text('"f1"\n"f3"\n{broken\n')
    played = await each(mode, {"jsonl": "names"})
    assert (played.status, "rest" in played.steps) == ("failed", False)
    assert played.error is not None
    assert "line 3 of 'names'" in played.error.message


@MODES
async def test_a_file_that_is_not_there_fails_the_step(mode: str) -> None:
    played = await each(mode, {"lines": "nowhere"})
    assert played.status == "failed"
    assert played.error is not None
    assert "no file 'nowhere'" in played.error.message


@MODES
@pytest.mark.parametrize(
    "source",
    [{"jsnl": "x"}, {}, {"lines": "a", "jsonl": "b"}, {"csv": {"header": True}}, {"range": [0, 1, 0]}],
)
async def test_a_description_that_makes_no_sense(mode: str, source: Any) -> None:
    played = await each(mode, source)
    assert played.error is not None
    assert (played.status, played.error.code) == ("failed", "PLAYBOOK_LOOP")


@MODES
async def test_rows_of_a_database(artifacts: Path, mode: str) -> None:
    server = shared_postgres()
    url = server.new_database()
    credentials = json.dumps({"db": {"dsn": url}})
    query = "SELECT n AS id, 'f' || n AS file FROM generate_series(1, 7) AS t(n)"
    text = f"""
    executor: {{spec: {{loop_mode: {mode}}}}}
    workflow:
      - step: each
        loop: {{in: {{sql: {{query: "{query}", key: id, auth: db}}}}, iterator: row}}
        tool: {{kind: artifact, action: get, key: "{{{{ iter.row.file }}}}"}}
    """
    played = await play(text, settings=Settings(credentials=credentials))
    server.drop_database(url)
    assert played.steps["each"]["results"] == [n * n for n in range(1, 8)]


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web().running() as running:
        yield running


@MODES
async def test_pages_of_a_service(web: Web, mode: str) -> None:
    """One of them is to be had at the second attempt only."""
    failed: list[str] = []

    async def page(seen: Seen) -> Answer:
        number = int(seen.target.rpartition("=")[2])
        if number == 2 and not failed:
            failed.append(seen.target)
            return Answer("503 Busy")
        body = [f"f{number * 2}", f"f{number * 2 + 1}"] if number < 3 else []
        return Answer(headers=(("Content-Type", "application/json"),), body=msgspec.json.encode(body))

    web.routes["/names"] = page
    source = {"pages": {"url": f"{web.url}/names", "page": "p", "first": 0, "auth": "api"}}
    played = await each(mode, source, credentials='{"api": {"token": "very-secret"}}')
    assert played.steps["rest"] == [n * n for n in range(6)]
    assert len(web.seen) == 5
    assert {seen.headers["authorization"] for seen in web.seen} == {"Bearer very-secret"}


@MODES
async def test_a_secret_that_a_service_repeats_is_no_data(web: Web, mode: str) -> None:
    async def page(seen: Seen) -> Answer:
        body = [{"said": seen.headers["authorization"]}] if seen.target.endswith("=1") else []
        return Answer(headers=(("Content-Type", "application/json"),), body=msgspec.json.encode(body))

    web.routes["/said"] = page
    pages = f"{{pages: {{url: '{web.url}/said', page: p, auth: api}}}}"
    text = f"""
    executor: {{spec: {{loop_mode: {mode}}}}}
    workflow:
      - step: each
        loop: {{in: {pages}, iterator: row}}
        tool: {{kind: python, args: {{row: "{{{{ iter.row }}}}"}}, code: "result = row"}}
    """
    played = await play(text, settings=Settings(credentials='{"api": {"token": "very-secret"}}'))
    assert played.steps["each"]["results"] == [{"said": "Bearer ***"}]
    assert "very-secret" not in repr(played.told)


async def test_a_key_may_name_the_results_of_other_steps(artifacts: Path) -> None:
    (artifacts / "names").write_text("f1\nf2\n")
    played = await play("""
    workflow:
      - {step: first, tool: {kind: python, code: "result = {'name': 'one', 'more': 'x' * 50000}"}, next: each}
      - step: each
        spec: {loop_mode: fanout, fanout: {key: "{{ first.name }}-{{ iter.row }}"}}
        loop: {in: {lines: names}, iterator: row}
        tool: {kind: noop}
    """)
    shards = [
        told.details for told in played.told if told.node_id == "each~shard" and told.status == "success"
    ]
    assert sorted(shard["iter_key"] for shard in shards if shard) == ["one-f1", "one-f2"]


@MODES
@pytest.mark.parametrize("shards", ["", "fanout: {max_shards: 7}"])
async def test_a_loop_over_results_that_are_kept_in_parts(artifacts: Path, mode: str, shards: str) -> None:
    """More than a list holds, and one of them so large that it is kept by itself."""
    (artifacts / "f8").write_text(json.dumps("x" * 70_000))
    played = await play(f"""
    executor: {{spec: {{loop_mode: {mode}}}}}
    workflow:
      - step: many
        loop: {{in: {{range: 1100}}, iterator: n}}
        tool: {{kind: artifact, action: get, key: "f{{{{ iter.n % 9 if iter.n > 1090 else 1 }}}}"}}
        next: [again]
      - step: again
        spec: {{{shards}}}
        loop: {{in: "{{{{ many.results }}}}", iterator: row}}
        tool: {{kind: artifact, action: get, key: "f{{{{ 8 if iter.row is string else iter.row % 8 }}}}"}}
        next: [{{step: rest, args: {{rows: "{{{{ again.results }}}}"}}}}]
      - {{step: rest, tool: {{kind: python, code: "r = rows; result = len(r), r[0], len(r[1097]), r[1098]"}}}}
    """)
    assert played.error is None
    assert played.steps["rest"] == [1100, 1, 70_000, 0]


async def test_max_shards_needs_a_known_number(artifacts: Path) -> None:
    (artifacts / "names").write_text("f1\n")
    text = LOOP.replace("MODE", "fanout").replace('{key: "k-{{ iter.row }}"}', "{max_shards: 3}")
    played = await play(text, {"source": {"lines": "names"}})
    assert played.error is not None
    assert "`max_shards` needs to know" in played.error.message


def test_what_is_written_down_is_checked_with_its_line() -> None:
    problems = problems_of("""workflow:
  - step: a
    loop:
      in: {jsnl: "data"}
      iterator: i
    tool: {kind: noop}
    next: b
  - step: b
    spec: {loop_mode: fanout, fanout: {max_shards: 4}}
    loop:
      in:
        pages:
          url: http://x
          timeout: soon
      iterator: i
    tool: {kind: noop}
    next: c
  - step: c
    loop: {in: 7, iterator: i}
    tool: {kind: noop}
    next: d
  - step: d
    loop: {in: {sql: {query: "{{ workload.query }}"}}, iterator: i}
    tool: {kind: noop}
    next: e
  - step: e
    loop: {in: {csv: {file: "{{ workload.file }}", delimiter: ";"}}, iterator: i}
    tool: {kind: noop}
""")
    found = [(problem.code, (problem.line or 0) - 3, problem.column) for problem in problems]
    assert found == [("E043", 4, 18), ("E049", 9, 52), ("E043", 14, 20), ("E043", 19, 16), ("E043", 23, 22)]
    assert problems[0].hint == "did you mean 'jsonl'?"


@pytest.mark.parametrize("window", ["", "max_concurrent: 7"])
async def test_many_lines_fill_a_small_window(artifacts: Path, window: str) -> None:
    """More than one portion, and more than are in flight."""
    (artifacts / "numbers").write_text("".join(f"{n}\n" for n in range(600)))
    played = await play(f"""
    workflow:
      - step: each
        spec: {{loop_mode: fanout, fanout: {{reducers: {{sum: sum}}, {window}}}}}
        loop: {{in: {{jsonl: numbers}}, iterator: n}}
        tool: {{kind: noop, eval: [{{else: {{do: continue, set_shared: {{sum: "{{{{ iter.n }}}}"}}}}}}]}}
    """)
    assert played.steps["each"]["count"] == 600
    assert played.steps["each"]["shared"] == {"sum": sum(range(600))}
