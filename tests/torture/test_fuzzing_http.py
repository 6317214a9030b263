"""Whatever the body, the path or the token: an HTTP service answers, below 500 and soon."""

import asyncio
import json
import time
from typing import Any, NamedTuple

import msgspec
import pytest

from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.bodies.parsing import PACKED_MEDIA
from fedbandit.federation.http.routes import JSON_MEDIA
from fedbandit.federation.http.service import Service
from fedbandit.federation.silo.serving import Silo
from fedbandit.plan import Plan
from fedbandit.schedule import clock
from tests.federation.small import small_plan
from tests.torture.attacks.mutations import mutated
from tests.torture.test_fuzzing import PLAN, SCHEMA, SLOWEST

pytestmark = pytest.mark.fire
ROWS = small_plan(schedule=clock(3600), visits="private")
RECORDS = small_plan(schema=SCHEMA, apprentice=True, schedule=clock(3600), visits="private")
ACTIONS = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
PERSON = {"age": 41.5, "sex": "m", "code": "J45"}
TWO = [{"id": "one", "features": [{"dose": 3}]}, {"id": "two", "features": [{"dose": {"x": 1}}]}]


class Body(NamedTuple):
    """What is sent where; `{id}` is a decision of the silo's, or an event."""

    plan: Plan
    path: str
    examples: list[Any]
    full: int = 12_000
    media: str = JSON_MEDIA


BODIES = {
    "decisions": Body(
        ROWS, "/v1/decisions", [{"actions": ACTIONS, "user": "alice", "allowed": [0, 2]}, {"action_set": "a"}]
    ),
    "rows as bytes": Body(ROWS, "/v1/decisions", [{"actions": "AACAPwAAAAA="}, {"actions": "", "shared": False}]),
    "a batch": Body(
        ROWS,
        "/v1/decisions/batch",
        [{"decisions": [{"actions": ACTIONS}, {"actions": ACTIONS[:1], "user": "bob"}]}],
    ),
    "a reward": Body(ROWS, "/v1/decisions/{id}/reward", [{"reward": 0.5}, {"reward": 1}]),
    "rewards": Body(
        ROWS, "/v1/rewards", [{"rewards": [{"decision": "{id}", "reward": 0.5}, {"decision": "x", "reward": 1}]}]
    ),
    "an action set": Body(ROWS, "/v1/action-sets/a", [{"actions": ACTIONS}], 2_000),  # each waits for the disk
    "MessagePack": Body(
        ROWS, "/v1/decisions", [{"actions": ACTIONS}, {"actions": bytes(16), "allowed": [1]}], media=PACKED_MEDIA
    ),
    "records": Body(
        RECORDS,
        "/v1/decisions",
        [
            {"context": PERSON, "user": "anna"},
            {"context": PERSON, "actions": ["low", {"id": "high", "features": {"dose": 2}}], "allowed": ["low"]},
            {"context": {}, "chosen": "high", "propensity": 0.25},
        ],
    ),
    "records in MessagePack": Body(RECORDS, "/v1/decisions", [{"context": PERSON}], media=PACKED_MEDIA),
    "ranks": Body(
        RECORDS,
        "/personalizer/v1.0/rank",
        [{"contextFeatures": [PERSON, {"userKey": "anna"}], "actions": TWO, "excludedActions": ["two"]},
         {"contextFeatures": [], "actions": TWO, "eventId": "e", "deferActivation": True}],
        2_000,
    ),
    "an event's reward": Body(RECORDS, "/personalizer/v1.0/events/e/reward", [{"value": 0.5}], 2_000),
}  # fmt: skip


async def ask(app, method, path, body, token=b"Bearer t", media=JSON_MEDIA):
    """One request to the application itself; its status."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", token), (b"content-type", media.encode())]
    await app({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
    assert not sent[1]["body"] or json.loads(sent[1]["body"]) is not None
    return sent[0]["status"]


@pytest.mark.parametrize("name", BODIES)
def test_http_bodies(name, size, tally, tmp_path):
    """In part and in full the same mutations, fewer of them."""
    plan, path, examples, full, media = BODIES[name]
    count, seen, slowest = size(150, full), set(), 0.0
    encode = msgspec.msgpack.encode if media == PACKED_MEDIA else msgspec.json.encode

    async def main():
        nonlocal slowest
        with Silo.open(tmp_path / "silo.db", plan) as silo:
            service = Service(silo)
            app = create_app(service, "t")
            decision = silo.decide(ACTIONS).id if plan is ROWS else "e"
            inputs = mutated([encode(body).replace(b"{id}", decision.encode()) for body in examples], seed=3)
            method = "PUT" if "action-sets" in path else "POST"
            for _ in range(count):
                began = time.thread_time()
                status = await ask(app, method, path.replace("{id}", decision), next(inputs), media=media)
                slowest = max(slowest, time.thread_time() - began)
                assert status < 500
                seen.add(status)
            service.close()

    asyncio.run(main())
    assert seen & {400, 422}
    assert slowest < SLOWEST
    tally("fuzzed inputs", count)


def test_http_paths_and_tokens(size, tally, tmp_path):
    count = size(200, 20_000)

    async def main():
        with Silo.open(tmp_path / "silo.db", PLAN) as silo:
            service = Service(silo)
            app = create_app(service, "t")
            paths = mutated(
                [
                    path.encode()
                    for path in (*(body.path for body in BODIES.values()), "/healthz", "/v1/status", "/metrics")
                ],
                seed=4,
            )
            tokens = mutated([b"Bearer t"], seed=5)
            for _ in range(count):
                path, token = next(paths).decode("latin-1"), next(tokens)
                status = await ask(app, "POST", path, b"{}", token)
                assert status in (401, 404, 405, 422) or token == b"Bearer t"
                assert status < 500
            service.close()

    asyncio.run(main())
    tally("fuzzed inputs", count)
