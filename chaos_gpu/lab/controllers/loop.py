"""The loop that every controller runs: keys come in, each is reconciled by itself, failures are tried again later."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from chaos_gpu.lab.client import TRANSIENT

K = TypeVar("K", bound=Hashable)
RETRY_S = 0.2


class Loop(Generic[K]):
    """A work queue of keys without duplicates."""

    def __init__(self, reconcile: Callable[[K], Awaitable[float | None]]) -> None:
        """Call `reconcile` with each key; it returns after how many seconds to look again, or None."""
        self._reconcile = reconcile
        self._waiting: dict[K, None] = {}
        self._more = asyncio.Event()
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Have a key reconciled soon; once, however often it is added before."""
        self._waiting[key] = None
        self._more.set()

    def add_later(self, key: K, delay_s: float) -> None:
        """Have a key reconciled after some time; a later call for the same key takes this one's place."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self) -> None:
        """Reconcile keys until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            keys, self._waiting = list(self._waiting), {}
            for key in keys:
                try:
                    delay_s = await self._reconcile(key)
                except TRANSIENT:
                    delay_s = RETRY_S
                if delay_s is not None:
                    self.add_later(key, max(0.0, delay_s))
