"""A silo over HTTP, compared with an empty application on the same server in the same run.

The empty application is the least that an ASGI server can serve: one coroutine that answers every request with `{}`. It
has no routes, checks no token and reads no body. Its cost is that of the server and the network; the silo itself costs
what comes on top of that.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import uvicorn
import uvloop

from fedbandit.bench.load import Posts, contexts, cpu_seconds, latencies, plan, products, saturated, shop_plan
from fedbandit.federation.http import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.process import SERVER, settle
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.wire.broker import free_port

__all__ = ["http_figures", "up"]

CLIENTS, SECONDS, REPEATS = 16, 2.0, 3
TOKEN = "bench"
SET, SET_ARMS, SET_DIM = "catalogue", 1000, 40
VISITOR: dict[str, object] = {"age": 44, "device": "phone", "segment": "regular", "hour": 13}


class _Server(NamedTuple):
    """A server in its own process."""

    port: int
    process: int


class _Served(NamedTuple):
    """Requests per second, and the CPU time that each costs the server; None if the machine does not tell."""

    per_s: float
    cpu_us: float | None


def http_figures() -> dict[str, float | None]:
    """Requests per second of each kind, as shares of the empty application's rate.

    `decide_ratio`: a decision among 100 actions with 10 features, in JSON; `binary_ratio`: the same as float32 rows in
    MessagePack; `registered_ratio`: a decision among a registered set of 1,000 actions with 40 features; `pair_ratio`:
    requests that are alternately a decision, in JSON, and its durable reward. `schema_ratio`: a decision among 100
    products with four features each for a visitor with four, in JSON, over the same decision from the rows that a
    schema makes of them. `empty_cpu_us`, `decide_cpu_us` and so on are the microseconds of CPU that a request costs the
    server. On a machine that is busy with other work, trust their ratios rather than those of the rates.

    `p99_ms`: 99 of 100 requests take at most this long when pairs begin at half the rate at which they saturate the
    silo. It is the longer of the figures for decisions and for rewards.
    """
    rows = contexts(1)[0]
    decide = Posts(TOKEN, json.dumps({"actions": rows.tolist()}).encode())
    records, encoded = products(VISITOR)
    packed = msgspec.msgpack.encode({"actions": rows.astype("<f4").tobytes()})
    kinds = {
        "decide": ("silo", decide),
        "binary": ("silo", Posts(TOKEN, packed, "application/msgpack")),
        "registered": ("set", Posts(TOKEN, json.dumps({"action_set": SET}).encode())),
        "pair": ("silo", decide._replace(pairs=True)),
        "records": ("shop", Posts(TOKEN, json.dumps(records).encode())),
        "rows": ("shop", Posts(TOKEN, json.dumps({"actions": encoded.tolist()}).encode())),
    }
    with _servers() as (folder, servers):
        turns = [_turn(folder, servers, kinds) for _ in range(REPEATS)]
        rates = [{name: served.per_s for name, served in turn.items()} for turn in turns]
        half = float(np.median([rate["pair"] for rate in rates])) / 4  # two requests per pair
        # uvloop keeps requests to their times better than asyncio does
        taken = uvloop.run(latencies(servers["silo"].port, decide, half, 2 * SECONDS))
    middle = {name: float(np.median([rate[name] for rate in rates])) for name in ("empty", *kinds)}
    ratios = {f"{name}_ratio": _ratio(rates, name, "empty") for name in ("decide", "binary", "registered", "pair")}
    p50, p99 = ([float(1000 * np.quantile(one, share)) for one in taken] for share in (0.5, 0.99))
    return {
        "empty_per_s": middle["empty"],
        **ratios,
        **{f"{name}_cpu_us": _middle_cpu(turns, name) for name in ("empty", "decide", "binary", "registered", "pair")},
        "schema_ratio": _ratio(rates, "records", "rows"),
        "decisions_per_s": middle["decide"],
        "pairs_per_s": middle["pair"] / 2,
        "open_loop_pairs_per_s": half,
        "p50_ms": float(1000 * np.quantile(np.concatenate(taken), 0.5)),
        "p50_decide_ms": p50[0],
        "p50_reward_ms": p50[1],
        "p99_ms": max(p99),
        "p99_decide_ms": p99[0],
        "p99_reward_ms": p99[1],
    }


def _ratio(rates: list[dict[str, float]], name: str, over: str) -> float:
    return float(np.median([rate[name] / rate[over] for rate in rates]))


def _middle_cpu(turns: list[dict[str, _Served]], name: str) -> float | None:
    known = [turn[name].cpu_us for turn in turns]
    return float(np.median([cost for cost in known if cost is not None])) if None not in known else None


def _turn(folder: Path, servers: dict[str, _Server], kinds: dict[str, tuple[str, Posts]]) -> dict[str, _Served]:
    """Measure each kind of request in turn, so that other work on the machine slows all of them."""
    return {"empty": _served(folder, servers["empty"])} | {
        name: _served(folder, servers[where], posts) for name, (where, posts) in kinds.items()
    }


def _served(folder: Path, server: _Server, posts: Posts | None = None) -> _Served:
    before = cpu_seconds(server.process)
    rate = saturated(server.port, folder, CLIENTS, SECONDS, posts)
    after = cpu_seconds(server.process)
    cost = None if before is None or after is None else 1e6 * (after - before) / (rate * SECONDS)
    return _Served(rate, cost)


@contextmanager
def _servers() -> Iterator[tuple[Path, dict[str, _Server]]]:
    """A folder, and four servers: the empty application, a silo, a silo with a registered set, and a shop's silo."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _server(_empty) as empty,
        _server(_silo, folder) as silo,
        _server(_silo_with_set, folder) as with_set,
        _server(_shop, folder) as shop,
    ):
        yield Path(folder), {"empty": empty, "silo": silo, "set": with_set, "shop": shop}


async def _nothing(scope: Any, receive: Any, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def _empty(port: int) -> None:
    gc.freeze()  # as a silo does
    uvicorn.run(_nothing, port=port, log_level="error", lifespan="off", **SERVER)


def _silo(port: int, folder: str) -> None:
    with Silo.open(Path(folder) / "silo.db", plan()) as silo:
        settle(silo)
        uvicorn.run(create_app(Service(silo), TOKEN), port=port, log_level="error", **SERVER)


def _silo_with_set(port: int, folder: str) -> None:
    with Silo.open(Path(folder) / "set.db", plan(SET_DIM)) as silo:
        silo.register(SET, contexts(1, SET_ARMS, SET_DIM)[0])
        settle(silo)
        uvicorn.run(create_app(Service(silo), TOKEN), port=port, log_level="error", **SERVER)


def _shop(port: int, folder: str) -> None:
    with Silo.open(Path(folder) / "shop.db", shop_plan()) as silo:
        settle(silo)
        uvicorn.run(create_app(Service(silo), TOKEN), port=port, log_level="error", **SERVER)


@contextmanager
def _server(target: Callable[..., None], *arguments: str) -> Iterator[_Server]:
    """A server that runs until the block is left."""
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(port, *arguments), daemon=True)
    process.start()
    try:
        up(port)
        assert process.pid is not None
        yield _Server(port, process.pid)
    finally:
        process.terminate()
        process.join(10)


def up(port: int) -> None:
    """Wait until a server listens on the port."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.01)
    raise TimeoutError(f"no server on port {port} after 60 s")
