"""A bad network on loopback: a proxy that cuts, slows down, or swallows what passes between a party and the broker."""

from __future__ import annotations

import asyncio
import contextlib
import math
from types import TracebackType
from typing import Self

__all__ = ["Proxy"]

CHUNK = 4096


class Proxy:
    """Hands bytes on between whoever connects and a port. All knobs work on what passes from then on."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.rate = math.inf  # bytes per second, each way
        self.cut_after = math.inf  # bytes from the party until its connections are cut
        self.swallows = False  # takes everything, hands nothing on, says nothing
        self.refuses = False  # lets nobody connect
        self.cuts = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End all connections at once, whatever is under way."""
        self.cuts += 1
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            from_target, to_target = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, to_target}
        for one, other, counted in ((reader, to_target, True), (from_target, writer, False)):
            task = asyncio.create_task(self._hand_on(one, other, counted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: bool) -> None:
        silent = False
        with contextlib.suppress(ConnectionError, RuntimeError):
            while data := await reader.read(CHUNK):
                silent = silent or self.swallows
                if silent:  # a connection that was lost stays lost, also when the network is back
                    continue
                if counted and len(data) >= self.cut_after:
                    writer.write(data[: int(self.cut_after)])
                    await writer.drain()
                    self.cut_after = math.inf
                    self.cut()
                    return
                self.cut_after -= len(data) if counted else 0
                await asyncio.sleep(len(data) / self.rate)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
