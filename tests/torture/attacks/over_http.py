"""What an application of a silo, or anybody who reaches its port, can do to it: be refused."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import uvicorn

from fedbandit.federation.http import app as application
from fedbandit.federation.http import patience
from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.bodies.parsing import PACKED_MEDIA
from fedbandit.federation.http.service import Service
from fedbandit.federation.process import SERVER
from fedbandit.federation.silo.serving import Silo
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every
from tests.federation.small import small_plan
from tests.memory import at_most
from tests.torture.attacks.arena import MEMORY
from tests.torture.attacks.cases import Table

OVER_HTTP: Table[Counter] = Table()
attack = OVER_HTTP.attack
TOKEN = "the token of this silo"
PLAN = small_plan(rounds=60, schedule=every(30), privacy=Privacy(1.0, 0.1, participations=2))
ACTIONS = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]


class Counter:
    """A silo that serves on loopback, and a caller that counts what was acknowledged."""

    def __init__(self, silo: Silo, port: int, connections: Collection[object]) -> None:
        self.silo, self.port, self.connections = silo, port, connections
        self.counted = 0
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
        )

    async def post(self, path: str, body: object = None, **more: Any) -> httpx.Response:
        """One request; no answer is ever a failure of the server."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = await self.http.post(path, **content, **more)
        assert answer.status_code < 500, answer.text
        return answer

    async def refused(self, path: str, body: object, status: int, **more: Any) -> None:
        answer = await self.post(path, body, **more)
        assert answer.status_code == status, f"{answer.status_code}, not {status}: {answer.text[:200]}"
        assert len(answer.content) < 2000

    async def decide(self, **more: Any) -> str:
        answer = await self.post("/v1/decisions", {"actions": ACTIONS} | more)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def reward(self, decision: str, value: float = 0.5) -> httpx.Response:
        answer = await self.post(f"/v1/decisions/{decision}/reward", {"reward": value})
        if answer.status_code == 200 and answer.json()["counted"] and not answer.json()["repeated"]:
            self.counted += 1
        return answer

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def raw(self, *parts: bytes, seconds: float = 20.0) -> bytes:
        """Send bytes as they are; all that comes back until the server closes or says no more."""
        reader, writer = await self.open()
        answer = b""
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            async with asyncio.timeout(seconds):
                while data := await reader.read(65536):
                    answer += data
                    if b"\r\n\r\n" in answer and answer.endswith(b"}"):
                        break
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()
        return answer

    async def go_on(self) -> None:
        """The silo decides, takes rewards, and has counted exactly those that it acknowledged."""
        assert (await self.http.get("/healthz")).status_code == 200
        decision = await self.decide()
        assert (await self.reward(decision)).json() == {"counted": True, "batch": 0, "repeated": False}
        assert len(self.silo.store.batch(1, 0)) == self.counted


