"""Sources that are read by whichever worker comes to it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.distributed.client import flow, node, put
from tests.distributed.fleet import Fleet

COUNT = 1500


def test_a_file_is_read_by_several_workers_of_which_one_is_killed(crew: Fleet, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "numbers.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(COUNT)))
    crew.scheduler()
    environ = {"RUNE_ARTIFACTS": str(files), "RUNE_LEASE": "1"}
    first = crew.worker("--prefetch", "8", **environ)
    crew.worker("--prefetch", "8", **environ)
    client = crew.client()
    definition = flow(
        [
            node("each", "split", source={"jsonl": "numbers.jsonl"}, max_concurrency=120, key="$item.n"),
            put("twice", n="{{ $item.n * 2 }}"),
            node("all", "aggregator", collect="$json.n"),
        ],
        "each > twice > all",
    )
    execution = client.start(definition)

    def ended() -> int:
        return sum(s["node_id"] == "twice" and s["status"] == "success" for s in client.statuses[execution])

    client.wait(lambda: ended() > COUNT // 3)
    first.kill()
    result = client.result(execution, 60)["$all"]
    assert result["aggregated"] == [2 * n for n in range(COUNT)]
    crew.is_buried(execution, client.named(execution))
