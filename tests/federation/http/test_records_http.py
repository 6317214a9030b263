"""Decisions for records over HTTP: the same rows, bit for bit, as in Python; odd bodies are never a server's error."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.silo.serving import Silo
from fedbandit.problem import Category, Hashed, Number, Schema
from fedbandit.problem.encoding import RecordEncoder
from tests.federation.http.client import TOKEN, Client
from tests.federation.small import small_plan

SCHEMA = Schema(
    {"age": Number(0, 120, missing=True), "sex": Category(["f", "m"]), "code": Hashed(5)},
    {"dose": Number(0, 10)},
    actions=("low", "medium", "high"),
    interactions=[("age", "action"), ("sex", "dose"), ("code", "action")],
)
PERSON = {"age": 41.7, "sex": "m", "code": "J45"}


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[Silo]:
    plan = small_plan(schema=SCHEMA, apprentice=True)
    with Silo.open(tmp_path / "silo.db", plan, secret=bytes(32)) as opened:
        yield opened


@pytest.fixture
def http(silo: Silo) -> Iterator[Client]:
    service = Service(silo)
    with Client(create_app(service, TOKEN), f"Bearer {TOKEN}") as client:
        yield client
    service.close()


def learnt(silo: Silo) -> list[bytes]:
    return [bytes(features) for features, _ in silo.store.batch(1, 0)]


def test_the_named_actions_of_the_schema(http: Client, silo: Silo) -> None:
    answer = http.post("/v1/decisions", json={"context": PERSON, "user": "anna"})
    assert answer.status_code == 200
    found = answer.json()
    assert found["name"] == SCHEMA.actions[found["action"]]
    assert (found["propensity"], found["model"]) == (1.0, 0)
    assert http.post(f"/v1/decisions/{found['id']}/reward", json={"reward": 1}).status_code == 200
    assert learnt(silo) == [RecordEncoder(SCHEMA).rows(PERSON).rows[found["action"]].tobytes()]


@pytest.mark.parametrize("packed", [False, True])
def test_the_same_bits_as_in_python(http: Client, silo: Silo, packed: bool) -> None:
    dice = random.Random(3)
    drugs = [{"id": name, "features": {"dose": dice.random() * 10}} for name in ("low", "high")]
    for _ in range(5):
        person = {**PERSON, "age": dice.random() * 120}
        body = {"context": person, "actions": drugs, "chosen": "high"}
        content = msgspec.msgpack.encode(body) if packed else json.dumps(body).encode()
        media = {"content-type": "application/msgpack"} if packed else {}
        found = http.post("/v1/decisions", content=content, headers=media).json()
        assert found["name"] == "high"
        assert found["propensity"] is None
        here = silo.decide(drugs, context=person, chosen="high")
        assert silo.ids.read(found["id"]).features == silo.ids.read(here.id).features


def test_what_may_be_left_out_or_excluded(http: Client) -> None:
    only = {"context": PERSON, "allowed": ["medium"]}
    assert http.post("/v1/decisions", json=only).json()["name"] == "medium"
    assert http.post("/v1/decisions", json={**only, "allowed": [0]}).json()["name"] == "low"
    some = {"context": {}, "actions": ["high", {"id": "low"}], "allowed": ["low"]}
    assert http.post("/v1/decisions", json=some).json()["action"] == 1
    own = {"context": PERSON, "chosen": "high", "propensity": 0.25}
    assert http.post("/v1/decisions", json=own).json()["propensity"] == 0.25


def test_rows_are_still_taken(http: Client) -> None:
    rows = RecordEncoder(SCHEMA).rows(PERSON).rows
    found = http.post("/v1/decisions", json={"actions": rows.tolist()}).json()
    assert found["name"] is None
    packed = {"actions": rows.astype(np.float32).tobytes()}
    media = {"content-type": "application/msgpack"}
    assert http.post("/v1/decisions", content=msgspec.msgpack.encode(packed), headers=media).status_code == 200


def test_odd_values_are_counted_for_whoever_runs_the_silo(http: Client) -> None:
    http.post("/v1/decisions", json={"context": {**PERSON, "age": 1000}, "actions": ["low"]})
    page = http.get("/metrics").text
    assert 'fedbandit_odd_values_total{field="age",was="clamped"} 1.0' in page
    assert 'fedbandit_odd_values_total{field="dose",was="missing"} 1.0' in page


def test_a_batch_of_records(http: Client) -> None:
    several = {"decisions": [{"context": PERSON}, {"context": {"age": 3}}]}
    assert len(http.post("/v1/decisions/batch", json=several).json()["decisions"]) == 2
    wrong = {"decisions": [{"context": PERSON}, {"context": {}, "actions": [[0.0]]}]}
    refused = http.post("/v1/decisions/batch", json=wrong)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "decisions.1")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"context": {}, "action_set": "menu"}, "body"),
        ({"context": {}, "actions": [[1.0]]}, "actions.0"),
        ({"context": {}, "actions": []}, "actions"),
        ({"context": {}, "actions": ["low", "low"]}, "actions"),
        ({"context": [], "actions": ["low"]}, "context"),
        ({"context": {}, "actions": [{"id": ""}]}, "actions.0.id"),
        ({"context": {}, "actions": [{"id": "low", "colour": 1}]}, "actions.0.colour"),
        ({"context": {}, "allowed": ["lowest"]}, "allowed"),
        ({"context": {}, "chosen": "lowest"}, "chosen"),
        ({"context": {}, "propensity": 0.5}, "propensity"),
        ({"context": {}, "chosen": "low", "propensity": 0}, "propensity"),
        ({"actions": ["low"]}, "context"),
        ({"actions": [{"id": "low"}]}, "context"),
    ],
)
def test_what_is_wrong_is_named(http: Client, body: dict[str, Any], field: str) -> None:
    answer = http.post("/v1/decisions", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_a_silo_without_a_schema_takes_no_records(tmp_path: Path) -> None:
    with Silo.open(tmp_path / "silo.db", small_plan()) as silo:
        service = Service(silo)
        with Client(create_app(service, TOKEN), f"Bearer {TOKEN}") as http:
            answer = http.post("/v1/decisions", json={"context": {}})
        service.close()
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "context")


# -- odd bodies -------------------------------------------------------------------------------------------------------

FRAGMENTS = (
    *("null", "true", "-0", "1e999", "1e-999", "NaN", '"\\ud800"', '"low"', "[]", "{}", "[[]]", "9" * 400, '""'),
    *('{"id":"low"}', '{"id":"low","features":{"dose":{}}}', '["low","high"]', '{"age":[[[1]]]}', '{"age":1e400}'),
    *('{"":0}', '{"age":' + "[" * 60 + "]" * 60 + "}", '"' + "x" * 300 + '"', "[0,1,2]", "-1", "0.5", '{"sex":"f"}'),
)
KEYS = ("context", "actions", "allowed", "user", "chosen", "propensity", "action_set", "age", "id", "features", "")


def odd_body(dice: random.Random) -> bytes:
    """Fields that there are with values that nobody means, of the request or of its context; every tenth is no JSON."""
    keys = dice.choice((KEYS, (*SCHEMA.context, "", "dose")))
    fields = ",".join(f'"{dice.choice(keys)}":{dice.choice(FRAGMENTS)}' for _ in range(dice.randrange(5)))
    text = "{" + fields + "}" if keys is KEYS else '{"context":{' + fields + "}}"
    body = text.encode(errors="surrogatepass")
    if dice.random() < 0.1:
        cut = dice.randrange(len(body) + 1)
        body = body[:cut] + dice.randbytes(dice.randrange(4)) + body[cut + 1 :]
    return body


def test_ten_thousand_odd_bodies_and_no_server_error(http: Client) -> None:
    dice, statuses = random.Random(16), dict[int, int]()
    for _ in range(10_000):
        body = odd_body(dice)
        status = http.post("/v1/decisions", content=body).status_code
        assert status in (200, 422), body
        statuses[status] = statuses.get(status, 0) + 1
    assert min(statuses.values()) > 500, "both kinds were tried"
