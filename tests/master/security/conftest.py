"""A master where one has to log in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from tests.master.client import Api
from tests.master.security.people import Person, with_accounts


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords with less effort than is safe."""
    quick = partial(PasswordHasher, time_cost=1, memory_cost=1024, parallelism=1)
    monkeypatch.setattr("rune.master.security.passwords.PasswordHasher", quick)


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Api]:
    """A master with accounts."""
    async with with_accounts(tmp_path / "rune.db") as api:
        yield api


@pytest.fixture
async def admin(strict: Api) -> Person:
    """Its admin, logged in."""
    person = Person(strict)
    assert (await person.log_in()).status == 200
    return person
