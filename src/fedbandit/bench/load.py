"""What is asked of a silo, and a load generator that costs little itself: HTTP/1.1 over raw streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock

__all__ = ["ARMS", "HttpClient", "contexts", "plan", "throughput"]

DIM, ARMS = 10, 100


def plan() -> Plan:
    """The plan of the silo that is measured; its term does not end while it is."""
    return Plan(silos=3, rounds=365, dim=DIM, privacy=Privacy(1.0, 1e-5), schedule=clock(86_400.0))


def contexts(people: int) -> Floats:
    """Actions for so many people, (people, ARMS, DIM), each of norm 1."""
    drawn = np.random.default_rng(0).standard_normal((people, ARMS, DIM))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


class HttpClient:
    """One connection, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer = reader, writer
        self._head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"

    @classmethod
    async def open(cls, port: int, token: str) -> HttpClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port), token)

    async def request(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        """Send a request and wait for its answer, which must be a 200."""
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
    port: int, token: str, clients: int, seconds: float, work: Callable[[HttpClient], Awaitable[None]]
) -> tuple[float, list[float]]:
    """How often per second so many clients, each in a loop, get through `work`; and how long each time took."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def loop() -> None:
        client = await HttpClient.open(port, token)
        while time.perf_counter() < end:
            began = time.perf_counter()
            await work(client)
            latencies.append(time.perf_counter() - began)
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(loop() for _ in range(clients)))
    return len(latencies) / (time.perf_counter() - began), latencies
