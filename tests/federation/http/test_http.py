"""The HTTP interface: answers, refusals by field, never a 500."""

import json
import sqlite3
import threading

import pytest

from fedbandit.federation.http import app as application
from fedbandit.federation.http.app import create_app
from tests.federation.http.client import ACTIONS, TOKEN, Client


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


def test_whoever_opts_out_is_served_and_never_counted(http):
    http.put("/v1/action-sets/drugs", json={"actions": ACTIONS})
    first = decide(http, user="bob", shared=False).json()
    assert reward(http, first["id"], 1.0).json() == {"counted": False, "batch": 0, "repeated": False}
    for asked in ({"actions": ACTIONS}, {"action_set": "drugs"}):
        for shared in (True, False):
            answer = http.post("/v1/decisions", json={**asked, "user": "bob", "shared": shared}).json()
            assert answer["action"] in range(3)
            assert reward(http, answer["id"]).json()["counted"] is False
    batch = [{"actions": ACTIONS, "shared": False}, {"actions": ACTIONS}]
    made = http.post("/v1/decisions/batch", json={"decisions": batch}).json()["decisions"]
    assert [reward(http, one["id"]).json()["counted"] for one in made] == [False, True]
    status = http.get("/v1/status").json()
    assert (status["opted_out"], status["over_cap"]) == (4, 2)
    wrong = decide(http, shared="no")
    assert (wrong.status_code, fields(wrong)) == (422, {"shared"})


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


@pytest.mark.parametrize("body", [
    b"", b" ", b"{", b"\xff\xfe", b"\xef\xbb\xbf{}", b"a=1&b=2", b'{"actions": [[1,0]]} x', b'{"actions": [[01,0]]}',
    b'{"actions": [[NaN, 0]]}', b'{"actions": [[Infinity, 0]]}', b'{"actions": [[-Infinity, 0]]}',
    b'{"actions": [[1,0]], "user": "\xff"}', b'{"actions": [[1,0]], "user": "\\ud800"}',
    b'{"actions": [[1,0]], "user": "\\udc00"}', b'{"actions": [[1,0]], "user": "\\ud800x"}', b"[" * 10**6,
])  # fmt: skip
def test_bad_json_is_refused(http, body):
    answer = http.post("/v1/decisions", content=body)
    assert (answer.status_code, fields(answer)) == (422, {"body"})


@pytest.mark.parametrize("body, field", [
    (b'{"actions": [[1e400, 0]]}', "actions.0.0"), (b'{"actions": [[1%s, 0]]}' % (b"0" * 400), "actions.0.0"),
    (b'{"actions": [[true, 0]]}', "actions.0.0"), (b'{"actions": %s' % (b"[" * 10**5), "actions.0.0"),
    (b'{"actions": [[1, 0]], "allowed": [1%s]}' % (b"0" * 30), "allowed.0"),
    (b'{"actions": [[1, 0]], "allowed": [1%s]}' % (b"0" * 5000), "allowed.0"),
    (b'{"actions": [[1, 0]], "allowed": [-1]}', "allowed.0"),
    (b'{"actions": [[1, 0]], "x": %s' % (b"[" * 10**5), "x"), (b'{"x.y`[0]": 1}', "x.y`[0]"), (b'{"": 1}', "body"),
    (b'{"decisions": [{"actions": [[1, 0]]}, {"actions": [[1, 0]], "x": 1}]}', "decisions"),
])  # fmt: skip
def test_numbers_out_of_range_and_deep_nesting_are_refused_by_field(http, body, field):
    answer = http.post("/v1/decisions", content=body)
    assert (answer.status_code, fields(answer)) == (422, {field})


@pytest.mark.parametrize("decisions, field", [
    ([], "decisions"), ([{}], "decisions.0"), ([{"actions": ACTIONS, "x": 1}], "decisions.0.x"),
    ([{"actions": ACTIONS}, {"actions": [[1.0, "0"]]}], "decisions.1.actions.0.1"),
    ([{"actions": ACTIONS}, {"action_set": "cars"}], "decisions.1"),
    ([{"actions": ACTIONS}, {"actions": ACTIONS, "allowed": [3]}], "decisions.1"),
    ([{"actions": ACTIONS}] * 1001, "decisions"),
])  # fmt: skip
def test_bad_batches_are_refused_by_field(http, decisions, field):
    answer = http.post("/v1/decisions/batch", json={"decisions": decisions})
    assert (answer.status_code, fields(answer)) == (422, {field})


