"""The load on a silo: `wrk` measures the highest rate, requests at fixed times measure latency.

`wrk` is a separate tool in C that costs far less than any server here, so the server is what is measured. Requests at
fixed times come from this process, whether or not earlier ones have been answered (an open loop). So a server that
stalls shows up in the latencies.
"""

from __future__ import annotations

import asyncio
import gc
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, cast

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.problem import Category, Hashed, Number, Schema
from fedbandit.problem.records import Records
from fedbandit.schedule import clock

__all__ = [
    "ARMS",
    "DIM",
    "Latencies",
    "Posts",
    "contexts",
    "cpu_seconds",
    "latencies",
    "plan",
    "products",
    "saturated",
    "shop_plan",
]

DIM, ARMS = 10, 100
WRK = "wrk"
CPU_CLOCK = 2  # the clock of all threads of a process, as clock_getcpuclockid(3) encodes it with the process id
LEAD = 0.1  # seconds until the first of the requests at fixed times
WAIT = 30.0  # seconds until requests at fixed times must have been answered

# Reads bodies from files, because they may hold any bytes. In a pair, a later request rewards the id in an answer.
_SCRIPT = """
local headers, first, ids = {}, nil, {}
function init(args)
  headers["Authorization"], headers["Content-Type"] = "Bearer " .. args[1], args[3]
  local file = io.open(args[2], "rb")
  first = wrk.format("POST", "/v1/decisions", headers, file:read("*a"))
  file:close()
  if args[4] ~= "pair" then response = nil end
end
function request()
  local id = table.remove(ids)
  if id == nil then return first end
  return wrk.format("POST", "/v1/decisions/" .. id .. "/reward", headers, '{"reward":0.5}')
end
function response(status, headers, body)
  local id = string.match(body, '"id":"([^"]+)"')
  if id ~= nil then table.insert(ids, id) end
end
"""


class Posts(NamedTuple):
    """What is posted to a silo: requests for a decision, each followed by its reward if `pairs` is set."""

    token: str
    body: bytes
    media: str = "application/json"
    pairs: bool = False


class Latencies(NamedTuple):
    """The seconds from the moment at which each request was due to its answer."""

    decisions: Floats
    rewards: Floats


def plan(dim: int = DIM) -> Plan:
    """The plan of the silo that is measured; its term is far longer than the measurement."""
    return Plan(silos=3, rounds=365, dim=dim, privacy=Privacy(1.0, 1e-5), schedule=clock(86_400.0))


SHOP = Schema(
    context={
        "age": Number(18, 100),
        "device": Category(["phone", "tablet", "desktop"]),
        "segment": Category(["new", "regular", "returning"]),
        "hour": Number(0, 24),
    },
    features={"price": Number(0, 500), "kind": Category(list("abcdefgh")), "brand": Hashed(8), "rating": Number(0, 5)},
    interactions=[("segment", "kind")],
)


def shop_plan() -> Plan:
    """The plan of a shop whose silo takes records."""
    return plan(SHOP.dim).changed(schema=SHOP)


def products(visitor: dict[str, object], arms: int = ARMS) -> tuple[dict[str, object], Floats]:
    """A request that offers a visitor of the shop `arms` products: its body, and the rows that it stands for."""
    rng = np.random.default_rng(0)
    offered = [
        {
            "id": f"product {number}",
            "features": {
                "price": round(rng.uniform(0, 500), 2),
                "kind": "abcdefgh"[rng.integers(8)],
                "brand": f"brand {rng.integers(40)}",
                "rating": round(rng.uniform(0, 5), 1),
            },
        }
        for number in range(arms)
    ]
    return {"context": visitor, "actions": offered}, Records(SHOP).one(visitor, offered).rows


