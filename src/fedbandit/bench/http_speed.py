"""A decision and its durable reward over HTTP, compared with an empty application on the same server in the same run.

The empty application is the least that an ASGI server can serve: one coroutine that answers every request with `{}`. It
has no routes, checks no token and reads no body. What it costs is the server and the network; what a silo costs beyond
that is its own.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from fedbandit.bench.load import HttpClient, contexts, plan, throughput
from fedbandit.federation.http import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.process import SERVER
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.wire.broker import free_port

__all__ = ["http_figures"]

CLIENTS, SECONDS, REPEATS = 16, 2.0, 3
TOKEN = "bench"


def http_figures() -> dict[str, float | None]:
    """Requests to a silo, alternately decision and durable reward, compared with requests to the empty application.

    `http_ratio` compares requests with requests, `http_pair_ratio` a decision and its reward with one empty request.
    `p50_ms` and `p99_ms` are times of a decision and its reward together.
    """
    body = json.dumps({"actions": contexts(1)[0].tolist()}).encode()
    empty, pairs, latencies = [], [], []
    with tempfile.TemporaryDirectory() as folder, _server(_empty) as empty_port, _server(_silo, folder) as silo_port:
        for _ in range(REPEATS):  # in turns, so that a busy machine hurts both alike
            empty.append(asyncio.run(throughput(empty_port, TOKEN, CLIENTS, SECONDS, _get))[0])
            rate, seconds = asyncio.run(throughput(silo_port, TOKEN, CLIENTS, SECONDS, _pair(body)))
            pairs.append(rate)
            latencies += seconds
    pair_rate, empty_rate = float(np.median(pairs)), float(np.median(empty))
    return {
        "empty_per_s": empty_rate,
        "pairs_per_s": pair_rate,
        "http_ratio": 2 * pair_rate / empty_rate,
        "http_pair_ratio": pair_rate / empty_rate,
        "p50_ms": float(1000 * np.quantile(latencies, 0.5)),
        "p99_ms": float(1000 * np.quantile(latencies, 0.99)),
    }


async def _get(client: HttpClient) -> None:
    await client.request("GET", "/")


def _pair(body: bytes) -> Callable[[HttpClient], Awaitable[None]]:
    async def pair(client: HttpClient) -> None:
        decision = await client.request("POST", "/v1/decisions", body)
        await client.request("POST", f"/v1/decisions/{decision['id']}/reward", b'{"reward":0.5}')

    return pair


async def _nothing(scope: Any, receive: Any, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def _empty(port: int) -> None:
    uvicorn.run(_nothing, port=port, log_level="error", lifespan="off", **SERVER)


def _silo(port: int, folder: str) -> None:
    with Silo.open(Path(folder) / "silo.db", plan()) as silo:
        uvicorn.run(create_app(Service(silo), TOKEN), port=port, log_level="error", **SERVER)


@contextmanager
def _server(target: Callable[..., None], *arguments: str) -> Iterator[int]:
    """A server in a process of its own; yields its port."""
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(port, *arguments), daemon=True)
    process.start()
    try:
        asyncio.run(_up(port))
        yield port
    finally:
        process.terminate()
        process.join(10)


async def _up(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            (await HttpClient.open(port, TOKEN)).close()
            return
        except OSError:
            await asyncio.sleep(0.05)
    raise TimeoutError(f"no server on port {port} after 60 s")
