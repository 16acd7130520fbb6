"""A playbook one of whose shards hangs until it is spared, and the journal that its shards write."""

from __future__ import annotations

from pathlib import Path

__all__ = ["MORTAL", "entries"]

MORTAL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: mortal}
workload: {journal: ""}
workflow:
  - step: work
    spec: {loop_mode: fanout, lease: {ttl: 1}, fanout: {max_job_retries: RETRIES, key: "k{{ iter.n }}"}}
    loop: {in: [1, 2, 3], iterator: n}
    tool:
      kind: python
      args: {shard: "{{ shard }}", n: "{{ iter.n }}", journal: "{{ workload.journal }}"}
      code: |
        import os, time
        def write(what):
            with open(journal, "a") as file:
                file.write(f"{what} {n} {shard['shard_id']} {shard['iter_key']}\\n")
        write("began")
        if n == 2 and not os.path.exists(journal + ".spared"):
            time.sleep(600)
        write("ended")
        result = shard
"""


def entries(journal: Path) -> list[list[str]]:
    """What shards have written: what they did, with which element, under which names."""
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []
