"""What the planner's page is told: the same as `plan --best` says, in the consortium's terms; and what is played."""

from __future__ import annotations

import json
import socket
import time
import tomllib
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.planner.best import proposed, recommended
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.in_words import sentences
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic
from fedbandit.web.planner import playing
from fedbandit.web.planner.answer import advised, answer, budgets
from fedbandit.web.planner.asked import DEFAULTS, consortium_of
from fedbandit.web.planner.copies import as_python, as_toml, chosen
from fedbandit.web.planner.pictures import matrix, sight
from fedbandit.web.planner.playing import plays
from fedbandit.web.server import PageServer

SMALL = "silos=20&people_per_day=10&days=60&dim=5&epsilon=8"
ASKED = {"silos": "20", "people_per_day": "10", "days": "60", "dim": "5", "epsilon": "8"}


def read(server: PageServer, path: str) -> Any:
    with urllib.request.urlopen(f"{server.url}{path}", timeout=60) as found:
        body = found.read()
    return json.loads(body) if body.startswith((b"{", b"[")) else body.decode()


def test_the_page_says_what_the_command_says(planner: PageServer) -> None:
    told, advice = read(planner, f"api/refined?{SMALL}"), recommended(consortium_of(ASKED))
    assert told["sentences"] == sentences(advice)
    assert told["name"] == advice.name == "secure-sum"
    assert (told["break_even_day"], told["paid_back_day"]) == (advice.break_even_day, advice.paid_back_day)
    assert [one["name"] for one in told["plans"]] == [one.name for one in advice.options]
    best = advice.options[0]
    assert best.plan is not None
    assert told["plans"][0]["noise"] == best.plan.noise_std
    assert told["plans"][0]["bytes"] == best.plan.bytes_per_silo
    assert told["plans"][0]["guarantee"] == best.plan.guarantee.statement
    assert told["impossible"] == {one.name: one.reason for one in advice.impossible}
    first = read(planner, f"api/plan?{SMALL}")
    assert first["sentences"] == sentences(proposed(consortium_of(ASKED)))
    assert set(told["curves"]["lost"]) == {"alone", "fed-lin-ucb", *(one.name for one in advice.options)}


def test_what_privacy_costs_is_the_distance_to_sharing_openly() -> None:
    told = answer(advised(consortium_of(ASKED)))
    lost, free = told["plans"][0]["lost"], told["open"]["lost"]
    assert free < lost < told["alone"]["lost_outcomes"]["all"]
    (cost,) = (said for question, said in told["questions"] if question == "What does epsilon 8 cost?")
    assert cost.startswith(f"{lost - free:,.0f} outcomes in 60 days")
    dearer = answer(advised(consortium_of({**ASKED, "epsilon": "0.5"})))
    assert dearer["plans"][0]["lost"] > lost
    assert dearer["open"]["lost"] == free


def test_a_budget_that_is_too_small_is_told_to_stay_alone() -> None:
    told = answer(advised(consortium_of({**ASKED, "epsilon": "0.01"})))
    assert told["name"] == "alone"
    assert told["sentences"][0].startswith("Stay alone")
    assert told["headline"].startswith("No, stay alone: your silos are predicted to miss")
    rows = budgets(consortium_of(ASKED))["epsilons"]
    assert [row["epsilon"] for row in rows] == [4.0, 8.0, 16.0]
    assert rows[0]["lost"] > rows[1]["lost"] > rows[2]["lost"]


def test_days_after_the_last_whole_week_do_not_hide_the_break_even() -> None:
    """127 days are 18 weeks and a day, on which nobody is counted."""
    asked = {**ASKED, "dim": "10", "sync": "weekly"}
    weekly, whole = (recommended(consortium_of({**asked, "days": days})) for days in ("127", "126"))
    assert weekly.break_even_day == whole.break_even_day is not None


def test_defaults_are_the_query_that_says_nothing() -> None:
    assert consortium_of({}) == Consortium(12, 20, 365, 20, Privacy(1.0, 1e-6))
    said = {name: "" if value is None else str(value) for name, value in DEFAULTS.items()}
    assert consortium_of(said) == consortium_of({})


