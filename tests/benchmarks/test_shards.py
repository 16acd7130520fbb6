"""A loop that is spread out takes no more memory the longer it is: the quick form of `make bench-shards`."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.distributed.site import site
from benchmarks.shards import distributed, embedded

FEW = {"RUNE_CONCURRENCY": "8", "RUNE_PREFETCH": "8"}
"""What is under way at a time is then little, so that what grows with the loop is seen soon."""
RATIO = 1.5


@pytest.mark.timeout(300)
def test_ten_times_as_many_shards_take_no_more_memory_embedded() -> None:
    small, large = embedded(2_000, **FEW), embedded(20_000, **FEW)
    assert large["megabytes"] < RATIO * small["megabytes"]


@pytest.mark.timeout(400)  # a busy machine takes its time to start the servers
def test_ten_times_as_many_shards_take_no_more_memory_distributed() -> None:
    async def measured() -> tuple[dict[str, float], dict[str, float]]:
        with site() as here:
            return await distributed(here, 1_000, **FEW), await distributed(here, 10_000, **FEW)

    small, large = asyncio.run(measured())
    assert large["megabytes"] < RATIO * small["megabytes"]
