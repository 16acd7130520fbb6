"""The threads that blocking functions of users run in, apart from those the event loop needs itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["Threads"]


class Threads:
    """A pool of threads, made when the first function runs."""

    def __init__(self, size: int = 32) -> None:
        self._size = size
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function in a thread, with the caller's context variables."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        from contextvars import copy_context

        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="rune-node")
        return await asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, function)

    async def close(self) -> None:
        """Let running functions end, and start no more."""
        import asyncio

        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
