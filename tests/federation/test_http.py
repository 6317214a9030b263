"""The HTTP interface: answers, refusals by field, never a 500."""

import asyncio
import json

import numpy as np
import pytest
from fastapi.testclient import TestClient
from small import small_plan

from fedbandit.federation.http import guard
from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.group import GroupCommit, StoreUnavailable
from fedbandit.federation.http.service import Service
from fedbandit.federation.silo import Silo

ACTIONS = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
TOKEN = "test-token"


@pytest.fixture
def silo(tmp_path):
    with Silo.open(tmp_path / "silo.db", small_plan()) as opened:
        yield opened


@pytest.fixture
def service(silo):
    return Service(silo)


@pytest.fixture
def http(service):
    with TestClient(create_app(service, TOKEN), headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


def decide(http, **changes):
    return http.post("/v1/decisions", json={"actions": ACTIONS} | changes)


def reward(http, decision, value=0.5):
    return http.post(f"/v1/decisions/{decision}/reward", json={"reward": value})


def fields(answer):
    return {problem["field"] for problem in answer.json()["errors"]}


def test_decide_and_reward(http):
    answer = decide(http, user="alice").json()
    assert answer["action"] in range(3)
    assert answer["model"] == 0
    assert reward(http, answer["id"]).json() == {"counted": True, "batch": 0, "repeated": False}
    assert reward(http, answer["id"]).json()["repeated"]
    again = decide(http, user="alice").json()
    assert reward(http, again["id"]).json()["counted"] is False


def test_registered_sets_and_subsets(http):
    assert http.put("/v1/action-sets/drugs", json={"actions": ACTIONS}).json() == {"action_sets": {"drugs": 3}}
    assert http.get("/v1/action-sets").json() == {"action_sets": {"drugs": 3}}
    answer = http.post("/v1/decisions", json={"action_set": "drugs", "allowed": [2]})
    assert answer.json()["action"] == 2
    assert http.put("/v1/action-sets/drugs", json={"actions": ACTIONS[:1]}).status_code == 422
    unknown = http.post("/v1/decisions", json={"action_set": "cars"})
    assert (unknown.status_code, fields(unknown)) == (422, {"action_set"})


def test_batches(http):
    answer = http.post("/v1/decisions/batch", json={"decisions": [{"actions": ACTIONS}, {"actions": ACTIONS[:1]}]})
    ids = [one["id"] for one in answer.json()["decisions"]]
    rewards = [{"decision": one, "reward": value} for one, value in ((ids[0], 1.0), ("x", 1.0), (ids[0], 0.0))]
    results = http.post("/v1/rewards", json={"rewards": rewards}).json()["rewards"]
    assert [result["status"] for result in results] == [200, 404, 409]
    assert results[0]["answer"]["counted"]
    wrong = http.post("/v1/decisions/batch", json={"decisions": [{"actions": ACTIONS}, {"actions": [[2.0, 0.0]]}]})
    assert (wrong.status_code, fields(wrong)) == (422, {"decisions.1"})


@pytest.mark.parametrize("body, field", [
    ({"actions": [[1.0, 0.0, 0.0]]}, "actions"), ({"actions": []}, "actions"), ({"actions": [[]]}, "actions"),
    ({"actions": [[1.0, 0.0], [1.0]]}, "actions"), ({"actions": [[5.0, 0.0]]}, "actions"),
    ({"actions": [["1.0", 0.0]]}, "actions.0.0"), ({"actions": "x"}, "actions"),
    ({"actions": [[1e400, 0.0]]}, "actions.0.0"),
    ({"actions": ACTIONS, "allowed": [7]}, "allowed"), ({"actions": ACTIONS, "allowed": []}, "allowed"),
    ({"actions": ACTIONS, "allowed": [0.5]}, "allowed.0"), ({"actions": ACTIONS, "user": ""}, "user"),
    ({"actions": ACTIONS, "user": "x" * 300}, "user"), ({"actions": ACTIONS, "user": 5}, "user"),
    ({"actions": ACTIONS, "colour": "red"}, "colour"), ({}, "body"), ({"actions": ACTIONS, "action_set": "a"}, "body"),
    ({"action_set": "a b"}, "action_set"), ([], "body"), ("x", "body"), (None, "body"),
])  # fmt: skip
def test_bad_decisions_are_refused_by_field(http, body, field):
    answer = http.post("/v1/decisions", content=json.dumps(body))
    assert answer.status_code == 422
    assert field in fields(answer)


BAD_JSON = [b"", b"{", b'{"actions": [[NaN, 0]]}', b"\xff\xfe", b'{"actions": [[1,0]], "user": "\\ud800"}']


@pytest.mark.parametrize("body", BAD_JSON)
def test_bad_json_is_refused(http, body):
    assert http.post("/v1/decisions", content=body).status_code == 422


@pytest.mark.parametrize("value", [-0.1, 1.5, "0.5", None, True, [1]])
def test_bad_rewards_are_refused(http, value):
    answer = reward(http, decide(http).json()["id"], value)
    assert (answer.status_code, fields(answer)) == (422, {"reward"})


@pytest.mark.parametrize("decision", ["unknown", "%00", "%F0%9F%92%A9", "a" * 3000])
def test_unknown_decisions(http, decision):
    answer = reward(http, decision)
    assert (answer.status_code, fields(answer)) == (404, {"decision"})


def test_a_second_reward_conflicts(http):
    decision = decide(http).json()["id"]
    reward(http, decision, 0.5)
    answer = reward(http, decision, 0.6)
    assert (answer.status_code, fields(answer)) == (409, {"reward"})


def test_after_the_term_rewards_are_gone_and_health_says_so(http, silo):
    late = decide(http).json()["id"]
    assert http.get("/healthz").json() == {"status": "ok", "term": "running"}
    for _ in range(20):
        decide(http)
    assert silo.tick() == [0, 1, 2, 3]
    assert reward(http, late).status_code == 410
    assert http.get("/healthz").json()["term"] == "ended"
    assert decide(http).status_code == 200


@pytest.mark.parametrize("shown", ["", "Bearer wrong", TOKEN, "Basic x"])
def test_a_token_is_required(service, shown):
    with TestClient(create_app(service, TOKEN), headers={"Authorization": shown}) as http:
        for path in ("/v1/model", "/v1/action-sets", "/metrics", "/v1/status"):
            answer = http.get(path)
            assert (answer.status_code, fields(answer)) == (401, {"authorization"})
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200


def test_a_body_that_is_too_large_is_refused(http, monkeypatch):
    monkeypatch.setattr(guard, "MAX_BODY", 1000)
    answer = http.post("/v1/decisions", content=b"x" * 1001)
    assert (answer.status_code, fields(answer)) == (413, {"body"})

    def chunks():
        for _ in range(20):
            yield b"x" * 100

    assert http.post("/v1/decisions", content=chunks()).status_code == 413


def test_unknown_paths_and_methods(http):
    assert http.get("/v1/nothing").status_code == 404
    assert http.delete("/v1/decisions").status_code == 405


def test_model_status_metrics(http, silo):
    decision = decide(http).json()["id"]
    reward(http, decision)
    model = http.get("/v1/model").json()
    assert (model["version"], model["dim"], len(model["theta"])) == (0, 2, 2)
    assert http.get("/v1/status").json()["decisions"] == 1
    metrics = http.get("/metrics").text
    assert "fedbandit_decisions_total 1.0" in metrics
    assert 'fedbandit_rewards_total{became="new"} 1.0' in metrics


def test_readiness_tells_of_problems(http, service, monkeypatch):
    assert http.get("/readyz").json() == {"ready": True, "connected": False, "problem": None}
    service.problem = lambda: "the clock jumped"
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["problem"]) == (503, "the clock jumped")


