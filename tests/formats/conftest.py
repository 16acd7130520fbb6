"""What the tests of the formats share: the node types that come with Rune."""

from __future__ import annotations

import pytest

from rune.core.registry import Registry
from rune.nodes import load_builtin


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The built-in node types."""
    return Registry(load_builtin())
