"""`fedbandit plan`: JSON of a fixed shape, and every bad input one line and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbandit.plan import Plan
from fedbandit.presets import NAMES
from fedbandit.schedule import clock
from fedbandit.web.planner.answer import advised, answer
from fedbandit.web.planner.asked import consortium_of
from tests.cli.harness import Command, assert_refused

PLAN_KEYS = [
    *("name", "trust", "mechanism", "schedule", "acting", "calibration", "adjacency", "epsilon", "delta", "noise"),
    *("lambda", "syncs", "bytes", "guarantee", "applicable", "reason"),
]
USUAL = ["--silos", "100", "--rounds", "10000", "--dim", "10"]


def test_plan_prints_one_row_a_protocol(fedbandit: Command) -> None:
    said = fedbandit("plan", *USUAL, "--epsilon", "1", "--delta", "0.1", "--json")
    assert said.code == 0
    assert list(said.json) == ["plans"]
    rows = {row["name"]: row for row in said.json["plans"]}
    assert list(rows) == list(NAMES)
    for row in rows.values():
        assert sorted(row) == sorted(PLAN_KEYS)
        assert row["applicable"] == (row["noise"] is not None)
    amplified = rows["sdp-amplified"]
    assert not amplified["applicable"]
    assert amplified["guarantee"] is None
    assert "epsilon must be at most about" in amplified["reason"]
    silent = {name for name, row in rows.items() if row["applicable"] and row["guarantee"] is None}
    assert silent == {"fed-lin-ucb", "ldp-eager", "dubey", "isolated"}
    for name in silent:
        assert rows[name]["reason"].startswith("No privacy guarantee: ")
    for name in set(rows) - silent - {"sdp-amplified"}:
        assert (rows[name]["epsilon"], rows[name]["delta"], rows[name]["adjacency"]) == (1.0, 0.1, "replace-one")
        assert "(1, 0.1)-differentially private" in rows[name]["guarantee"]
        assert rows[name]["reason"] is None
    assert rows["ldp"]["syncs"] == 400
    assert rows["ldp"]["bytes"] == 400 * 65 * 8
    assert rows["dubey"]["syncs"] is rows["dubey"]["bytes"] is None  # the data decide


def test_the_numbers_it_is_to_show(fedbandit: Command) -> None:
    def noise(epsilon: str, delta: str) -> dict[str, float]:
        said = fedbandit("plan", *USUAL, "--batch", "25", "--epsilon", epsilon, "--delta", delta, "--json")
        return {row["name"]: row["noise"] for row in said.json["plans"]}

    usual = noise("1", "0.1")
    assert usual["ldp"] / usual["silo"] >= 7
    assert usual["silo"] / usual["secure-sum"] == pytest.approx(99**0.5)  # any one of 100 silos may subtract its own
    assert usual["sdp-vector-sum"] == pytest.approx(2 * 82_200 * 8**0.5, rel=0.01)
    amplified = noise("0.001", "0.0001")["sdp-amplified"]
    assert amplified == pytest.approx(289_000 * 10 * 8**0.5, rel=0.01)  # a hundred silos, eight p-sums


def test_plan_for_people(fedbandit: Command) -> None:
    said = fedbandit("plan", "--silos", "20", "--rounds", "500", "--dim", "4")
    assert said.code == 0
    for name in NAMES:
        assert name in said.out
    assert "sdp-amplified: not here." in said.out
    proof = fedbandit("plan", "--silos", "20", "--rounds", "500", "--dim", "4", "--explain", "secure-sum")
    assert "Because:" in proof.out
    assert "Assuming:" in proof.out
    none = fedbandit("plan", "--silos", "20", "--rounds", "500", "--dim", "4", "--explain", "ldp-eager")
    assert none.out.startswith("No privacy guarantee: ")


def test_non_unique_users_from_the_command_line(fedbandit: Command) -> None:
    shape = ("plan", "--silos", "9", "--rounds", "100", "--dim", "3", "--json")
    once = {row["name"]: row["noise"] for row in fedbandit(*shape).json["plans"]}
    said = fedbandit(*shape, "--participations", "3", "--silos-per-user", "4")
    often = {row["name"]: row for row in said.json["plans"]}
    assert often["silo"]["noise"] == pytest.approx(3 * 2 * once["silo"])
    assert often["secure-sum"]["noise"] == pytest.approx(3 * 4 * once["secure-sum"])
    assert not often["sdp-vector-sum"]["applicable"]
    assert "participations must be 1" in often["sdp-vector-sum"]["reason"]


CLINIC = (
    *("plan", "--best", "--silos", "12", "--people-per-day", "20", "--days", "90", "--sync", "daily"),
    *("--visits", "5", "--back-after", "30", "--arms", "4", "--dim", "10", "--delta", "1e-6"),
)


def test_the_best_plan(fedbandit: Command) -> None:
    data = fedbandit(*CLINIC, "--epsilon", "2", "--json").json
    assert {"recommendation", "alone", "break_even_day", "plans"} <= set(data)
    best = data["recommendation"]
    assert (best["name"], best["trust"], best["cap"]) == ("secure-sum", "secure-sum", 1)
    assert best["regret"] < data["alone"]["regret"]
    assert best["regret_second_half"] < best["regret"]
    assert 1 <= data["break_even_day"] <= data["paid_back_day"] <= 90
    assert data["plans"][0] == best
    costs = [option["regret"] for option in data["plans"]]
    assert costs == sorted(costs)
    assert set(data["other_epsilons"]) == {"1", "4"}
    assert data["other_epsilons"]["1"]["regret"] > best["regret"] > data["other_epsilons"]["4"]["regret"]
    assert list(best["lost_outcomes"]) == ["month", "all"]
    assert data["plan"]["schedule"]["kind"] == "clock"


def test_the_best_plan_in_words(fedbandit: Command) -> None:
    said = fedbandit(*CLINIC, "--epsilon", "2")
    assert said.code == 0
    assert said.out.startswith("Federate, with secure-sum: (2, 1e-06)-DP, replace-one.\n")
    assert "\nmonth, all: outcomes missed by then" in said.err  # 90 days have no quarter to compare
    assert "Each person's first visit is counted; silos synchronise after day " in said.out
    assert "not here: sdp-amplified: " in said.out
    own = fedbandit(*CLINIC, "--epsilon", "2", "--trust", "silo", "--json").json
    assert {option["name"] for option in own["plans"]} <= {"silo", "ldp", "local"}


def test_staying_alone_is_said_first(fedbandit: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    said = fedbandit(*CLINIC, "--epsilon", "0.01", "--out", str(file))
    assert said.out.startswith("Stay alone: ")
    assert "is not written: staying alone needs no plan" in said.err
    assert not file.exists()
    data = fedbandit(*CLINIC, "--epsilon", "0.01", "--json").json
    assert data["recommendation"]["name"] == "alone"
    assert data["recommendation"]["regret"] == data["alone"]["regret"]
    assert data["break_even_day"] is data["plan"] is None


def test_from_facts_to_a_plan_a_curve_and_a_certificate(fedbandit: Command, tmp_path: Path) -> None:
    """The file that is written serves every other command."""
    file = tmp_path / "plan.toml"
    assert "written: " in fedbandit(*CLINIC, "--epsilon", "2", "--out", str(file)).err
    plan = Plan.load(file)
    assert plan.people == 20
    played = fedbandit("simulate", "--plan", str(file), "--runs", "2", "--out", str(tmp_path / "curve"), "--json").json
    curves = {curve["name"]: curve for curve in played["curves"]}
    assert list(curves) == ["secure-sum", "alone", "alone, theory radii"]
    assert curves["secure-sum"]["regret_second_half"]["mean"] < curves["alone"]["regret_second_half"]["mean"]
    assert (tmp_path / "curve" / "regret.svg").exists()
    assert "(2, 1e-06)" in fedbandit("certificate", str(file), "--out", str(tmp_path), "--trials", "400").out
    assert fedbandit("audit", str(file), "--trials", "400", "--json").code == 0
    assert fedbandit("federation", "init", str(tmp_path / "f"), "--plan", str(file), "--name", "clinics").code == 0


def test_a_plan_that_does_not_say_its_setting_cannot_be_played(fedbandit: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    Plan(3, 10, 2, schedule=clock(86400.0), trust="none").save(file)
    assert_refused(fedbandit("simulate", "--plan", str(file)), "plan must hold its consortium")
    assert_refused(fedbandit("simulate", "--plan", str(file), "--silos", "4"), "--silos has no effect with --plan")
    file.write_text("silos = [")
    assert_refused(fedbandit("simulate", "--plan", str(file)), "plan must be JSON or TOML")


PLAN_ERRORS = [
    (["--epsilon", "0"], "epsilon must be a finite number > 0, got 0.0"),
    (["--epsilon", "-1"], "epsilon must be a finite number > 0, got -1.0"),
    (["--epsilon", "nan"], "epsilon must be a finite number > 0, got nan"),
    (["--delta", "0"], "delta must lie strictly between 0 and 1, got 0.0"),
    (["--delta", "1"], "delta must lie strictly between 0 and 1, got 1.0"),
    (["--delta", "-0.5"], "delta must lie strictly between 0 and 1, got -0.5"),
    (["--silos", "0"], "silos must be a whole number >= 1, got 0"),
    (["--rounds", "0"], "rounds must be a whole number >= 1, got 0"),
    (["--dim", "0"], "dim must be a whole number >= 1, got 0"),
    (["--rounds", "many"], "'--rounds'"),
    (["--adjacency", "near"], "adjacency must be one of replace-one, add-remove; got 'near'"),
    (["--participations", "0"], "participations must be a whole number >= 1, got 0"),
    (["--silos-per-user", "1000"], "silos_per_user must be at most the 100 silos, got 1000"),
    (["--batch", "0"], "batch must be a whole number >= 1, got 0"),
    (["--batch", "10001"], "batch must be at most the horizon of 10000 rounds, got 10001"),
    (["--explain", "magic"], "protocol must be one of fed-lin-ucb"),
    (["--best", "--rounds", "10"], "--rounds has no effect with --best, which counts people and days"),
    (["--people-per-day", "3"], "--people-per-day has no effect without --best"),
    (["--best", "--sync", "hourly"], "sync must be one of daily, weekly, monthly; got 'hourly'"),
    (["--best", "--trust", "nobody"], "trust must be one of central, local, none, public-contexts"),
    (["--colour", "red"], "No such option: --colour"),
]


@pytest.mark.parametrize("json_too", [False, True], ids=["table", "json"])
@pytest.mark.parametrize(("arguments", "message"), PLAN_ERRORS)
def test_bad_input_to_plan(arguments: list[str], message: str, json_too: bool, fedbandit: Command) -> None:
    assert_refused(fedbandit("plan", *arguments, *(["--json"] if json_too else [])), message)


def test_a_plan_without_an_end(fedbandit: Command) -> None:
    said = fedbandit("plan", *USUAL, "--batch", "25", "--forget", "0.9", "--endless", "--json")
    rows = {row["name"]: row for row in said.json["plans"] if row["applicable"]}
    assert sorted(rows) == ["central", "secure-sum", "silo"]
    assert "ever: the run has no end" in rows["silo"]["guarantee"]
    with_end = fedbandit("plan", *USUAL, "--batch", "25", "--forget", "0.9", "--json").json["plans"]
    noise = {row["name"]: row["noise"] for row in with_end}
    assert rows["silo"]["noise"] == pytest.approx(noise["silo"], rel=1e-6)
    assert "of a run without an end" in fedbandit("plan", *USUAL, "--batch", "25", "--forget", "0.9", "--endless").out
    assert_refused(fedbandit("plan", "--explain", "silo", "--endless"), "endless must be false where nothing is")


def test_records_are_planned_for_alike_by_the_command_and_by_the_page(fedbandit: Command, tmp_path: Path) -> None:
    """How much of a row is constant, and how many actions there are, follows from the schema in both."""
    schema, setting = tmp_path / "schema.toml", ["--people-per-day", "20", "--days", "60", "--delta", "1e-6"]
    schema.write_text(
        'actions = ["a", "b", "c"]\n[context.x]\ntype = "number"\nlow = 0\nhigh = 1\n'
        '[context.y]\ntype = "category"\nlevels = ["p", "q"]\nother = false\n'
    )
    said = fedbandit("plan", "--best", "--silos", "12", *setting, "--schema", schema, "--json").json
    page = answer(advised(consortium_of({"days": "60", "arms": "3", "fields": "number, 2"})))
    for name in ("alone", "break_even_day"):
        assert page[name] == said[name]
    assert page["plans"][0]["regret"] == said["plans"][0]["regret"]
    refused = fedbandit("plan", "--best", "--schema", schema, "--arms", "3")
    assert_refused(refused, "--arms has no effect with --schema, which names the actions")
