"""`rune`, but with the tests' clock and world: `python -m tests.conformance.member worker …`."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rune.backends.redis
import rune.distributed
from rune.cli import main
from rune.worker import Worker
from tests.conformance import nodes
from tests.conformance.far import FarWorld, SharedClock
from tests.servers.redis import Line

CLOCK, REDIS = "CREW_CLOCK", "CREW_REDIS"
"""The variables that say where the clock and the journal are."""


def join(clock: SharedClock, world: FarWorld) -> None:
    """Have what runs in this process go by this clock, change this world, and say when it is done."""
    module: Any = rune.distributed
    module.time = SimpleNamespace(time=clock)
    nodes.far = world
    module._NEWS = 0.2
    redis: Any = rune.backends.redis
    redis.open_redis = partial(redis.open_redis, clock=clock)
    worker: Any = Worker
    catch_up = worker.catch_up

    def handle(self: Worker, handled: int) -> None:
        world.handle(handled)

    async def catch_up_and_tell(self: Worker) -> None:
        await catch_up(self)
        world.caught_up()

    worker.handled = property(lambda self: world.handled, handle)
    worker.catch_up = catch_up_and_tell


if __name__ == "__main__":
    join(SharedClock(Path(os.environ[CLOCK])), FarWorld(Line(int(os.environ[REDIS]))))
    sys.exit(main(sys.argv[1:]))
