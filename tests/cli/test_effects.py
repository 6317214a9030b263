"""An option that has no effect is an error that says so, and so is a value that would fail only later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import SMALL, Command, assert_refused

SIZE = ("--silos", "5", "--rounds", "60", "--dim", "4", "--runs", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan --trust silo", "--trust has no effect without --best"),
        ("plan --trust secure-sum", "--trust has no effect without --best"),  # the default, but said
        ("plan --best --explain silo", "--explain has no effect with --best"),
        ("plan --best --batch 5", "--batch has no effect with --best"),
        ("frontier --shuffle --plot x.svg", "--plot has no effect with --shuffle"),
        ("frontier --shuffle --seed 1", "--seed has no effect with --shuffle"),
        ("frontier --shuffle --curves silo", "--curves has no effect with --shuffle"),
        ("frontier --shuffle --ablation", "--ablation has no effect with --shuffle"),
        ("frontier --shuffle --budgets 1:0.1,5:0.1", "budgets must be one with --shuffle, got '1:0.1,5:0.1'"),
        ("frontier --ablation --curves silo", "--curves has no effect with --ablation"),
        ("frontier --ablation --plot x.svg", "--plot has no effect with --ablation"),
        ("frontier --ablation --budgets 1:0.1,5:0.1", "budgets must be one with --ablation"),
        ("frontier --confidence proof", "--confidence has no effect without --ablation"),
        ("frontier --data x --dim 5", "--dim has no effect with --data or --warfarin"),
        ("frontier --warfarin x --arms 5", "--arms has no effect with --data or --warfarin"),
        ("attack --trials 5", "--trials has no effect without the name of an attack"),
        ("attack --seed 5", "--seed has no effect without the name of an attack"),
        ("paper run fig1a --data x", "--data has no effect on panel fig1a, which does not need it"),
        ("simulate --protocols silo,silo", "protocols must be different, got 'silo' twice"),
        ("simulate --protocols fed-lin-ucb,isolated --delta 1e-6", "--delta has no effect where no protocol has a bud"),
        ("simulate --protocols isolated,dubey --batch 5", "--batch has no effect on protocols that never synchronise"),
        ("simulate --rounds 20 --jump-at 20", "jump_at must be less than the 20 rounds, got 20"),
        ("plan --best --apart 3", "--apart has no effect with --best"),
        ("plan --best --visits 5 --mean-visits 9", "mean_visits must lie between 1 and the 5 visits, got 9.0"),
        ("plan --best --dim 2 --drift 0.1", "drift must be 0 for dim 2"),
        ("plan --best --days 1000000000", "days must be at most 100,000 syncs, got 1,000,000,000"),
        ("plan --delta 1e-320", "delta must be at least 1e-300, got 1e-320"),
        ("plan --epsilon 1e-300", "epsilon must be at least 1e-100, got 1e-300"),
        ("demo --trust local", "trust must be one that runs live (central, none, secure-sum, shuffle, silo, vec"),
        ("demo --trust none", "plan must have a guarantee to run live: No privacy guarantee"),
        ("demo --seed -1", "seed must be a whole number >= 0, got -1"),
        ("frontier --runs 0", "runs must be a whole number >= 1, got 0"),
        ("web --host nope.invalid", "host must be an address of this machine with a free port, got 'nope.invalid'"),
        ("frontier --silos 0", "silos must be a whole number >= 1, got 0"),
        ("frontier --plot x.gif", "plot must end in .svg, .png or .pdf, got 'x.gif'"),
        ("frontier --plot /nonexistent/x.svg", "plot must be a file that can be written, got '/nonexistent/x.svg' ("),
    ],
)  # fmt: skip
def test_refused_before_anything_is_done(
    arguments: str, message: str, fedbandit: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(fedbandit(*arguments.split()), message)
    assert not list(tmp_path.iterdir())


def test_what_has_an_effect_is_not_refused(fedbandit: Command, tmp_path: Path) -> None:
    sizes = ("--silos", "10", "--rounds", "300", "--dim", "5")
    assert fedbandit("plan", "--best", "--trust", "silo", "--days", "20", "--dim", "5", "--json").code == 0
    assert fedbandit("frontier", "--shuffle", *sizes, "--budgets", "1:0.1", "--json").json["shuffle"]


def test_a_picture_that_is_there_is_left_as_it_is_until_it_is_drawn(fedbandit: Command, tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    picture.write_text("an earlier one")
    assert_refused(fedbandit("frontier", *SIZE, "--curves", "magic", "--plot", picture), "curves must be one of")
    assert picture.read_text() == "an earlier one"


def test_an_explanation_as_data(fedbandit: Command) -> None:
    sizes = ("--silos", "20", "--rounds", "500", "--dim", "4", "--explain", "silo")
    explained = fedbandit("plan", *sizes, "--json").json
    assert explained["name"] == "silo"
    assert explained["guarantee"] == fedbandit("plan", *sizes).out.rstrip("\n")


def test_silos_that_stay_alone_send_nothing(fedbandit: Command) -> None:
    """The page said that sums are sent in the clear, the table that 520 bytes are, and the audit that nothing is."""
    (row,) = (row for row in fedbandit("plan", "--json").json["plans"] if row["name"] == "isolated")
    assert (row["syncs"], row["bytes"]) == (0, 0)
    assert row["reason"].startswith("No privacy guarantee: each silo stays alone and sends nothing;")
    assert fedbandit("plan", "--explain", "isolated").out.strip() == row["reason"]


def test_a_comparison_on_rewards_that_no_guarantee_covers_shows_no_promise(fedbandit: Command) -> None:
    bounded = fedbandit("simulate", "--protocols", "silo", *SMALL)
    assert "(1, 1e-05)" in bounded.out
    gaussian = fedbandit("simulate", "--protocols", "silo", *SMALL, "--rewards", "gaussian")
    assert "(1, 1e-05)" not in gaussian.out
    assert "none" in gaussian.out


def test_one_is_not_several(fedbandit: Command) -> None:
    assert fedbandit("plan", "--silos", "1", "--rounds", "50", "--dim", "2").out.startswith("1 silo, 50 rounds")
