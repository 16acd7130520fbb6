"""The commands that speak to a master."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rune.cli import group
from tests.master.client import Api, open_api

SPLIT = {
    "workflow_id": "numbers",
    "nodes": [
        {"id": "each", "type": "split", "parameters": {"input_array": "$trigger.numbers"}},
        {
            "id": "half",
            "type": "edit",
            "parameters": {"assignments": [{"name": "h", "value": "{{ 1 / $item }}"}]},
        },
        {"id": "all", "type": "aggregator", "parameters": {}},
    ],
    "edges": [{"id": "e1", "src": "each", "dst": "half"}, {"id": "e2", "src": "half", "dst": "all"}],
}


class Line:
    """A command line beside a master."""

    def __init__(self, api: Api) -> None:
        self._address = api.address

    async def ask(
        self, *arguments: str, code: int = 0, text: str | None = None, color: bool = False
    ) -> Result:
        """Run a command, which has to end with this code."""

        def run() -> Result:
            return CliRunner().invoke(
                group,
                arguments,
                env={"RUNE_URL": self._address},
                input=text,
                color=color,
                standalone_mode=False,
            )

        result = await asyncio.to_thread(run)
        ended = result.return_value if isinstance(result.return_value, int) else result.exit_code
        assert ended == code, (result.output, result.exception)
        return result

    async def json(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        return json.loads((await self.ask(*arguments, "-o", "json")).stdout)


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    async with open_api(tmp_path / "rune.db") as api:
        yield Line(api)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps(SPLIT), encoding="utf-8")
    return str(path)


async def test_a_workflow_is_pushed_started_and_looked_at(line: Line, file: str) -> None:
    assert "numbers  version 1" in (await line.ask("workflows", "push", file, "--publish")).stdout
    started = await line.json(
        "executions", "start", "numbers", "--input", '{"numbers": [1, 2]}', "--wait", "10"
    )
    assert started["status"] == "completed"
    listed = (await line.ask("executions", "list", "--status", "completed")).stdout
    assert started["id"] in listed
    shown = (await line.ask("executions", "show", started["id"])).stdout
    assert "each" in shown
    assert "SPLIT" in shown
    events = (await line.ask("executions", "events", started["id"], "-o", "json")).stdout.splitlines()
    assert [json.loads(event)["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "half[1]: success" in (await line.ask("executions", "logs", started["id"], "--follow")).stdout
    assert "it is completed" in (await line.ask("executions", "why", started["id"])).stdout


async def test_what_failed_is_redriven(line: Line, file: str) -> None:
    first = await line.json(
        "executions", "start", "--file", file, "--input", '{"numbers": [0, 1]}', "--wait", "10"
    )
    (split,) = (await line.json("executions", "show", first["id"]))["splits"]
    assert (split["succeeded"], split["failed"]) == (1, 1)
    again = await line.json("executions", "redrive", first["id"], "--split", split["barrier"], "--item", "0")
    assert (again["parent"], again["trigger"]) == (first["id"], "redrive")
    edited = await line.json(
        "executions", "redrive", first["id"], "--split", split["barrier"], "--edit", "0=4"
    )
    await line.ask("executions", "logs", "--follow", edited["id"])
    (mended,) = (await line.json("executions", "show", edited["id"]))["splits"]
    assert (mended["succeeded"], mended["failed"]) == (2, 0)
    nonsense = ("executions", "redrive", first["id"], "--split", split["barrier"], "--edit", "x=4")
    assert "does not say which item" in str((await line.ask(*nonsense, code=1)).exception)
    forked = await line.json("executions", "fork", first["id"], "half")
    assert (forked["parent"], forked["trigger"]) == (first["id"], "fork")
    refused = await line.ask("executions", "redrive", first["id"], "--item", "0", code=1)
    assert "--item needs --split" in str(refused.exception)


async def test_versions_differ_and_a_bundle_comes_back(line: Line, file: str, tmp_path: Path) -> None:
    await line.ask("workflows", "push", file)
    changed = json.loads(json.dumps(SPLIT).replace("1 / $item", "2 / $item"))
    Path(file).write_text(json.dumps(changed), encoding="utf-8")
    await line.ask("workflows", "push", file, "--id", "numbers", "--note", "twice as much")
    assert "twice as much" in (await line.ask("workflows", "versions", "numbers")).stdout
    assert "2 / $item" in (await line.ask("workflows", "diff", "numbers", "1", "2")).stdout
    bundle = tmp_path / "bundle.json"
    bundle.write_text((await line.ask("workflows", "export")).stdout, encoding="utf-8")
    assert "1 unchanged" in (await line.ask("workflows", "import", str(bundle))).stdout
    await line.ask("workflows", "delete", "numbers")
    assert (await line.ask("workflows", "list")).stderr == "nothing\n"


async def test_the_latest_version_is_published_unless_another_is_named(line: Line, file: str) -> None:
    await line.ask("workflows", "push", file)
    taken = await line.ask("workflows", "push", file, code=2)
    assert "with --id this file becomes a new version of it" in taken.stderr
    await line.ask("workflows", "push", file, "--id", "numbers")
    assert "version 2 is published" in (await line.ask("workflows", "publish", "numbers")).stdout
    assert (await line.json("workflows", "publish", "numbers", "--version", "1"))["published"] == 1
    assert "no version is published" in (await line.ask("workflows", "publish", "numbers", "--none")).stdout


async def test_a_log_is_followed_and_nothing_in_it_told_twice(line: Line, tmp_path: Path) -> None:
    file = tmp_path / "rests.json"
    rest = {"id": "rest", "type": "wait", "parameters": {"amount": 1.2}}
    nodes = [{"id": id, "type": "log", "parameters": {"message": f"it is {id}"}} for id in ("a", "b")]
    edges = [{"id": "1", "src": "a", "dst": "rest"}, {"id": "2", "src": "rest", "dst": "b"}]
    file.write_text(json.dumps({"nodes": [nodes[0], rest, nodes[1]], "edges": edges}), encoding="utf-8")
    started = await line.json("executions", "start", "--file", str(file))
    told = (await line.ask("executions", "logs", "--follow", started["id"])).stdout.splitlines()
    assert [text.partition(": ")[2] for text in told if "it is" in text] == ["it is a", "it is b"]
    assert len(told) == len(set(told))


async def test_who_waits_for_an_end_waits_as_long_as_asked(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.cli.remote._TIMEOUT", 0.3)
    file = tmp_path / "rests.json"
    rest = {"id": "rest", "type": "wait", "parameters": {"amount": 0.6}}
    file.write_text(json.dumps({"nodes": [rest]}), encoding="utf-8")
    done = await line.json("executions", "start", "--file", str(file), "--wait", "20")
    assert done["status"] == "completed"


async def test_names_do_nothing_to_the_terminal(line: Line, tmp_path: Path) -> None:
    file = tmp_path / "hostile.json"
    node = {"id": "a", "type": "log", "parameters": {"message": "\x1b[2Jgone\x9b2J"}}
    file.write_text(json.dumps({"name": "\x1b]0;mine\x07\r\n", "nodes": [node]}), encoding="utf-8")
    started = await line.json("executions", "start", "--file", str(file), "--wait", "10")
    for command in (["list"], ["show", started["id"]], ["logs", started["id"]], ["events", started["id"]]):
        said = (await line.ask("executions", *command, color=True)).stdout
        assert not re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]|\x1b(?!\[\d+m)", said), command


async def test_a_credential_in_use_is_removed_by_force_only(line: Line, tmp_path: Path) -> None:
    file = tmp_path / "calls.json"
    node = {"id": "a", "type": "http", "parameters": {"url": "http://x"}, "credentials": {"id": "mail"}}
    file.write_text(json.dumps({"workflow_id": "calls", "nodes": [node]}), encoding="utf-8")
    await line.ask("credentials", "create", "mail", "--data", '{"token": "hunter2-long"}')
    await line.ask("workflows", "push", str(file))
    assert "refer to it" in (await line.ask("credentials", "delete", "mail", code=2)).stderr
    await line.ask("credentials", "delete", "mail", "--force")


async def test_a_credential_is_written_and_never_read(line: Line) -> None:
    await line.ask("credentials", "create", "mail", text="password\nhunter2-long\n\n")
    listed = await line.ask("credentials", "list")
    assert "password" in listed.stdout
    assert "hunter2-long" not in (await line.ask("credentials", "list", "-o", "json")).stdout
    await line.ask("credentials", "rotate", "mail", "--data", '{"password": "another-one"}')
    assert "it works" in (await line.ask("credentials", "test", "mail")).stdout
    await line.ask("credentials", "delete", "mail")


async def test_nothing_is_said_in_words(line: Line) -> None:
    assert (await line.ask("dlq", "list")).stderr == "nothing\n"
    assert (await line.ask("executions", "list")).stdout == ""


async def test_what_the_master_refuses_is_told(line: Line, tmp_path: Path) -> None:
    refused = await line.ask("executions", "show", "nobody", code=2)
    assert "there is no execution 'nobody'" in refused.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("nodes:\n  - {id: a, type: logg}\n", encoding="utf-8")
    told = (await line.ask("workflows", "push", str(wrong), code=2)).stderr
    assert "2:19 E016" in told
    assert "did you mean 'log'?" in told


def test_a_master_that_is_not_there() -> None:
    arguments = ["executions", "list", "--url", "http://127.0.0.1:1"]
    result = CliRunner().invoke(group, arguments)
    assert result.exit_code == 3
    assert "start one with `rune dev`" in result.stderr
