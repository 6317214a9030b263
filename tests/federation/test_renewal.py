"""A new term of a live federation: the same members and keys, and models that begin with what the last term knew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.cli.main import app
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo import terms
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import Timing
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan
from tests.federation.test_one_process import visit

PLAN = small_plan(schedule=fb.clock(86_400.0), visits="private", rounds=3, cohort=2)
NEXT = PLAN.changed(rounds=5)


def run(*words: object, ok: bool = True) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert (result.exit_code == 0) == ok, (words, result.output, result.exception)
    return result.output if ok else str(result.exception)


@pytest.fixture
def ended(tmp_path: Path) -> tuple[Path, dict[str, list[float]]]:
    """A federation whose term is over, and the sums that its silos' last model was made of."""
    folder = tmp_path / "federation"
    with fb.Federation.local(PLAN, folder=folder) as federation:
        for _ in PLAN.times:
            for silo in federation.silos.values():
                visit(silo, 3)
            federation.tick()
        known = {name: silo.public.prefix.tolist() for name, silo in federation.silos.items()}
    (tmp_path / "next.json").write_text(json.dumps(NEXT.as_dict()))
    return folder, known


def opened(home: Home, plan: fb.Plan) -> Silo:
    return Silo.open(
        home.store(plan.hash), plan, name=home.settings.name, secret=home.keys.seeds["salt"], new_term=True
    )


def test_a_new_term_begins_with_the_last_model(ended, tmp_path):
    folder, known = ended
    said = run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    assert "it begins with model 3" in said
    assert "cost nothing more" in said
    agreed = Agreement.load(folder / "federation.json")
    assert agreed.plan.prior is not None
    for name, sums in known.items():
        assert list(agreed.plan.prior.sums) == sums
        run("federation", "accept", folder / name, folder / "federation.json", "--new-term")
        home = Home.load(folder / name)
        with opened(home, home.agreement().plan) as silo:
            assert (silo.term.number, silo.version) == (2, 0)
            np.testing.assert_array_equal(silo.public.prefix, sums)
            assert silo.model()[1] == silo.plan.fit(np.zeros(silo.plan.protocol.width), 0).model.theta.tolist()
            assert any(silo.model()[1])
            assert silo.status()["epsilon_all_terms"] is not None


def test_a_prior_that_somebody_has_swapped_is_refused(ended, tmp_path):
    folder, _ = ended
    run("federation", "renew", folder, "--plan", tmp_path / "next.json", "--weight", "0.5")
    plan = Agreement.load(folder / "federation.json").plan
    assert plan.prior is not None
    assert plan.prior.weight == 0.5
    home = Home.load(folder / "silo-00")
    for field, value in (
        ("sums", (plan.prior.sums[0] + 1e-9, *plan.prior.sums[1:])),
        ("noise", plan.prior.noise.times(0.5)),  # narrower radii than are true
        ("visits", 2 * plan.prior.visits),
    ):
        swapped = plan.changed(prior=type(plan.prior)(**{**vars(plan.prior), field: value}))
        with pytest.raises(ArgumentError, match=r"prior must be a model of the last term.*none of the 3"):
            opened(home, swapped)
    with opened(home, plan) as silo:
        assert silo.term.number == 2


def test_a_silo_that_has_no_earlier_term_takes_the_prior_as_it_was_agreed(ended, tmp_path):
    folder, known = ended
    run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    plan = Agreement.load(folder / "federation.json").plan
    with Silo.open(tmp_path / "new.db", plan, timing=Timing(), clock=HandClock()) as silo:
        np.testing.assert_array_equal(silo.public.prefix, known["silo-00"])


def test_what_cannot_go_on_is_said(ended, tmp_path):
    folder, _ = ended
    before = (folder / "federation.json").read_bytes()
    (tmp_path / "centred.json").write_text(json.dumps(NEXT.changed(centre=0.5).as_dict()))
    said = run("federation", "renew", folder, "--plan", tmp_path / "centred.json", ok=False)
    assert "must have the centre of the last term" in said
    said = run("federation", "renew", folder, "--plan", tmp_path / "next.json", "--model", folder / "mixer", ok=False)
    assert "--model must have a model" in said
    said = run(
        *("federation", "renew", folder, "--plan", tmp_path / "next.json", "--from-nothing", "--weight", "0.5"),
        ok=False,
    )
    assert "no effect" in said
    assert (folder / "federation.json").read_bytes() == before
    said = run("federation", "renew", folder, "--plan", tmp_path / "centred.json", "--from-nothing")
    assert "begins from nothing" in said
    assert Agreement.load(folder / "federation.json").plan.prior is None


def test_any_silo_has_the_model_too(ended, tmp_path):
    folder, known = ended
    run("federation", "renew", folder, "--plan", tmp_path / "next.json", "--model", folder / "silo-01")
    prior = Agreement.load(folder / "federation.json").plan.prior
    assert prior is not None
    assert list(prior.sums) == known["silo-01"]


def test_a_silo_that_does_not_look_at_the_prior_is_found_out(ended, tmp_path, monkeypatch):
    """A planted mistake: whoever writes the new plan decides what silos believe."""
    monkeypatch.setattr(terms, "_check_prior", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_prior_that_somebody_has_swapped_is_refused(ended, tmp_path)
