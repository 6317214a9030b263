"""Log lines and requests: one JSON object per line, the id of a request in its answer, its errors and its lines."""

import asyncio
import json
import logging

import httpx
import pytest

from fedbandit.federation.http.app import App
from fedbandit.federation.http.routes import Route
from fedbandit.federation.http.schemas import Health
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.telemetry import logs
from fedbandit.schedule import clock
from tests.federation.harness import federation
from tests.federation.http.client import ACTIONS, TOKEN, Client
from tests.federation.http.test_straight import BODY, request, spoken
from tests.federation.small import small_plan


def test_a_line_is_a_table_with_what_it_says_beside_its_message():
    record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "sync %d done", "args": (3,), "sync": 3})
    line = json.loads(logs.JsonLines(party="a", role="silo").format(record))
    assert (line["message"], line["sync"], line["party"], line["role"], line["level"]) == (
        *("sync 3 done", 3, "a", "silo", "info"),
    )
    assert line["time"].endswith("Z")
    assert "request" not in line


def test_an_error_is_one_line_too():
    try:
        raise ValueError("wrong\nin two lines")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": (ValueError, error, error.__traceback__)})
    line = logs.JsonLines().format(record)
    assert "\n" not in line
    assert "wrong\nin two lines" in json.loads(line)["error"]


@pytest.mark.parametrize("given", [None, b"", b"two words", b"a\r\nb", b"x" * 200, "ü".encode()])
def test_a_name_that_could_spoil_a_header_or_a_line_is_replaced(given):
    first, second = logs.named(given), logs.named(given)
    assert first != second
    assert given != first
    assert first.decode().isascii()


def test_a_request_keeps_its_name_in_the_answer_and_in_errors():
    async def fails() -> Health:
        """Fail."""
        logging.getLogger("inside").warning("about to fail, as %s", logs.REQUEST.get())
        raise RuntimeError("a bug")

    async def fine() -> Health:
        """Work."""
        return Health("ok", "running")

    refused: list[int] = []
    app = App([Route("GET", "/bug", fails), Route("GET", "/ok", fine)], TOKEN, lambda one: refused.append(one.status))
    with Client(app, f"Bearer {TOKEN}") as http:
        named = http.request("GET", "/ok", headers={"X-Request-Id": "visit-17"})
        assert named.headers["x-request-id"] == "visit-17"
        assert http.get("/ok").headers["x-request-id"] != http.get("/ok").headers["x-request-id"]
        missing = http.request("GET", "/nothing", headers={"X-Request-Id": "visit-18"})
        assert (missing.status_code, missing.json()["request"]) == (404, "visit-18")
        with pytest.raises(RuntimeError, match="a bug"):  # the server logs it
            http.get("/bug")
    answer = asyncio.run(_asked(app))
    assert (answer.status_code, answer.json()["request"]) == (500, "visit-19")
    assert refused == [404, 500, 500]


async def _asked(app):
    """The answer, where the error does not come out."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://silo") as http:
        shown = {"Authorization": f"Bearer {TOKEN}", "X-Request-Id": "visit-19"}
        return await http.get("/bug", headers=shown)


def test_lines_of_a_request_that_fails_carry_its_name(http, silo, monkeypatch, caplog):
    def broken(*arguments, **more):
        raise OSError("disk full")

    decision = http.post("/v1/decisions", json={"actions": ACTIONS}).json()["id"]
    monkeypatch.setattr(silo.store, "count", broken)
    lines = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(logs.JsonLines().format(record)))

    handler = Kept()
    logging.getLogger("fedbandit").addHandler(handler)
    try:
        path = f"/v1/decisions/{decision}/reward"
        answer = http.post(path, json={"reward": 0.5}, headers={"X-Request-Id": "visit-20"})
    finally:
        logging.getLogger("fedbandit").removeHandler(handler)
    assert answer.status_code == 503
    assert answer.headers["x-request-id"] == answer.json()["request"] == "visit-20"
    assert any(line.get("request") == "visit-20" and "disk full" in line["message"] for line in lines)
    assert all(line.get("request") in ("visit-20", None) for line in lines)


def test_every_party_says_one_line_per_sync(tmp_path, caplog):
    caplog.set_level(logging.INFO)

    async def scenario():
        async with federation(tmp_path, small_plan()) as running:
            await running.sync(0)
            await running.sync(1)

    asyncio.run(scenario())
    said = [record for record in caplog.records if hasattr(record, "sync")]
    lines = [(record.name.rpartition(".")[2], record.sync, record.silos) for record in said]
    for sync in (0, 1):
        assert lines.count(("agent", sync, 3)) == 3  # one of each silo
        assert lines.count(("keeper", sync, 3)) == 2  # the mixer's and the analyzer's


def test_a_decision_of_the_short_way_has_a_name_too(tmp_path):
    with Silo.open(tmp_path / "s.db", small_plan(schedule=clock(86_400.0), visits="private")) as silo:
        heads: list[bytes] = []
        _, app = spoken(silo, request(), answers=1, heads=heads)
        assert app.straight == [True]
        _, app = spoken(silo, request(BODY, "X-Request-Id: visit-21"), answers=1, heads=heads)
        assert app.straight == [True]
    assert b"x-request-id: " in heads[0]
    assert b"x-request-id: visit-21\r\n" in heads[1]
