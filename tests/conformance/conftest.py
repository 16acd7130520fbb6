"""Every test here runs on every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.conformance.backends import BACKENDS
from tests.conformance.harness import Backend, Rig


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """A backend, not yet open."""
    return BACKENDS[request.param]()


@pytest.fixture
async def rig(backend: Backend) -> AsyncIterator[Rig]:
    """A rig that delivers everything once, in random order."""
    async with Rig(backend).running() as running:
        yield running


@pytest.fixture
def rigged(backend: Backend) -> Callable[..., Any]:
    """Make a rig with other settings: `async with rigged(duplicates=1.0) as rig`."""
    return lambda **settings: Rig(backend, **settings).running()
