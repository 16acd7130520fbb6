"""`rune`, but it kills itself: `python -m tests.distributed.mortal 'after apply 2' worker …`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from rune.backends.rabbitmq.broker import RabbitBroker
from rune.backends.rabbitmq.publishing import Publisher
from rune.backends.redis.state import RedisState
from rune.cli import main

OWNERS = {
    **dict.fromkeys(("apply", "lease", "put", "bury", "claim", "discharge"), RedisState),
    "finish_all": RabbitBroker,
    "publish": Publisher,
}


def die_at(when: str, name: str, count: int) -> None:
    """Let the `count`-th call of a port's method be the last thing this process does, or does not do."""
    # One delivery is finished as several are.
    name = "finish_all" if name == "finish" else name
    owner: Any = OWNERS[name]
    original = getattr(owner, name)
    calls = 0

    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        if name == "publish" and not arguments[0]:
            return await original(self, *arguments, **named)
        if name == "claim":
            # Empty-handed it would prove nothing.
            answer = await original(self, *arguments, **named)
            calls += bool(answer)
            if calls == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer
        calls += 1
        last = calls == count
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await original(self, *arguments, **named)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, call)


if __name__ == "__main__":
    point, *rest = sys.argv[1:]
    when, name, count = point.split()
    die_at(when, name, int(count))
    sys.exit(main(rest))
