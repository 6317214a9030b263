"""Applications written for Azure Personalizer, with its published client, against a silo over a real connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from fedbandit.bandit.policies import Policy
from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.process import SERVER
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.events import EventStore
from fedbandit.problem import Category, Number, Schema
from fedbandit.problem.encoding import ActionRecord, RecordEncoder
from tests.federation.http.client import TOKEN, Client
from tests.federation.small import small_plan

personalizer = pytest.importorskip("azure.cognitiveservices.personalizer")
models = pytest.importorskip("azure.cognitiveservices.personalizer.models")
authentication = pytest.importorskip("msrest.authentication")
exceptions = pytest.importorskip("msrest.exceptions")

# The menu of the client's own examples.
SCHEMA = Schema(
    {"timeOfDay": Category(["morning", "afternoon", "evening"]), "taste": Category(["salty", "sweet"])},
    {
        "spiceLevel": Category(["none", "medium", "high"]),
        "nutritionLevel": Number(0, 10),
        "nutritionalInfo.calories": Number(0, 2000, missing=True),
    },
    interactions=[("timeOfDay", "spiceLevel"), ("taste", "nutritionLevel")],
)
CONTEXT = [{"timeOfDay": "morning"}, {"taste": "salty", "userKey": "anna"}]


def menu() -> list[Any]:
    return [
        models.RankableAction(id="pasta", features=[{"spiceLevel": "medium"}, {"nutritionLevel": 5}]),
        models.RankableAction(id="ice cream", features=[{"spiceLevel": "none", "nutritionalInfo": {"calories": 900}}]),
        models.RankableAction(id="salad", features=[{"spiceLevel": "none"}, {"nutritionLevel": 9}]),
    ]


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[Silo]:
    plan = small_plan(schema=SCHEMA, policy=Policy("thompson", floor=0.3))
    with Silo.open(tmp_path / "silo.db", plan, secret=bytes(32)) as opened:
        yield opened


@pytest.fixture
def endpoint(silo: Silo) -> Iterator[str]:
    service = Service(silo)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(service, TOKEN), log_level="warning", **SERVER)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    service.close()


def client_of(endpoint: str, key: str = TOKEN) -> Any:
    credentials = authentication.CognitiveServicesCredentials(key)
    return personalizer.PersonalizerClient(endpoint=endpoint, credentials=credentials)


def counted(silo: Silo) -> list[tuple[bytes, float]]:
    return [(bytes(features), reward) for features, reward in silo.store.batch(1, 0)]


def test_an_application_of_personalizer_works_after_its_endpoint_and_key_are_changed(endpoint: str, silo: Silo) -> None:
    client = client_of(endpoint)
    request = models.RankRequest(actions=menu(), context_features=CONTEXT, excluded_actions=[], event_id="visit 1 é")
    response = client.rank(rank_request=request)
    assert response.event_id == "visit 1 é"
    assert response.ranking[0].id == response.reward_action_id
    assert sorted(one.id for one in response.ranking) == ["ice cream", "pasta", "salad"]
    assert sum(one.probability for one in response.ranking) == pytest.approx(1)
    assert min(one.probability for one in response.ranking) >= 0.1 - 1e-12, "the floor"
    client.events.reward(event_id=response.event_id, value=0.8)
    ((features, reward),) = counted(silo)
    assert reward == 0.8
    records = [
        ActionRecord("pasta", {"spiceLevel": "medium", "nutritionLevel": 5}),
        ActionRecord("ice cream", {"spiceLevel": "none", "nutritionalInfo.calories": 900}),
        ActionRecord("salad", {"spiceLevel": "none", "nutritionLevel": 9}),
    ]
    rows = RecordEncoder(SCHEMA).rows({"timeOfDay": "morning", "taste": "salty"}, records).rows
    chosen = [one.id for one in records].index(response.reward_action_id)
    assert features == rows[chosen].tobytes()
    assert silo.status()["without_user_key"] == 0


@pytest.mark.parametrize("key, times", [("x", 1), (5, 1), (5.5, 1), (None, 3)])
def test_a_person_is_recognised_by_their_key(endpoint: str, silo: Silo, key: Any, times: int) -> None:
    """A number was taken for no key: nobody was over the cap."""
    client = client_of(endpoint)
    for number in range(3):
        context = [{"taste": "salty", "userKey": key}]
        client.rank(models.RankRequest(actions=menu(), context_features=context, event_id=f"event {number}"))
        client.events.reward(event_id=f"event {number}", value=1.0)
    assert len(counted(silo)) == times
    assert silo.status()["without_user_key"] == (3 if key is None else 0)


@pytest.mark.parametrize("key", [["z"], {"id": "z"}, ""])
def test_a_key_that_is_none_is_refused(endpoint: str, key: Any) -> None:
    context = [{"taste": "salty", "userKey": key}]
    with pytest.raises(models.ErrorResponseException, match="userKey") as refused:
        client_of(endpoint).rank(models.RankRequest(actions=menu(), context_features=context))
    assert refused.value.response.status_code == 400  # not 503: nobody shall try again


def test_an_event_without_an_id_is_given_one(endpoint: str, silo: Silo) -> None:
    client = client_of(endpoint)
    response = client.rank(models.RankRequest(actions=menu()))
    assert response.event_id
    client.events.reward(response.event_id, 1.0)
    client.events.reward(response.event_id, 0.0)  # the first stays, and nobody complains
    assert [reward for _, reward in counted(silo)] == [1.0]


def test_excluded_actions_keep_their_places_and_are_never_chosen(endpoint: str) -> None:
    client = client_of(endpoint)
    for _ in range(20):
        request = models.RankRequest(actions=menu(), context_features=CONTEXT, excluded_actions=["pasta"])
        response = client.rank(request)
        assert response.reward_action_id != "pasta"
        assert (response.ranking[0].id, response.ranking[0].probability) == ("pasta", 0.0)
        assert response.ranking[1].id == response.reward_action_id


def test_a_deferred_event_counts_once_it_is_activated(endpoint: str, silo: Silo) -> None:
    client = client_of(endpoint)
    for event in ("seen", "unseen", "late"):
        client.rank(models.RankRequest(actions=menu(), event_id=event, defer_activation=True))
    client.events.reward("seen", 0.25)
    client.events.reward("seen", 0.75)
    client.events.reward("unseen", 1.0)
    assert counted(silo) == []
    client.events.activate("seen")
    client.events.activate("seen")
    client.events.activate("late")
    client.events.reward("late", 0.5)
    assert [reward for _, reward in counted(silo)] == [0.25, 0.5]


def test_what_is_refused_is_told_as_the_client_expects(endpoint: str) -> None:
    client = client_of(endpoint)
    with pytest.raises(models.ErrorResponseException) as error:
        client.rank(models.RankRequest(actions=menu(), excluded_actions=["pasta", "ice cream", "salad"]))
    assert error.value.error.error.code == "BadRequest"
    assert "allowed" in error.value.error.error.message
    with pytest.raises(models.ErrorResponseException):
        client.rank(models.RankRequest(actions=[*menu(), *menu()]))
    for call in (lambda: client.events.reward("never", 1.0), lambda: client.events.activate("never")):
        with pytest.raises(exceptions.HttpOperationError) as unknown:
            call()
        assert unknown.value.response.status_code == 404
    client.rank(models.RankRequest(actions=menu(), event_id="e"))
    with pytest.raises(exceptions.HttpOperationError) as beyond:
        client.events.reward("e", -1.0)
    assert beyond.value.response.status_code == 422
    with pytest.raises(models.ErrorResponseException) as stranger:
        client_of(endpoint, "another key").rank(models.RankRequest(actions=menu()))
    assert stranger.value.response.status_code == 401


def test_an_event_is_known_after_a_restart(tmp_path: Path) -> None:
    plan = small_plan(schema=SCHEMA)
    with Silo.open(tmp_path / "silo.db", plan, secret=bytes(32)) as silo:
        asked = {"actions": [{"id": "pasta"}], "eventId": "e", "deferActivation": True, "unheardOf": 1}
        assert post(silo, "rank", asked).status_code == 201
        assert post(silo, "events/e/reward", {"value": 0.5}).status_code == 204
    with Silo.open(tmp_path / "silo.db", plan, secret=bytes(32)) as silo:
        answer = post(silo, "events/e/activate", None)
        assert (answer.status_code, answer.content) == (204, b"")
        assert [reward for _, reward in counted(silo)] == [0.5]


def post(silo: Silo, path: str, body: Any) -> Any:
    service = Service(silo)
    with Client(create_app(service, TOKEN), f"Bearer {TOKEN}") as http:
        answer = http.post(f"/personalizer/v1.0/{path}", json=body)
    service.close()
    return answer


def test_old_events_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbandit.federation.store.events.TIDY", 1)
    with Silo.open(tmp_path / "silo.db", small_plan(schema=SCHEMA), secret=bytes(32)) as silo:
        events = EventStore(silo.store.engine, 1, window=100.0)
        events.put("old", "sealed", True, now=0.0)
        events.put("new", "sealed", True, now=101.0)
        assert events.hold("old", 0.5) is None
        assert events.activate("old") is None
        assert events.hold("new", 0.5) == ("sealed", True, None)
        events.done("new", "sealed")
        assert events.hold("new", 0.5) == ("", True, None)
        EventStore(silo.store.engine, 2, window=100.0)
        assert events.hold("new", 0.5) is None, "a new term knows nothing of the last one's"


def test_a_decision_that_takes_the_id_of_another_still_waits_for_its_reward(tmp_path: Path) -> None:
    """It was made while the reward of the other one was being counted, and its own reward was not."""
    with Silo.open(tmp_path / "silo.db", small_plan(schema=SCHEMA), secret=bytes(32)) as silo:
        events = EventStore(silo.store.engine, 1, window=100.0)
        events.put("event", "first", True, now=0.0)
        events.put("event", "second", True, now=1.0)
        events.done("event", "first")
        assert events.hold("event", 0.5) == ("second", True, None)


@pytest.mark.parametrize("features", [None, [], {}, [{}], [{"a": {"b": {"c": 1}}}], {"taste": ["salty"]}])
def test_features_of_any_shape(tmp_path: Path, features: Any) -> None:
    with Silo.open(tmp_path / "silo.db", small_plan(schema=SCHEMA), secret=bytes(32)) as silo:
        body = {"contextFeatures": features, "actions": [{"id": "a", "features": features}]}
        assert post(silo, "rank", body).status_code == 201


def test_without_a_schema_it_is_not_served(tmp_path: Path) -> None:
    with Silo.open(tmp_path / "silo.db", small_plan(), secret=bytes(32)) as silo:
        assert post(silo, "rank", {"actions": [{"id": "a"}]}).status_code == 404


def test_it_is_described(tmp_path: Path) -> None:
    with Silo.open(tmp_path / "silo.db", small_plan(schema=SCHEMA), secret=bytes(32)) as silo:
        service = Service(silo)
        with Client(create_app(service, TOKEN), f"Bearer {TOKEN}") as http:
            description = http.get("/openapi.json").json()
        service.close()
    rank = description["paths"]["/personalizer/v1.0/rank"]["post"]["responses"]
    assert rank["201"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/RankResponse"}
    assert rank["422"]["content"]["application/json"]["schema"]["$ref"].endswith("PersonalizerProblems")
    assert (
        "content" not in description["paths"]["/personalizer/v1.0/events/{event_id}/reward"]["post"]["responses"]["204"]
    )


def test_how_often_actions_come_is_what_is_said(silo: Silo) -> None:
    """The probabilities of a ranking are those of the policy."""
    actions = [ActionRecord(name, {"spiceLevel": name}) for name in ("none", "medium", "high")]
    decision, likely = silo.rank(actions, context={"timeOfDay": "morning"})
    assert decision.propensity == likely[decision.action]
    assert np.sum(likely) == pytest.approx(1)
