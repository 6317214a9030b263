"""The server of pages on this machine: who is answered, with which headers, and what is not served."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.look import page_files
from fedbandit.web.server import Calls, EventStream, PageServer, Reply, Visit, as_json
from tests.web.conftest import running


def fails(visit: Visit) -> Reply:
    if "argument" in visit.query:
        raise ArgumentError("silos", "must be at least 1, got 0")
    raise RuntimeError("a bug")


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    calls: Calls = {
        "/api/said": lambda visit: as_json(dict(visit.query)),
        "/api/fails": fails,
        "/api/stream": lambda visit: EventStream(iter([{"n": 1}, {"n": 2}])),
    }
    with running(PageServer("127.0.0.1", 0, "planner.html", calls)) as made:
        yield made


def get(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A request as it is written, whatever the path."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/assets/style.css", "/assets/planner.js", "/assets/colours.css", "/api/said"])
def test_every_answer_has_a_strict_policy(server: PageServer, path: str) -> None:
    status, headers, body = get(server, path)
    policy = headers["content-security-policy"]
    assert status == 200
    assert body
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:{port}", "localhost", ""])
def test_a_foreign_host_is_refused(server: PageServer, host: str) -> None:
    """Otherwise a page elsewhere could have its name mean this machine, and read what is here."""
    assert get(server, "/", host=host.format(port=server.server_address[1]))[0] == 421


def test_its_own_names_are_answered(server: PageServer) -> None:
    port = server.server_address[1]
    assert {get(server, "/", host=f"{name}:{port}")[0] for name in ("127.0.0.1", "localhost", "LOCALHOST")} == {200}


def test_requests_of_other_sites_are_refused(server: PageServer) -> None:
    assert get(server, "/api/said", sec_fetch_site="cross-site")[0] == 403
    assert get(server, "/api/said", sec_fetch_site="same-origin")[0] == 200


@pytest.mark.parametrize(
    "path", ["/assets/../server.py", "/assets/%2e%2e/server.py", "/assets//etc/passwd", "/nowhere", "/assets/x.css"]
)
def test_nothing_else_is_served(server: PageServer, path: str) -> None:
    assert get(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_only_reads(server: PageServer, method: str) -> None:
    assert get(server, "/", method)[0] == 501


def test_what_was_wrong_is_told_and_a_bug_is_not(server: PageServer) -> None:
    status, _, body = get(server, "/api/fails?argument=1")
    assert (status, body) == (422, b'{"errors":[{"field":"silos","message":"must be at least 1, got 0"}]}')
    status, _, body = get(server, "/api/fails")
    assert status == 500
    assert b"a bug" not in body
    assert get(server, "/" + "x" * 5000)[0] == 414


def test_a_head_has_no_body_and_a_stream_has_events(server: PageServer) -> None:
    status, headers, body = get(server, "/", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 500
    _, headers, body = get(server, "/api/stream")
    assert headers["content-type"] == "text/event-stream"
    assert body == b'data: {"n": 1}\n\ndata: {"n": 2}\n\n'


def test_no_file_of_the_pages_names_another_host_or_runs_anything_inline() -> None:
    from importlib.resources import files

    names = [one.name for one in (files("fedbandit") / "web" / "static").iterdir()]
    assert {"planner.html", "operations.html", "chart.js", "style.css"} <= set(names)
    for name in names:
        found = page_files.asset(name)
        assert found is not None, name
        text = found.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, name
        assert "https://" not in text, name
        assert "innerHTML" not in text, name
        for inline in ("style=", "<script>", "onclick", "javascript:", "eval("):
            assert inline not in text, (name, inline)


def test_streams_are_closed_when_the_reader_leaves() -> None:
    closed: list[bool] = []

    def events() -> Iterator[dict[str, Any]]:
        try:
            while True:
                yield {"text": "x" * 10_000}
        finally:
            closed.append(True)

    with running(
        PageServer("127.0.0.1", 0, "planner.html", {"/api/stream": lambda visit: EventStream(events())})
    ) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        connection.request("GET", "/api/stream")
        connection.getresponse().read(100)
        connection.close()
        _until(lambda: closed == [True])


def _until(holds: Any, seconds: float = 10.0) -> None:
    import time

    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
