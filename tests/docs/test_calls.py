"""The calls of an application that docs/federation.md shows, and their answers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import fedbandit as fb
from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from tests.docs.pages import DOCS, blocks
from tests.federation.http.client import TOKEN, Client

CALLS = [block for block in blocks(DOCS / "federation.md") if "test_calls" in block.mark]
PLAN = fb.Plan(silos=2, rounds=30, dim=2, privacy=fb.Privacy(1.0, 1e-6), schedule=fb.clock(86_400))


def called(text: str, decision: str, http: Client) -> dict[str, object]:
    """The answer to the line of curl in a block."""
    line = text.replace("\\\n", " ").replace("$TOKEN", TOKEN).replace("$ID", decision).splitlines()[-1]
    name, _, header, address, _, body = shlex.split(line)
    assert (name, header) == ("curl", f"Authorization: Bearer {TOKEN}")
    host, _, path = address.partition("/")
    assert host == "localhost:8080"
    answer: dict[str, object] = http.post(f"/{path}", content=body.encode()).json()
    return answer


def test_the_calls_are_answered_as_the_page_shows(tmp_path: Path) -> None:
    decide, decided, reward, rewarded = (block.text for block in CALLS)
    service = Service(fb.Silo.open(tmp_path / "silo.db", PLAN))
    with Client(create_app(service, TOKEN), f"Bearer {TOKEN}") as http:
        found = called(decide, "", http)
        shown = json.loads(decided)
        assert {**found, "id": "..."} == shown
        assert called(reward, str(found["id"]), http) == json.loads(rewarded)
    service.close()