def test_a_store_that_fails_is_a_503_and_nothing_is_acknowledged(http, silo, monkeypatch):
    decision = decide(http).json()["id"]

    def broken(*arguments, **more):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(silo.store, "count", broken)
        assert reward(http, decision).status_code == 503
    assert reward(http, decision).json() == {"counted": True, "batch": 0, "repeated": False}


def test_group_commit_puts_what_waits_into_one_transaction(silo, monkeypatch):
    sizes, count = [], silo.store.count

    def counting(term, rewards, *arguments, **more):
        sizes.append(len(rewards))
        return count(term, rewards, *arguments, **more)

    monkeypatch.setattr(silo.store, "count", counting)

    async def main():
        group = GroupCommit(silo)
        rewards = [silo.read(silo.decide(np.array(ACTIONS)).id, 0.5) for _ in range(50)]
        verdicts = await asyncio.gather(*(group.put([one]) for one in rewards))
        group.close()
        return verdicts

    verdicts = asyncio.run(main())
    assert all(not verdict.repeated for (verdict,) in verdicts)
    assert sum(sizes) == 50
    assert len(sizes) <= 3
    assert len(silo.store.batch(1, 0)) == 50


def test_every_waiting_caller_is_told_of_a_failure(silo, monkeypatch):
    monkeypatch.setattr(silo.store, "count", lambda *a, **k: 1 / 0)

    async def main():
        group = GroupCommit(silo)
        one = silo.read(silo.decide(np.array(ACTIONS)).id, 0.5)
        found = await asyncio.gather(group.put([one]), group.put([one]), return_exceptions=True)
        group.close()
        return found

    assert all(isinstance(error, StoreUnavailable) for error in asyncio.run(main()))


def test_the_description_covers_every_path(http):
    description = http.get("/openapi.json").json()
    assert set(description["paths"]) == {
        "/v1/decisions", "/v1/decisions/batch", "/v1/decisions/{decision}/reward", "/v1/rewards",
        "/v1/action-sets/{name}", "/v1/action-sets", "/v1/model", "/v1/status", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    text = json.dumps(description)
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in description["components"]["schemas"]
