"""A load generator that costs little itself: HTTP/1.1 over raw streams, a fixed number of clients, each in a loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer = reader, writer
        self._head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"

    @classmethod
    async def open(cls, port: int, token: str) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port), token)

    async def request(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        """Send, wait for the answer, which must be a 200."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        content = await self._reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {answer.splitlines()[0].decode()} {content.decode()[:200]}")
        return dict(json.loads(content))

    def close(self) -> None:
        self._writer.close()


async def throughput(
    port: int, token: str, clients: int, seconds: float, work: Callable[[Connection, int], Awaitable[None]]
) -> tuple[float, list[float]]:
    """Calls of `work` per second by so many clients at once, and how long each took."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        connection = await Connection.open(port, token)
        while time.perf_counter() < end:
            began = time.perf_counter()
            await work(connection, number)
            latencies.append(time.perf_counter() - began)
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return len(latencies) / (time.perf_counter() - began), latencies