@asynccontextmanager
async def serving(header: float = 10.0, body: float = 30.0, answer: float = 30.0) -> AsyncIterator[Counter]:
    """A silo served as its process serves it; the times that it waits may be shorter."""
    quick = MEMORY if MEMORY.is_dir() else None
    with (
        patch.object(patience, "HEADER_TIMEOUT", header),
        patch.object(application, "BODY_TIMEOUT", body),
        patch.object(patience, "ANSWER_TIMEOUT", answer),
        tempfile.TemporaryDirectory(prefix="fedbandit-attack-", dir=quick) as folder,
        Silo.open(Path(folder) / "silo.db", PLAN) as silo,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        service = Service(silo)
        server = uvicorn.Server(uvicorn.Config(create_app(service, TOKEN), log_level="critical", **SERVER))
        running = asyncio.create_task(server.serve([listening]))
        counter = Counter(silo, listening.getsockname()[1], server.server_state.connections)
        try:
            yield counter
        finally:
            await counter.http.aclose()
            server.should_exit = server.force_exit = True
            await running
            service.close()


# -- who asks, and what for -------------------------------------------------------------------------------------------


@attack("anybody", "no token, a wrong one, one as long, the token in another scheme", "401 before anything is read")
async def wrong_token(place: Counter) -> None:
    shown = ("", "Bearer", f"Bearer {TOKEN[:-1]}x", TOKEN, f"Basic {TOKEN}", f"bearer {TOKEN}", f"Bearer {TOKEN} ", "é")
    for one in shown:
        for path in ("/v1/decisions", "/v1/rewards", "/v1/decisions/x/reward", "/nothing"):
            if one != f"Bearer {TOKEN} ":  # HTTP strips the space
                await place.refused(path, {"actions": ACTIONS}, 401, headers={"Authorization": one.encode()})
    assert place.silo.status()["decisions"] == 0


@attack(
    "an application", "the same reward twice, and another one for the same decision", "counted once; 409 for the other"
)
async def rewarded_twice(place: Counter) -> None:
    decision = await place.decide()
    assert (await place.reward(decision)).json()["repeated"] is False
    assert (await place.reward(decision)).json()["repeated"] is True
    for value in (0.0, 1.0, 0.5 + 2**-53):
        assert (await place.reward(decision, value)).status_code == 409


@attack("an application", "one decision a hundred times at once", "counted once")
async def rewarded_at_once(place: Counter) -> None:
    decision = await place.decide()
    answers = await asyncio.gather(*(place.reward(decision) for _ in range(100)))
    assert sum(not answer.json()["repeated"] for answer in answers) == 1


@attack("an application of another silo", "a decision id of another silo, and one of another plan", "404")
async def id_of_another(place: Counter) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for plan in (PLAN, PLAN.changed(rounds=120)):
            with Silo.open(Path(folder) / f"{plan.rounds}.db", plan) as other:
                theirs = other.decide(ACTIONS).id
            assert (await place.reward(theirs)).status_code == 404


@attack("an application", "every byte of an id altered, ids cut short and made longer", "404, or the same decision")
async def altered_ids(place: Counter) -> None:
    decision = await place.decide()
    for at in range(0, len(decision), 5):
        changed = decision[:at] + ("A" if decision[at] != "A" else "B") + decision[at + 1 :]
        assert (await place.reward(changed)).status_code == 404
    for changed in (decision[:-1], decision[:-4], decision + "A", decision + "AAAA", decision * 2, "+" + decision[1:]):
        assert (await place.reward(changed)).status_code == 404
    for same in (decision, decision + "="):  # Base64 may end in signs that say nothing: it is the same decision
        assert (await place.reward(same)).status_code in (200, 404)
    assert place.counted == 1


@attack("an application", "rewards out of range, NaN, infinite, as text, as truth, huge", "422")
async def bad_rewards(place: Counter) -> None:
    path = f"/v1/decisions/{await place.decide()}/reward"
    for text in ("-0.1", "1.0000001", "1e400", "-1e400", "NaN", "Infinity", '"1"', "true", "null", "[1]", "1" * 5000):
        await place.refused(path, f'{{"reward": {text}}}'.encode(), 422)
    assert (await place.post(path, b'{"reward": -0.0}')).status_code == 200
    place.counted += 1


@attack("an application", "features of NaN, of infinities, longer than 1, of another dimension", "422")
async def bad_features(place: Counter) -> None:
    for row in ("NaN, 0", "Infinity, 0", "1e400, 0", "1e308, 1e308", "0.8, 0.8", "1", "1, 0, 0", ""):
        await place.refused("/v1/decisions", f'{{"actions": [[{row}]]}}'.encode(), 422)
    assert place.silo.status()["decisions"] == 0


@attack("an application", "a user who comes more often than the cap allows", "the rest is left out")
async def over_the_cap(place: Counter) -> None:
    for turn in range(6):
        answer = await place.reward(await place.decide(user="alice"))
        assert answer.json()["counted"] is (turn < 2)
    for decision in [await place.decide(user="bob") for _ in range(5)]:
        await place.reward(decision)
    assert place.counted == 4


@attack("an application", "one decision a thousand times in one batch, with all rewards", "counted once")
async def batch_of_one_id(place: Counter) -> None:
    decision = await place.decide()
    rewards = [{"decision": decision, "reward": 0.5 if number % 2 else 0.25} for number in range(1000)]
    results = (await place.post("/v1/rewards", {"rewards": rewards})).json()["rewards"]
    assert sum(result["status"] == 200 and not result["answer"]["repeated"] for result in results) == 1
    assert sum(result["status"] == 409 for result in results) == 500
    place.counted += 1


@attack("an application", "rewards after the last release of the term", "410; decisions go on")
async def after_the_term(place: Counter) -> None:
    late = await place.decide()
    for _ in range(60):
        await place.decide()
    place.silo.tick()
    assert (await place.reward(late)).status_code == 410
    await place.decide()
    await place.http.get("/healthz")


# -- too much ---------------------------------------------------------------------------------------------------------


@attack("an application", "millions of empty lists and tables, in JSON and MessagePack", "422, none of them made")
async def empty_arrays(place: Counter) -> None:
    await place.refused("/v1/decisions", b'{"actions": [' + b"[]," * 2_000_000 + b"[]]}", 422)
    await place.refused("/v1/decisions/batch", b'{"decisions": [' + b"{}," * 2_000_000 + b"{}]}", 422)
    millions = 15_000_000
    packed = b"\x81\xa7context\x81\xa1a\xdd" + struct.pack(">I", millions) + b"\x90" * millions
    with at_most(4 * millions):  # the body as it is sent, received and looked at; it became a gigabyte
        await place.refused("/v1/decisions", packed, 422, headers={"Content-Type": PACKED_MEDIA})


@attack("an application", "a million '[', bare, as a value, as an unknown field", "422")
async def deep(place: Counter) -> None:
    deep = b"[" * 10**6
    for body in (deep, b'{"actions": ' + deep, b'{"x": ' + deep, b'{"a":' * 10**5, deep + b"]" * 10**6):
        await place.refused("/v1/decisions", body, 422)
        await place.refused("/v1/rewards", body, 422)


@attack("an application", "a body above the limit, declared and in chunks", "413, before it is read to its end")
async def body_too_large(place: Counter) -> None:
    head = f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    declared = f"{head}Content-Length: {2**40}\r\n\r\n".encode()
    assert b" 413 " in await place.raw(declared)
    chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    assert b" 413 " in await place.raw(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), *[chunk] * 17)


