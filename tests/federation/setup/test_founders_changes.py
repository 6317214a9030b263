"""What the founder's directory goes through when members change: nothing signed is lost, whatever fails in between."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.cli.main import app
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import FEDERATION, MEMBERS, Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.keys import PartyKeys
from tests.federation.test_members import PLAN, dismissal, founded

CLOCKED = fb.Plan(4, 50, 2, fb.Privacy(1.0, 1e-3), schedule=fb.clock(3600), cohort=2)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["federation", *(str(word) for word in words)])


def test_a_change_that_the_broker_cannot_be_told_of_is_not_signed(tmp_path: Path) -> None:
    founded(tmp_path)
    config = tmp_path / founding.BROKER_CONFIG
    config.write_text("listen: 4222 # somebody's own\n")
    with pytest.raises(ArgumentError):
        founding.change(tmp_path, dismissal("silo-00"))
    assert founding.roll_of(tmp_path).number == 0


def test_a_full_disk_leaves_the_founders_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until all members have it, nobody else may. It was cut to nothing first, and `admit` could not read it again."""
    founded(tmp_path)
    file, write = tmp_path / FEDERATION, Path.write_text
    before = file.read_bytes()

    def full(path: Path, text: str, *given: str) -> int:
        write(path, text[:100], *given)
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="no space"):
            founding.save(tmp_path, Home.load(tmp_path / "analyzer").agreement())
    assert file.read_bytes() == before
    founding.save(tmp_path, Home.load(tmp_path / "analyzer").agreement())
    assert not [one.name for one in tmp_path.glob("*.part")]


@pytest.mark.parametrize("step", ["write_editions", "configure"])
def test_the_operators_new_key_outlives_whatever_fails(step: str, tmp_path: Path, monkeypatch) -> None:
    """A key that an edition names is the only one that can ever sign the next edition."""
    founded(tmp_path)
    right, calls = getattr(founding, step), list[object]()

    def full(*given: object) -> None:
        calls.append(given)
        if len(calls) == (2 if step == "write_editions" else 1):
            raise OSError("no space left")
        right(*given)

    with monkeypatch.context() as patch:
        patch.setattr(founding, step, full)
        with pytest.raises(OSError, match="no space"):
            founding.rotate_operator(tmp_path, 1)
    assert founding.roll_of(tmp_path).number == 1
    founding.change(tmp_path, dismissal("silo-00"))
    assert founding.roll_of(tmp_path).number == 2
    assert (tmp_path / "analyzer" / MEMBERS).read_bytes() == (tmp_path / MEMBERS).read_bytes()


@pytest.mark.parametrize("renamed", [False, True])
def test_a_rotation_that_was_killed_is_finished(renamed: bool, tmp_path: Path, monkeypatch) -> None:
    _, old = founded(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(founding, "_settle_operator", lambda path: None)
        founding.rotate_operator(tmp_path, 1)
    if renamed:
        (tmp_path / founding.OPERATOR_KEYS).rename(tmp_path / "operator-1.key")
    founding.change(tmp_path, dismissal("silo-00"))
    assert PartyKeys.load(tmp_path / "operator-1.key").identity == old.identity
    assert not (tmp_path / f"{founding.OPERATOR_KEYS}.new").exists()
    founding.rotate_operator(tmp_path, 1)
    assert founding.roll_of(tmp_path).number == 3


def test_whoever_is_no_member_is_not_said_to_be_one(tmp_path: Path) -> None:
    """The term has not begun, and members have changed already."""
    founding.local(tmp_path, PLAN, ["a", "b", "c"], Timing(10.0, start=time.time() + 1000))
    founding.change(tmp_path, dismissal("c"))
    late = Home.create(tmp_path / "late", name="late", role="silo")
    (tmp_path / "late.card.json").write_text(json.dumps(late.public.as_dict()))
    told = run("admit", tmp_path, tmp_path / "late.card.json")
    assert told.exit_code != 0
    assert "--from-sync" in str(told.exception)
    assert run("admit", tmp_path, tmp_path / "late.card.json", "--from-sync", 1).exit_code == 0
    assert "members already" in run("admit", tmp_path, tmp_path / "late.card.json").output


def test_changes_are_of_syncs_to_come(tmp_path: Path) -> None:
    founding.local(tmp_path, CLOCKED, ["a", "b", "c"], Timing(10.0, start=time.time() - 3 * 3600 - 60))
    late = Home.create(tmp_path / "late", name="late", role="silo")
    (tmp_path / "late.card.json").write_text(json.dumps(late.public.as_dict()))
    for words in (
        ("admit", tmp_path, tmp_path / "late.card.json"),
        ("dismiss", tmp_path, "a"),
        ("rotate", tmp_path, "--operator"),
    ):
        told = run(*words, "--from-sync", 2)
        assert "to come" in str(told.exception), told.output
        assert founding.roll_of(tmp_path).number == 0
    assert run("admit", tmp_path, tmp_path / "late.card.json", "--from-sync", 3).exit_code == 0
    assert "once sync 3 is over" in run("dismiss", tmp_path, "a", "--from-sync", 4).output


def test_a_term_that_is_renewed_twice_begins_with_what_was_learnt(tmp_path: Path) -> None:
    """The first new plan had a mistake in it, and nobody has begun with it."""
    with fb.Federation.local(CLOCKED.changed(rounds=3), list("abcd"), folder=tmp_path / "f") as federation:
        for silo in federation.silos.values():
            silo.reward(silo.decide([[1.0, 0.0]]).id, 0.5)
        federation.tick(3)
    plans = {rounds: tmp_path / f"{rounds}.json" for rounds in (10, 20)}
    for rounds, file in plans.items():
        file.write_text(json.dumps(CLOCKED.changed(rounds=rounds).as_dict()))
    assert "model 3" in run("renew", tmp_path / "f", "--plan", plans[10]).output
    first = founding.roll_of(tmp_path / "f").newest.plan.prior
    told = run("renew", tmp_path / "f", "--plan", plans[20])
    assert first is not None
    assert founding.roll_of(tmp_path / "f").newest.plan.prior == first, told.output
    assert "what the last one began with" in told.output
    assert (tmp_path / "f" / FEDERATION).exists()
