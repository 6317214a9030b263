"""Decide + durable reward over HTTP, against an empty FastAPI endpoint in the same run."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import uvicorn
from fastapi import FastAPI
from numpy.typing import NDArray

from fedbandit.federation.bench.load import Connection, throughput
from fedbandit.federation.broker import free_port
from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.running import SERVER
from fedbandit.federation.silo import Silo
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy

CLIENTS, SECONDS, REPEATS = 16, 2.0, 3
DIM, ARMS = 10, 100
TOKEN = "bench"


def http_figures() -> dict[str, float | None]:
    """Requests to a silo, alternately decide and durable reward, against requests to an empty FastAPI endpoint.

    `http_ratio` compares requests with requests, `http_pair_ratio` a decision and its reward with one empty request;
    `p99_ms` is the time of a decision and its reward together.
    """
    body = json.dumps({"actions": _actions().tolist()}).encode()
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


async def _get(connection: Connection, client: int) -> None:
    await connection.request("GET", "/")


def _pair(body: bytes) -> Callable[[Connection, int], Awaitable[None]]:
    async def pair(connection: Connection, client: int) -> None:
        decision = await connection.request("POST", "/v1/decisions", body)
        await connection.request("POST", f"/v1/decisions/{decision['id']}/reward", b'{"reward":0.5}')

    return pair


def _actions() -> NDArray[np.float64]:
    actions = np.random.default_rng(0).standard_normal((ARMS, DIM))
    return np.asarray(actions / np.linalg.norm(actions, axis=1, keepdims=True))


def _empty(port: int) -> None:
    app = FastAPI()

    @app.get("/")
    async def nothing() -> dict[str, str]:
        return {}

    uvicorn.run(app, port=port, log_level="error", access_log=False)


def _silo(port: int, folder: str) -> None:
    plan = Plan(silos=3, rounds=10_000_000, dim=DIM, privacy=Privacy(1.0, 1e-5))
    with Silo.open(Path(folder) / "silo.db", plan) as silo:
        app = create_app(Service(silo), TOKEN)
        uvicorn.run(app, port=port, log_level="error", **SERVER)


@contextmanager
def _server(target: Callable[..., None], *arguments: str) -> Iterator[int]:
    """A server in a process of its own."""
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
            (await Connection.open(port, TOKEN)).close()
            return
        except OSError:
            await asyncio.sleep(0.05)
    raise TimeoutError(f"no server on port {port} after 60 s")