@pytest.mark.parametrize(
    "query, field",
    [
        ({"silos": "many"}, "silos"),
        ({"silos": "0"}, "silos"),
        ({"silos": "1000000"}, "silos"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"delta": "2"}, "delta"),
        ({"sync": "hourly"}, "sync"),
        ({"trust": "everybody"}, "trust"),
        ({"dim": "1"}, "dim"),
        ({"fields": "number, blue"}, "fields"),
        ({"fields": "number, 1"}, "fields"),
        ({"visits": "0"}, "visits"),
        ({"days": "3", "sync": "weekly"}, "days"),
        ({"colour": "blue"}, "query"),
    ],
)
def test_what_is_wrong_names_its_field(query: dict[str, str], field: str) -> None:
    with pytest.raises(ArgumentError) as error:
        advised(consortium_of(query))
    assert error.value.field == field


ODD = ["", " ", "-1", "0", "1e99", "-1e99", "1e400", "nan", "inf", "blue", "1,5", "٣", "<b>", "9" * 300, "0x10", "1_0"]


@pytest.mark.parametrize("field", list(DEFAULTS))
def test_whatever_is_typed_is_answered_or_refused_by_name(planner: PageServer, field: str) -> None:
    """No odd value is a failure of the server, and what is refused stands at its field or says which it is."""
    for value in ODD:
        told = httpx.get(f"{planner.url}api/plan", params={**ASKED, field: value}, timeout=60)
        assert told.status_code in (200, 422), value
        if told.status_code == 422:
            assert told.json()["errors"][0]["field"] in {field, "size"}, value


