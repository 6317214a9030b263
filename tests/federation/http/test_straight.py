"""The short way of a decision: the same answers as the long way, and the long way for whatever is unusual."""

import asyncio
import json
import socket

import msgspec
import numpy as np
import pytest
import uvicorn

from fedbandit.federation.http import patience
from fedbandit.federation.http.app import App, create_app
from fedbandit.federation.http.routes import service_routes
from fedbandit.federation.http.service import Service
from fedbandit.federation.process import SERVER
from fedbandit.federation.silo.serving import Silo
from fedbandit.schedule import clock
from tests.federation.http.client import ACTIONS, TOKEN, Client
from tests.federation.small import small_plan

BODY = json.dumps({"actions": ACTIONS}).encode()
PACKED = msgspec.msgpack.encode({"actions": np.array(ACTIONS, dtype="<f4").tobytes()})


def request(body=BODY, *lines, method="POST", path="/v1/decisions", token=TOKEN):
    head = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, *lines, "", ""]).encode() + body


@pytest.fixture
def timed(tmp_path):
    """A silo whose decisions wait for nothing: it runs on the clock."""
    with Silo.open(tmp_path / "timed.db", small_plan(schedule=clock(86_400.0), visits="private")) as silo:
        yield silo


class Watched(App):
    """The application, which remembers what came the short way, and what was asked over ASGI."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.straight: list[bool] = []
        self.long = 0

    def at_once(self, path, shown, body):
        answer = super().at_once(path, shown, body)
        self.straight.append(answer is not None)
        return answer

    async def __call__(self, scope, receive, send):
        self.long += scope["type"] == "http"
        await super().__call__(scope, receive, send)


def spoken(silo, *parts, answers, pause=0.0, heads=None):
    """What comes back, and the application, when these bytes are sent over one connection. `heads` gets the headers."""

    async def scenario():
        service = Service(silo)
        app = Watched(service_routes(service), TOKEN)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical", **SERVER))
            running = asyncio.create_task(server.serve([listening]))
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
            found = []
            async with asyncio.timeout(20):
                for _ in range(answers):
                    head = await reader.readuntil(b"\r\n\r\n")
                    if b" 100 " in head:  # go on
                        head = await reader.readuntil(b"\r\n\r\n")
                    if heads is not None:
                        heads.append(head)
                    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                    found.append((int(head.split()[1]), await reader.readexactly(length)))
            writer.close()
            server.should_exit = server.force_exit = True
            await running
        service.close()
        return found, app

    return asyncio.run(scenario())


@pytest.mark.parametrize("one", [request(), request(PACKED, "Content-Type: application/msgpack")])
def test_a_whole_request_goes_the_short_way(timed, one):
    ((status, content),), app = spoken(timed, one, answers=1)
    assert status == 200
    assert set(json.loads(content)) == {"id", "action", "model", "propensity", "name"}
    assert (app.straight, app.long) == ([True], 0)
    assert timed.status()["decisions"] == 1


def test_a_decision_of_the_short_way_is_rewarded_like_any_other(timed):
    ((_, content),), _ = spoken(timed, request(), answers=1)
    assert timed.reward(json.loads(content)["id"], 0.5).counted


@pytest.mark.parametrize("one, status", [
    (request(b"{"), 422), (request(b'{"actions": [[2.0, 0.0]]}'), 422), (request(token="wrong"), 401),
    (request(PACKED[:-1], "Content-Type: application/msgpack"), 422), (request(b""), 422),
    (request(BODY, "Connection: close"), 200), (request(BODY, "Expect: 100-continue"), 200),
    (request(path="/v1/decisions?x=1"), 200), (request(path="/v1/decision%73"), 200),
    (request(b"", method="GET"), 405), (request(path="/nothing"), 404),
])  # fmt: skip
def test_what_is_unusual_is_answered_the_long_way(timed, one, status):
    ((found, _),), app = spoken(timed, one, answers=1)
    assert found == status
    assert app.long == 1
    assert True not in app.straight


def test_a_body_in_pieces_goes_the_long_way_and_is_whole(timed):
    one = request()
    ((status, _),), app = spoken(timed, one[:-20], one[-20:-10], one[-10:], answers=1, pause=0.05)
    assert (status, app.long) == (200, 1)


def test_a_decision_that_takes_a_place_in_the_store_goes_the_long_way(silo):
    ((status, _),), app = spoken(silo, request(), answers=1)
    assert (status, app.long) == (200, 1)


def test_a_set_that_was_not_read_yet_goes_the_long_way_once(timed):
    timed.register("drugs", ACTIONS)
    one = request(b'{"action_set": "drugs"}')
    found, app = spoken(timed, one, one, answers=2, pause=0.2)
    assert [status for status, _ in found] == [200, 200]
    assert app.straight == [False, True]


def test_a_failure_of_the_silo_itself_is_a_500(timed, monkeypatch):
    monkeypatch.setattr(timed, "decide", lambda *a, **k: 1 / 0)
    ((status, _),), app = spoken(timed, request(), answers=1)
    assert (status, app.long) == (500, 1)


def test_nonsense_after_the_headers_is_refused_once(timed):
    chunked = request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    ((status, _),), app = spoken(timed, chunked + b"no length", answers=1)
    assert (status, app.long) == (400, 0)


def test_requests_in_one_piece_are_answered_in_their_order(timed):
    """Only the first of them goes the short way: the others wait for their turn, as other connections do."""
    bad = request(b"{}")
    found, app = spoken(timed, request() + bad + request() + bad, answers=4)
    assert [status for status, _ in found] == [200, 422, 200, 422]
    assert app.straight == [True]
    assert app.long == 3


@pytest.mark.parametrize("parts", [
    [b"GET /healthz HTTP/1.1\r\n", *[b"X: " + b"y" * 1000 + b"\r\n"] * 1000],
    [b"GET /healthz HTTP/1.1\r\nX: ", *[b"y" * 1000] * 1000],
    [request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"), b"1;x=", *[b"y" * 1000] * 1000],
    [request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"), b"1\r\nx\r\n0\r\n",
     *[b"X: " + b"y" * 1000 + b"\r\n"] * 1000],
], ids=["many headers", "a long header", "a long chunk extension", "many trailers"])  # fmt: skip
def test_what_is_no_body_has_a_limit(timed, parts):
    """httptools itself takes headers, trailers and extensions of chunks of any length."""

    async def scenario():
        service = Service(timed)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            config = uvicorn.Config(create_app(service, TOKEN), log_level="critical", **SERVER)
            server = uvicorn.Server(config)
            running = asyncio.create_task(server.serve([listening]))
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            sent = 0
            try:
                async with asyncio.timeout(20):
                    for part in parts:
                        writer.write(part)
                        await writer.drain()
                        sent += len(part)
                        await asyncio.sleep(0)
                        if server.started and not server.server_state.connections and sent > patience.MAX_HEAD:
                            break
                    answer = await reader.read()
            except ConnectionError:
                answer = b""
            writer.close()
            server.should_exit = server.force_exit = True
            await running
        service.close()
        return answer

    answer = asyncio.run(scenario())
    assert not answer or answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("media", ["application/msgpack", "application/msgpack; v=1"])
def test_packed_bodies_mean_the_same(http, media):
    headers = {"Content-Type": media}
    rows = np.array(ACTIONS, dtype="<f4").tobytes()
    for actions in (rows, ACTIONS):
        body = msgspec.msgpack.encode({"actions": actions, "allowed": [1], "user": "ada"})
        answer = http.post("/v1/decisions", content=body, headers=headers)
        assert answer.status_code == 200
        assert answer.json()["action"] == 1
    assert http.put("/v1/action-sets/a", content=msgspec.msgpack.encode({"actions": rows}), headers=headers).json()
    reward = msgspec.msgpack.encode({"reward": 0.5})
    assert http.post(f"/v1/decisions/{answer.json()['id']}/reward", content=reward, headers=headers).status_code == 200


def test_rows_in_base64_mean_the_same_in_json(http):
    body = {"actions": np.array(ACTIONS, dtype="<f4").tobytes()}
    assert http.post("/v1/decisions", content=msgspec.json.encode(body)).status_code == 200


@pytest.mark.parametrize("value, field", [
    ({"actions": b""}, "actions"), ({"actions": b"1234567"}, "actions"), ({"actions": "abcd"}, "actions"),
    ({"actions": np.array([[2, 0]], dtype="<f4").tobytes()}, "actions"),
    ({"actions": np.array([[np.nan, 0]], dtype="<f4").tobytes()}, "actions"),
    ({"actions": np.array([[np.inf, 0]], dtype="<f4").tobytes()}, "actions"),
    ({"actions": [[float("nan"), 0.0]]}, "actions"), ({"actions": ACTIONS, "x": 1}, "x"), ([], "body"), (None, "body"),
])  # fmt: skip
def test_bad_packed_bodies_are_refused_by_field(http, value, field):
    headers = {"Content-Type": "application/msgpack"}
    answer = http.post("/v1/decisions", content=msgspec.msgpack.encode(value), headers=headers)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


@pytest.mark.parametrize("body", [
    b"", b"\xc1", b"\x81", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
    b"\x91" * 10**6, b"\x81\xa7actions\xdd\xff\xff\xff\xff", b"\x81\xa7actions\xc6\xff\xff\xff\xff",
    b"\x81\xa7actions" + b"\x91" * 10**6,
    b"\x81\xa7actions\x91\xdd\x7f\xff\xff\xff", b"\x81\xa4user\xdb\xff\xff\xff\xff", b"\x81\xc4\x01x\x01", b"{}",
])  # fmt: skip
def test_bombs_in_packed_bodies_are_refused(http, body):
    answer = http.post("/v1/decisions", content=body, headers={"Content-Type": "application/msgpack"})
    assert answer.status_code == 422


def test_a_packed_reward_that_is_no_number_is_refused(http):
    decision = http.post("/v1/decisions", json={"actions": ACTIONS}).json()["id"]
    for value in (float("nan"), float("inf"), "0.5", True, None):
        body = msgspec.msgpack.encode({"reward": value})
        headers = {"Content-Type": "application/msgpack"}
        answer = http.post(f"/v1/decisions/{decision}/reward", content=body, headers=headers)
        assert answer.status_code == 422


def test_the_short_way_asks_for_the_token(service):
    app = create_app(service, TOKEN)
    assert app.at_once(b"/v1/decisions", [], BODY) is None
    with Client(app, "") as http:
        assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 401
