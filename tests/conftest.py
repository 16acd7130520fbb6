"""What every test gets: an environment of its own, and Hypothesis without deadlines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("rune", deadline=None)  # a slow machine is not a bug
# In CI the same examples each time: a change is blamed for what it broke, and new finds are made at home.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "rune")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the user's settings out of the tests, and the tests out of the user's state directory."""
    for name in [name for name in os.environ if name.startswith("RUNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