def test_a_wrong_value_is_an_answer_that_the_page_can_show(planner: PageServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        read(planner, "api/plan?silos=none")
    assert error.value.code == 422
    assert json.loads(error.value.read())["errors"][0]["field"] == "silos"


def test_fields_make_the_dimension_that_a_schema_of_them_has() -> None:
    asked = consortium_of({"fields": "number, number, 3", "arms": "5"})
    named = {f"f{at}": fb.Number(0, 1) for at in range(2)} | {"c": fb.Category(["a", "b", "c"], other=False)}
    schema = fb.Schema(named, actions=tuple("abcde"))
    assert (asked.dim, asked.constant) == (schema.dim, schema.has_constant)


def test_where_there_is_nothing_to_choose_nothing_is_lost() -> None:
    """The page failed: it divided by what staying alone loses."""
    told = answer(advised(consortium_of({**ASKED, "arms": "1"})))
    assert told["alone"]["lost_outcomes"]["all"] == 0
    assert [one["of_alone"] for one in told["plans"]] == [None] * len(told["plans"])
    assert json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("given", [{"visits": "5", "mean_visits": "9"}, {"dim": "2", "drift": "0.1"}], ids=str)
def test_a_refusal_names_the_field_of_the_page(given: dict[str, str]) -> None:
    with pytest.raises(ArgumentError) as error:
        consortium_of(given)
    assert error.value.field == list(given)[-1]


def test_a_mean_without_returning_people_is_left_aside() -> None:
    assert consortium_of({"mean_visits": "1.5", "back_after": "3"}) == consortium_of({})
    assert consortium_of({"mean_visits": "1.5", "visits": "3"}).mean_visits == 1.5


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_the_matrix_is_the_mechanism_s_own() -> None:
    plan = Plan(silos=3, rounds=100, dim=3, privacy=Privacy(1.0, 1e-6), mechanism="tree", schedule=fb.every(5))
    drawn = matrix(plan)
    rows = np.zeros((20, 20))
    for at, row in enumerate(drawn["rows"]):
        rows[at, : len(row)] = row
    np.testing.assert_allclose(rows, np.stack([np.pad(plan.encoder.row(k), (0, 19 - k)) for k in range(20)]), atol=1e-4)
    assert (drawn["syncs"], drawn["column_norm"]) == (20, plan.encoder.column_norm)


def test_who_sees_what_is_what_the_trust_declares() -> None:
    plan = Plan(silos=3, rounds=100, dim=3, privacy=Privacy(1.0, 1e-6))
    seen = sight(plan)
    assert seen["who"] == plan.trusting.who
    assert seen["mixer"] is True
    assert [(part["reader"], part["through_mixer"]) for part in seen["parts"]] == [("mixer", True), ("analyzer", False)]
    assert seen["adversaries"] == [one.name for one in plan.protocol.adversaries()]
    assert sight(plan.changed(trust="silo", colluding=None))["mixer"] is False


# -- copies -----------------------------------------------------------------------------------------------------------


def test_the_toml_is_the_plan_and_its_consortium(planner: PageServer) -> None:
    text = read(planner, f"api/plan.toml?{SMALL}")
    advice = advised(consortium_of(ASKED))
    assert text == as_toml(chosen(advice, None), advice.consortium)
    data = tomllib.loads(text)
    assert Plan.from_dict(data) == advice.options[0].plan
    assert Consortium.from_dict(data["consortium"]) == advice.consortium
    assert Plan.from_dict(tomllib.loads(read(planner, f"api/plan.toml?{SMALL}&use=silo"))).trust == "silo"


def test_the_python_finds_the_same_plan(planner: PageServer, capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, Any] = {}
    exec(read(planner, f"api/plan.py?{SMALL}"), known)
    advice = advised(consortium_of(ASKED))
    assert known["plan"] == advice.options[0].plan
    assert known["consortium"] == advice.consortium
    assert chosen(advice, None).guarantee.statement[:40] in capsys.readouterr().out
    assert "one.name == 'silo'" in as_python(advice.consortium, "silo")


def test_only_what_is_possible_can_be_taken_away(planner: PageServer) -> None:
    for use in ("sdp-amplified", "nonsense"):
        with pytest.raises(urllib.error.HTTPError) as error:
            read(planner, f"api/plan.toml?{SMALL}&use={use}")
        assert error.value.code == 422


def test_the_certificate_is_downloaded_with_its_audit(planner: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbandit.web.planner.copies.TRIALS", 200)
    with urllib.request.urlopen(f"{planner.url}api/certificate.html?{SMALL}", timeout=120) as found:
        page = found.read().decode()
        assert found.headers["content-disposition"] == 'attachment; filename="secure-sum.certificate.html"'
    assert "200" in page
    assert chosen(advised(consortium_of(ASKED)), None).guarantee.statement[:60] in page.replace("&#x27;", "'")


# -- played -----------------------------------------------------------------------------------------------------------


def test_what_is_played_is_what_the_simulator_plays() -> None:
    advice = advised(replace(consortium_of(ASKED), days=20))
    events = list(plays(advice, lambda: False, runs=3))
    assert events[0] == {"kind": "began", "names": [*events[0]["names"]], "runs": 3}
    assert events[0]["names"][:2] == [advice.options[0].name, "alone"]
    assert events[-1] == {"kind": "ended"}
    curves = [event for event in events if event["kind"] == "curve"]
    assert len(curves) == 3 * len(events[0]["names"])
    last = {event["name"]: event for event in curves}
    name, plan = advice.options[0].name, advice.options[0].plan
    assert plan is not None
    result = simulate(synthetic(5, 4, constant_share=advice.consortium.rows), {name: plan.in_visits()}, runs=3, seed=0)
    total = result.regret(name)
    rounds = plan.in_visits().rounds
    assert last[name]["runs"] == 3
    assert last[name]["days"][-1] == 20
    assert last[name]["mean"][-1] == pytest.approx(total.mean * rounds, abs=0.01)
    assert last[name]["half"][-1] == pytest.approx(2 * total.stderr * rounds, abs=0.02)
    assert next(event for event in curves if event["name"] == name)["half"][-1] == 0  # one run has no band


def test_a_simulation_ends_when_nobody_looks() -> None:
    looks = iter([False] * 3 + [True] * 100)
    events = list(plays(advised(consortium_of(ASKED)), lambda: next(looks), runs=5))
    assert [event["kind"] for event in events] == ["began"]


def test_a_reader_that_leaves_ends_its_simulation(planner: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a real connection: the thread that plays is free again, for whoever comes next."""
    left: list[list[str]] = []
    original: Any = playing.plays

    def watched(*arguments: Any, runs: int = 500) -> Any:
        if runs == 1:  # the play that compiles, whenever it comes
            yield from original(*arguments, runs=runs)
            return
        kinds: list[str] = []
        try:
            for event in original(*arguments, runs=runs):
                kinds.append(event["kind"])
                yield event
        finally:
            left.append(kinds)

    monkeypatch.setattr(playing, "plays", watched)
    with socket.create_connection(("127.0.0.1", planner.server_address[1]), timeout=30) as connection:
        host = f"127.0.0.1:{planner.server_address[1]}"
        connection.sendall(f"GET /api/simulation?{SMALL} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        said = b""
        while b'"curve"' not in said:
            said += connection.recv(65536)
    end = time.monotonic() + 20
    while not left:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "ended" not in left[0]


def test_what_is_too_large_is_not_played() -> None:
    large = advised(
        consortium_of({"silos": "5000", "people_per_day": "5000", "sync": "monthly", "dim": "3", "trust": "silo"})
    )
    (event,) = list(plays(large, lambda: False))
    assert event["kind"] == "refused"
    assert "simulate --plan" in event["reason"]
