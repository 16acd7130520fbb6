"""A worker that is given the master's database and key finds credentials there."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rune.history import open_history
from rune.history.audit import Entry
from rune.history.credentials import CredentialStore, open_store
from rune.settings import Settings
from tests.distributed.client import flow, node
from tests.distributed.fleet import Fleet
from tests.distributed.test_traffic import CANARY, FORMS, contents, echo
from tests.servers.postgres import shared_postgres

__all__ = ["echo"]

KEY = b64encode(b"k" * 32).decode()


@pytest.fixture
def history() -> Iterator[str]:
    server = shared_postgres()
    url = server.new_database()
    yield url
    server.drop_database(url)


async def stored(url: str, data: dict[str, Any]) -> None:
    """Store the credential `api`, as a master does."""
    async with open_history(url) as history:
        store = await open_store(history.database, Settings(key=KEY))
        assert isinstance(store, CredentialStore)
        entry = Entry.new(time.time(), "test")
        if await store.rotate("api", data, None, entry) is None:
            await store.create("api", "Api", "http", data, "ada", entry)


async def test_a_worker_reads_the_store_and_sees_a_rotation(crew: Fleet, history: str, echo: str) -> None:
    await stored(history, {"token": CANARY})
    worker = crew.worker(RUNE_HTTP_ALLOW="127.0.0.1", RUNE_HISTORY_URL=history, RUNE_KEY=KEY)
    client = crew.client()
    heard = client.overhear()
    definition = flow([node("call", "http", url=echo, credentials={"id": "api"})])

    def told() -> str:
        return str(client.result(client.start(definition))["$call"]["body"]["authorization"])

    assert told() == "Bearer ***"
    await stored(history, {"username": "ada", "password": CANARY})
    limit = time.monotonic() + 10
    while told() != "Basic ***":
        assert time.monotonic() < limit, "the rotation was never seen"
        client.listen(0.2)
    everything = [contents(crew), worker.log, str(client.statuses), str(client.completions), str(heard)]
    assert [form for form in FORMS if any(form in text for text in everything)] == []


async def test_a_worker_with_a_wrong_key_does_not_start(crew: Fleet, history: str, tmp_path: Path) -> None:
    await stored(history, {"token": CANARY})
    wrong = tmp_path / "wrong.key"
    wrong.write_text(b64encode(b"w" * 32).decode())
    with pytest.raises(RuntimeError, match="RUNE_KEY is not the key"):
        crew.worker(RUNE_HISTORY_URL=history, RUNE_KEY_FILE=str(wrong))