def test_what_is_shown_of_a_request_is_short(http):
    answer = http.post("/v1/decisions", json={"x" * 10**6: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 1000


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_the_body_is_json_whatever_its_content_type_says(http, content_type):
    body = json.dumps({"actions": ACTIONS})
    assert http.post("/v1/decisions", content=body, headers={"Content-Type": content_type}).status_code == 200


def test_a_body_may_come_in_chunks(http):
    async def chunks():
        for byte in json.dumps({"actions": ACTIONS}).encode():
            yield bytes([byte])
            yield b""

    assert http.post("/v1/decisions", content=chunks()).status_code == 200


@pytest.mark.parametrize("name", ["a b", "a%0A", "%F0%9F%92%A9", "a" * 41])
def test_bad_names_of_action_sets_are_refused(http, name):
    answer = http.put(f"/v1/action-sets/{name}", json={"actions": ACTIONS})
    assert (answer.status_code, fields(answer)) == (422, {"name"})


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
    with Client(create_app(service, TOKEN), shown) as http:
        for path in ("/v1/model", "/v1/action-sets", "/metrics", "/v1/status"):
            answer = http.get(path)
            assert (answer.status_code, fields(answer)) == (401, {"authorization"})
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200


def test_a_body_that_is_too_large_is_refused(http, monkeypatch):
    monkeypatch.setattr(application, "MAX_BODY", 1000)
    answer = http.post("/v1/decisions", content=b"x" * 1001)
    assert (answer.status_code, fields(answer)) == (413, {"body"})

    async def chunks():
        for _ in range(20):
            yield b"x" * 100

    assert http.post("/v1/decisions", content=chunks()).status_code == 413


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "x", ""])
def test_a_length_that_cannot_be_is_refused(http, length):
    assert http.post("/v1/decisions", content=b"{}", headers={"Content-Length": length}).status_code == 413


def test_unknown_paths_and_methods(http):
    assert http.get("/v1/nothing").status_code == 404
    answer = http.request("DELETE", "/v1/decisions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert http.get("/v1/decisions/x/y/reward").status_code == 404


def test_model_status_metrics(http, silo):
    decision = decide(http).json()["id"]
    reward(http, decision)
    model = http.get("/v1/model").json()
    assert (model["version"], model["dim"], len(model["theta"])) == (0, 2, 2)
    assert http.get("/v1/status").json()["decisions"] == 1
    metrics = http.get("/metrics").text
    assert "fedbandit_decisions_total 1.0" in metrics
    assert 'fedbandit_rewards_total{became="new"} 1.0' in metrics
    assert "fedbandit_syncs 4.0" in metrics
    assert "fedbandit_missed_syncs 0.0" in metrics


def test_readiness_tells_of_problems(http, link):
    assert http.get("/readyz").json() == {"ready": True, "connected": False, "problem": None, "problems": {}}
    link.connected = True
    assert http.get("/readyz").json()["connected"]
    link.troubles = {"others": "not asked yet", "clock": "the clock jumped"}
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["problem"]) == (503, "the clock jumped")
    assert answer.json()["problems"] == link.troubles


def test_a_store_that_fails_is_a_503_and_nothing_is_acknowledged(http, silo, monkeypatch):
    decision = decide(http).json()["id"]

    def broken(*arguments, **more):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(silo.store, "count", broken)
        assert reward(http, decision).status_code == 503
    assert reward(http, decision).json() == {"counted": True, "batch": 0, "repeated": False}


def test_a_store_that_cannot_be_read_is_a_503_and_a_metric(http, silo, monkeypatch):
    assert "fedbandit_store_works 1.0" in http.get("/metrics").text
    monkeypatch.setattr(silo.store, "releases", _broken)
    assert http.get("/v1/status").status_code == 503
    page = http.get("/metrics").text
    assert "fedbandit_store_works 0.0" in page
    assert 'fedbandit_problem{kind="store"} 1.0' in page
    assert "fedbandit_decisions_total" in page


def test_an_unknown_action_set_is_looked_up_beside_the_event_loop(http, silo, monkeypatch):
    threads, read = [], silo.store.action_sets

    def reading():
        threads.append(threading.current_thread())
        return read()

    monkeypatch.setattr(silo.store, "action_sets", reading)
    assert http.post("/v1/decisions", json={"action_set": "cars"}).status_code == 422
    assert threads
    assert threading.main_thread() not in threads
    monkeypatch.setattr(silo.store, "action_sets", _broken)
    assert http.post("/v1/decisions", json={"action_set": "cars"}).status_code == 503


def _broken(*arguments, **more):
    raise sqlite3.OperationalError("disk I/O error")
