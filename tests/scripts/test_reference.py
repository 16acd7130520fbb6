"""The pages that are made from the code are up to date."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES: Mapping[str, Callable[[], str]] = runpy.run_path(str(ROOT / "scripts/reference.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    written = (ROOT / "docs/reference" / name).read_text()
    assert written == PAGES[name](), "run scripts/reference.py"
