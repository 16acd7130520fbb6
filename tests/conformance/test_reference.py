"""Random workflows end as the reference interpreter says: duplicated, reordered, concurrent and crashed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rune.core.errors import DefinitionError
from tests.conformance.backends import BACKENDS, rig_on
from tests.conformance.extent import CHAOS, EXAMPLES, share
from tests.conformance.generator import Case, cases, random_case
from tests.conformance.harness import GENEROUS, Rig, compiled
from tests.conformance.inside import Inside
from tests.conformance.outside import Outside
from tests.conformance.reference import Reference, Result, TooLarge

pytestmark = pytest.mark.timeout(120 if EXAMPLES <= 200 and not CHAOS else 60 * EXAMPLES)

MANNERS: dict[str, dict[str, Any]] = {
    "every delivery doubled": {"duplicates": 1.0},
    "many at once": {"duplicates": 0.3, "at_once": 6},
    "crashing": {"duplicates": 0.2, "at_once": 3},
}


def meaning(case: Case) -> Result | None:
    """What a case must end as; None for one that is too large, or no workflow."""
    definition, input, start = case
    try:
        compiled(definition)
        return Reference(definition).run(input, start)
    except (TooLarge, DefinitionError):
        return None


async def simulate(backend: str, manner: str, case: Case, expected: Result, seed: int) -> None:
    """Run a case in this manner, and compare."""
    definition, input, start = case
    async with rig_on(backend, settings=GENEROUS, seed=seed, **MANNERS[manner]).running() as rig:
        if manner == "crashing":
            doom(rig, random.Random(seed))
        if start:
            execution = await rig.start_at(definition, start, input)
        else:
            execution = await rig.start(definition, input)
        await rig.run()
        completion = await rig.finished(execution)
        context = await rig.context(execution)
        error = msgspec.to_builtins(completion.error) if completion.error else None
        assert expected.allows(completion.status, context, error), (
            f"\nexpected {expected.status} {expected.contexts}\n         {expected.errors}"
            f"\ngot      {completion.status} {context}\n         {error}"
        )


def doom(rig: Rig, chance: random.Random) -> None:
    """Let what runs the case die now and then."""
    if isinstance(rig, Inside):
        at = chance.sample(range(1, 100), 3)
        rig.faults.before, rig.faults.after = set(at[:1]), set(at[1:])
    elif isinstance(rig, Outside):
        rig.doom(chance.randrange(1, 15))


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_drawn_cases(backend: str, manner: str) -> None:
    @settings(
        max_examples=max(1, EXAMPLES // share(backend)),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(), seed=st.integers(0, 2**16))
    def run(case: Case, seed: int) -> None:
        expected = meaning(case)
        assume(expected is not None)
        assert expected is not None
        asyncio.run(simulate(backend, manner, case, expected, seed))

    run()


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_numbered_cases(backend: str, manner: str) -> None:
    """Larger cases than Hypothesis likes to draw; a failure names its number."""
    for number in range(0, EXAMPLES, share(backend)):
        case = random_case(number)
        expected = meaning(case)
        if expected is None:
            continue
        try:
            asyncio.run(simulate(backend, manner, case, expected, number))
        except Exception as error:
            error.add_note(f"random_case({number})")
            raise
