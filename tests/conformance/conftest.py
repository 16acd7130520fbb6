"""Every test here runs on every backend; one that stops the engine at a line, on those in-process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from tests.conformance.backends import BACKENDS, INSIDE, rig_inside, rig_on
from tests.conformance.harness import Rig


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend."""
    name: str = request.param
    return name


@pytest.fixture
async def rig(backend: str) -> AsyncIterator[Rig]:
    """A rig that delivers everything in random order; to the fleet, some of it twice."""
    async with rig_on(backend).running() as running:
        yield running


@pytest.fixture
async def calm(backend: str) -> AsyncIterator[Rig]:
    """A rig that delivers everything once: what a duplicate repeats is told again."""
    async with rig_on(backend, duplicates=0.0).running() as running:
        yield running


@pytest.fixture
def rigged(backend: str) -> Callable[..., Any]:
    """Make a rig with other settings: `async with rigged(duplicates=1.0) as rig`."""
    return lambda **manner: rig_on(backend, **manner).running()


@pytest.fixture(params=INSIDE)
def inside(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Make a rig whose engine runs in this process, where a test can stop it, or count what it calls."""
    make = partial(rig_inside, request.param)
    return lambda **manner: make(**manner).running()