@attack("anybody", "lengths that cannot be, two lengths, a length and chunks", "refused")
async def lengths(place: Counter) -> None:
    head = f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    for lines in (
        "Content-Length: -1",
        "Content-Length: " + "9" * 5000,
        "Content-Length: 0x10",
        "Content-Length: 2\r\nContent-Length: 3",
        "Transfer-Encoding: gzip",
    ):
        answer = await place.raw(f"{head}{lines}\r\n\r\n{{}}".encode())
        assert b" 4" in answer[:13] or b" 501 " in answer[:13], (lines[:40], answer[:100])


@attack("anybody", "ten thousand headers, a header of ten megabytes, a path of a megabyte", "refused, the memory stays")
async def many_headers(place: Counter) -> None:
    start = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    many = [
        b"".join(b"X-%d: %d\r\n" % (number, number) for number in range(10_000 * k, 10_000 * (k + 1)))
        for k in range(20)
    ]
    for parts in ([start, *many], [start, b"X: ", *[b"y" * 2**20] * 10], [b"GET /", *[b"z" * 2**20] * 10]):
        answer = await place.raw(*parts, b"\r\n\r\n", seconds=5)
        assert b" 200 " not in answer[:13]


@attack("an application", "a decision id of 16 kB and longer, names and user keys of a megabyte", "404 and 422")
async def long_ids(place: Counter) -> None:
    assert (await place.reward("A" * 16_000)).status_code == 404
    assert (await place.reward("A" * 16_400)).status_code == 422
    await place.refused("/v1/decisions", {"actions": ACTIONS, "user": "u" * 10**6}, 422)
    await place.refused("/v1/decisions", {"action_set": "s" * 10**6}, 422)
    await place.refused("/v1/rewards", {"rewards": [{"decision": "A" * 10**6, "reward": 1}]}, 422)


