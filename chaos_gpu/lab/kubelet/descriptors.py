"""Wait for file descriptors on the event loop: pipes and terminals of the processes that run here."""

import asyncio
import os
from collections.abc import AsyncIterator

CHUNK_BYTES = 65536


class Descriptor:
    """One end of a pipe, or a terminal, that this object owns."""

    def __init__(self, descriptor: int) -> None:
        """Take it over."""
        os.set_blocking(descriptor, False)
        self.closed = False
        self.number = descriptor
        self._waiting: set[asyncio.Future[None]] = set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what can be read until end of file or `close`; a terminal whose other side has closed ends too."""
        while not self.closed:
            try:
                data = os.read(self.number, CHUNK_BYTES)
            except BlockingIOError:
                await self._ready(write=False)
                continue
            except OSError:  # EIO: nobody has the terminal open any more
                return
            if not data:
                return
            yield data

    async def write(self, data: bytes) -> None:
        """Write everything.

        Raises:
            OSError: the reader has gone (EPIPE, EIO).
        """
        while data and not self.closed:
            try:
                data = data[os.write(self.number, data) :]
            except BlockingIOError:
                await self._ready(write=True)

    async def _ready(self, *, write: bool) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
        add(self.number, _wake, ready)
        self._waiting.add(ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            if not self.closed:  # the number may be another's by now
                remove(self.number)

    def close(self) -> None:
        """Give it up; who reads sees end of file. Idempotent."""
        if self.closed:
            return
        self.closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.number)
        loop.remove_writer(self.number)
        os.close(self.number)
        for ready in self._waiting:
            _wake(ready)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Pulse:
    """Wakes everyone who waits at that moment."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake all."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Sleep until the next `fire`."""
        await self._event.wait()