def contexts(people: int, arms: int = ARMS, dim: int = DIM) -> Floats:
    """Random actions for `people` people, (people, arms, dim), each of norm 1."""
    drawn = np.random.default_rng(0).standard_normal((people, arms, dim))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def saturated(port: int, folder: Path, clients: int, seconds: float, posts: Posts | None = None) -> float:
    """The requests per second that are answered to `clients` clients, each of which always has one request open.

    Without `posts` they get `/`.
    """
    found = shutil.which(WRK)
    if found is None:
        raise FileNotFoundError(
            "`wrk` is needed to measure a server, and is not installed: `apt install wrk` (Debian, Ubuntu),"
            " `brew install wrk` (macOS), or https://github.com/wg/wrk"
        )
    command = [found, "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", f"http://127.0.0.1:{port}/"]
    if posts is not None:
        script, body = folder / "posts.lua", folder / "body"
        script.write_text(_SCRIPT)
        body.write_bytes(posts.body)
        options = [posts.token, str(body), posts.media, "pair" if posts.pairs else "decide"]
        command[-1:] = ["-s", str(script), command[-1], "--", *options]
    return _rate(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def cpu_seconds(process: int) -> float | None:
    """The CPU time that a process has used so far, to the nanosecond; None if the machine does not tell."""
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime(~process << 3 | CPU_CLOCK)
    except OSError:
        return None


def _rate(report: str) -> float:
    """The requests per second in a report of `wrk`; an error if any of them was refused or lost."""
    wrong = re.search(r"(Non-2xx or 3xx responses|Socket errors): .*", report)
    rate = re.search(r"Requests/sec:\s*([\d.]+)", report)
    if wrong or rate is None:
        raise RuntimeError(f"the load was not served: {wrong[0] if wrong else report}")
    return float(rate[1])


async def latencies(port: int, posts: Posts, pairs_per_s: float, seconds: float, connections: int = 32) -> Latencies:
    """How long decisions and rewards take when pairs begin at fixed times, whether or not earlier ones are answered.

    Waiting for a free connection, or for this process, is part of a request's latency. So this process collects no
    garbage meanwhile, and the timers of its loop are exact to the millisecond.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    opened = [
        (await loop.create_connection(lambda: _Connection(done), "127.0.0.1", port))[1] for _ in range(connections)
    ]
    free, due = list(opened), list[Callable[[_Connection], None]]()
    found: tuple[list[float], list[float]] = ([], [])
    decide = _request("/v1/decisions", posts.token, posts.media, posts.body)
    pairs = round(pairs_per_s * seconds)

    def give(work: Callable[[_Connection], None]) -> None:
        if free:
            work(free.pop())
        else:
            due.append(work)

    def back(connection: _Connection) -> None:
        if due:
            due.pop(0)(connection)
        else:
            free.append(connection)

    def begin(due_at: float) -> None:
        moment = min(due_at, perf_counter())  # a timer may be a little early
        give(lambda connection: connection.ask(decide, lambda body: decided(connection, moment, body)))

    def decided(connection: _Connection, moment: float, body: bytes) -> None:
        now = perf_counter()
        found[0].append(now - moment)
        decision = body.split(b'"', 4)[3].decode()  # {"id":"...",
        reward = _request(f"/v1/decisions/{decision}/reward", posts.token, "application/json", b'{"reward":0.5}')
        back(connection)
        give(lambda other: other.ask(reward, lambda _: rewarded(other, now)))

    def rewarded(connection: _Connection, moment: float) -> None:
        found[1].append(perf_counter() - moment)
        back(connection)
        if len(found[1]) == pairs:
            done.set_result(None)

    start, first = loop.time() + LEAD, perf_counter() + LEAD
    gc.disable()
    try:
        for number in range(pairs):
            loop.call_at(start + number / pairs_per_s, begin, first + number / pairs_per_s)
        await asyncio.wait_for(done, seconds + WAIT)
    finally:
        gc.enable()
        for connection in opened:
            connection.close()
    return Latencies(np.array(found[0]), np.array(found[1]))


def _request(path: str, token: str, media: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: {media}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Connection(asyncio.Protocol):
    """One connection that is kept alive, with one request at a time; every answer must be a 200."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self._done, self._came = done, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes, answered: Callable[[bytes], None]) -> None:
        self._answered = answered
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            return
        self._came = b""
        if head.startswith(b"HTTP/1.1 200"):
            self._answered(body)
        elif not self._done.done():
            self._done.set_exception(RuntimeError(f"{head.splitlines()[0].decode()} {body.decode()[:200]}"))

    def close(self) -> None:
        self._transport.close()
