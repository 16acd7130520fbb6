"""Random workflows end as the reference interpreter says: duplicated, reordered, concurrent and crashed."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rune.core.errors import DefinitionError
from tests.conformance.backends import BACKENDS
from tests.conformance.generator import Case, cases
from tests.conformance.harness import GENEROUS, Rig, compiled
from tests.conformance.reference import Reference, Result, TooLarge

EXAMPLES = int(os.environ.get("RUNE_SIM_EXAMPLES", "150"))

pytestmark = pytest.mark.timeout(0 if EXAMPLES > 1000 else 120)
simulated = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example],
)


def meaning(case: Case) -> Result:
    """What the case must end as; a case that is too large or no workflow is left out."""
    definition, input = case
    try:
        compiled(definition)
        return Reference(definition).run(input)
    except (TooLarge, DefinitionError):
        assume(False)
        raise AssertionError("unreachable") from None


async def simulate(
    backend: str, case: Case, rig_settings: dict[str, Any], crashes: random.Random | None
) -> None:
    definition, input = case
    expected = meaning(case)
    async with Rig(BACKENDS[backend](), settings=GENEROUS, **rig_settings).running() as rig:
        if crashes is not None:
            at = crashes.sample(range(1, 120), 3)
            rig.faults.before, rig.faults.after = set(at[:1]), set(at[1:])
        execution = await rig.start(definition, input)
        await rig.run()
        completion = await rig.finished(execution)
        context = await rig.context(execution)
        error = msgspec.to_builtins(completion.error) if completion.error else None
        assert expected.allows(completion.status, context, error), (
            f"\nexpected {expected.status} {expected.contexts}\n         {expected.errors}"
            f"\ngot      {completion.status} {context}\n         {error}"
        )


@pytest.mark.parametrize("backend", BACKENDS)
@simulated
@given(case=cases(), seed=st.integers(0, 2**16))
def test_in_any_order_with_every_delivery_doubled(backend: str, case: Case, seed: int) -> None:
    asyncio.run(simulate(backend, case, {"seed": seed, "duplicates": 1.0, "at_once": 1}, None))


@pytest.mark.parametrize("backend", BACKENDS)
@simulated
@given(case=cases(), seed=st.integers(0, 2**16))
def test_many_at_once(backend: str, case: Case, seed: int) -> None:
    asyncio.run(simulate(backend, case, {"seed": seed, "duplicates": 0.3, "at_once": 6}, None))


@pytest.mark.parametrize("backend", BACKENDS)
@simulated
@given(case=cases(), seed=st.integers(0, 2**16))
def test_through_crashes(backend: str, case: Case, seed: int) -> None:
    crashes = random.Random(seed)
    rig_settings = {"seed": seed, "duplicates": 0.2, "at_once": 1 + seed % 4}
    asyncio.run(simulate(backend, case, rig_settings, crashes))