@attack("an application", "more decisions, rewards and actions than one request may have", "422")
async def too_many(place: Counter) -> None:
    await place.refused("/v1/decisions/batch", {"decisions": [{"actions": [[1.0, 0.0]]}] * 1001}, 422)
    await place.refused("/v1/rewards", {"rewards": [{"decision": "x", "reward": 1}] * 1001}, 422)
    await place.refused("/v1/decisions", {"actions": [[1.0, 0.0]] * 100_001}, 422)
    await place.refused("/v1/decisions", {"actions": ACTIONS, "allowed": [0] * 100_001}, 422)
    assert place.silo.status()["decisions"] == 0


# -- connections ------------------------------------------------------------------------------------------------------


@attack("anybody", "300 connections that say nothing, or half a header", "closed when their time is over", header=0.5)
async def half_open(place: Counter) -> None:
    silent = [await place.open() for _ in range(150)]
    begun = [await place.open() for _ in range(150)]
    for _, writer in begun:
        writer.write(b"POST /v1/decisions HTTP/1.1\r\nHo")
    await place.decide()  # others are served meanwhile
    async with asyncio.timeout(15):
        for reader, writer in (*silent, *begun):
            with suppress(ConnectionResetError):  # closed with bytes unread
                assert b" 200 " not in await reader.read()
            writer.close()


@attack("anybody", "headers a byte at a time, for ever", "closed when their time is over", header=0.5)
async def slow_headers(place: Counter) -> None:
    reader, writer = await place.open()
    with suppress(ConnectionError):
        async with asyncio.timeout(15):
            while not reader.at_eof():
                writer.write(b"X")
                await writer.drain()
                await asyncio.sleep(0.05)
    writer.close()


@attack("an application", "a body a byte at a time, for ever", "408 when its time is over", body=0.5)
async def slow_body(place: Counter) -> None:
    head = f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"
    reader, writer = await place.open()
    writer.write(head.encode())
    for _ in range(8):
        writer.write(b"x")
        await asyncio.sleep(0.05)
    assert b" 408 " in await asyncio.wait_for(reader.read(), 5)
    writer.close()


@attack("anybody", "a thousand requests in one go, and no answer read", "cut off when its time is over", answer=0.5)
async def deaf(place: Counter) -> None:
    before, raw = len(place.connections), socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", place.port))
    request = b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n" * 1000
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(raw, request))
    async with asyncio.timeout(15):
        while len(place.connections) <= before:
            await asyncio.sleep(0.01)
        while len(place.connections) > before:
            await asyncio.sleep(0.05)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    raw.close()


@attack("anybody", "an upgrade to a websocket, HTTP/2, garbage, another protocol", "no answer but refusals")
async def other_protocols(place: Counter) -> None:
    upgrade = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    for data in (upgrade + key, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 1000, b"SSH-2.0-x\r\n", b"\xff" * 70_000):
        answer = await place.raw(data + b"\r\n\r\n", seconds=3)
        assert b" 200 " not in answer[:13]
        assert b" 101 " not in answer[:13]


@attack("anybody", "paths with dots, zeros, line ends and all of Unicode", "404 or 422")
async def odd_paths(place: Counter) -> None:
    for path in (
        "/v1/../v1/status",
        "/v1/decisions/%00/reward",
        "/v1/decisions/%0d%0a/reward",
        "/v1/decisions/%F0%9F%92%A9/reward",
        "/v1/decisions/%ff%fe/reward",
        "//v1/model",
        "/V1/model",
        "/v1/model/",
    ):
        answer = await place.post(path, {"reward": 1})
        assert answer.status_code in (404, 405, 422), (path, answer.status_code)


@attack("an application", "bodies that are no JSON, not UTF-8, or have fields twice", "422, or the last one counts")
async def no_json(place: Counter) -> None:
    for body in (b"", b"{", b"\xff", b'{"actions": [[1,0]]} x', b"a=1", b'{"actions": [[01,0]]}', b'"\\ud800"'):
        await place.refused("/v1/decisions", body, 422)
    twice = json.dumps(ACTIONS)
    answer = await place.post("/v1/decisions", f'{{"actions": [[2, 2]], "actions": {twice}}}'.encode())
    assert answer.status_code == 200
