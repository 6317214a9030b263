"""The application as an ASGI server sees it, and behind a real server."""

import asyncio
import threading
import time

import httpx
import pytest
import uvicorn

from fedbandit.federation.http.app import create_app
from fedbandit.federation.wire.broker import free_port
from tests.federation.http.client import ACTIONS, TOKEN

HEADERS = [(b"authorization", f"Bearer {TOKEN}".encode())]


def called(app, scope, messages):
    """What the application sends when it receives these messages."""
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


def test_a_caller_who_goes_away_is_not_answered(service):
    scope = {"type": "http", "method": "POST", "path": "/v1/decisions", "headers": HEADERS}
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    assert called(create_app(service, TOKEN), scope, messages) == []


def test_start_and_stop_are_acknowledged(service):
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = called(create_app(service, TOKEN), {"type": "lifespan"}, messages)
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_web_sockets_are_refused(service):
    sent = called(create_app(service, TOKEN), {"type": "websocket", "path": "/v1/decisions"}, [])
    assert sent == [{"type": "websocket.close"}]


@pytest.fixture
def port(service):
    """The port of a real server."""
    number = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(service, TOKEN), port=number, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield number
    server.should_exit = True
    thread.join()


def test_one_connection_survives_refusals(port):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    limits = httpx.Limits(max_connections=1)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, limits=limits) as http:
        for _ in range(3):
            assert http.post("/v1/decisions", content=b"{").status_code == 422
            assert http.post("/nothing", content=b"x" * 100_000).status_code == 404
            assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 200
            assert http.post("/v1/decisions", content=iter([b'{"actions":', b"[[1, 0]]}"])).status_code == 200
            assert http.post("/v1/decisions", content=iter([b"x" * 2**20] * 17)).status_code == 413
            assert http.post("/v1/decisions", headers={"Authorization": "Bearer no"}).status_code == 401
