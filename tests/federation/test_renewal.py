"""A new term of a live federation: the same members and keys, and models that begin with what the last term knew."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from typer.testing import CliRunner

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.cli.main import app
from fedbandit.federation import process
from fedbandit.federation.post_office import PostOffice
from fedbandit.federation.renewal import check_follows
from fedbandit.federation.setup import founding, register
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.home import Home
from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo import book, terms
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.states import SyncState
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.store.seen import EARLIER, SeenStore
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.heads import NONE, Head
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys
from fedbandit.federation.wire.link import Link
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
        with pytest.raises(ArgumentError, match=r"prior must be a model of the last term.*not among the 3"):
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


def test_a_mistake_in_the_new_plan_is_mended_by_another_renewal(ended, tmp_path):
    """Also at a silo that serves under it already, as long as it has drawn nothing."""
    folder, known = ended
    (tmp_path / "wrong.json").write_text(json.dumps(NEXT.changed(rounds=5000).as_dict()))
    run("federation", "renew", folder, "--plan", tmp_path / "wrong.json")
    home = Home.load(folder / "silo-00")
    run("federation", "accept", home.path, folder / "federation.json", "--new-term")
    with opened(home, home.agreement().plan) as silo:
        visit(silo, 2)
    said = run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    assert "it begins with what the last one began with" in said
    for name in ("silo-00", "silo-01"):
        home = Home.load(folder / name)
        run("federation", "accept", home.path, folder / "federation.json", "--new-term")
        with opened(home, home.agreement().plan) as silo:
            assert silo.syncs == 5
            np.testing.assert_array_equal(silo.public.prefix, known[name])
            with silo.store.engine.read() as sql:
                assert sql.all("SELECT count(*) FROM raw_rows") == [(0,)]


def test_a_new_term_is_not_accepted_before_the_last_one_is_over(tmp_path):
    """Its file would take the place of the one that the silo needs when it starts again."""
    folder = tmp_path / "federation"
    with fb.Federation.local(PLAN, folder=folder) as federation:
        federation.tick()
    (tmp_path / "next.json").write_text(json.dumps(NEXT.as_dict()))
    run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    before = (folder / "silo-00" / "federation.json").read_bytes()
    said = run("federation", "accept", folder / "silo-00", folder / "federation.json", "--new-term", ok=False)
    assert "must wait until the running term has made its last release" in said
    assert (folder / "silo-00" / "federation.json").read_bytes() == before
    accept = ("federation", "accept", folder / "silo-00", folder / "federation.json")
    assert "no effect without --new-term" in run(*accept, "--end-term", ok=False)
    run(*accept, "--new-term", "--end-term")  # the operator says so: the rest of the term is never released
    home = Home.load(folder / "silo-00")
    with opened(home, home.agreement().plan) as silo:
        assert (silo.term.number, silo.version) == (2, 0)
        (spent,) = book.spending(silo.store.ledger()).terms
        assert spent.released == 1
        assert spent.epsilon < 1.0
    assert begun_anew(folder, "silo-00") is None


def test_a_model_that_was_not_sent_is_no_prior(ended, tmp_path):
    """The next term's analyzer sends nothing of this term: no silo could ever begin with it."""
    folder, _ = ended
    home = Home.load(folder / "analyzer")
    engine = open_engine(home.store(PLAN.hash))
    with engine.transaction() as sql:
        sql.all("UPDATE syncs SET state = ? WHERE sync = 2", (SyncState.CLOSED.value,))
    engine.close()
    assert "it begins with model 2" in run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    run("federation", "accept", folder / "silo-00", folder / "federation.json", "--new-term")


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


def opened_by(home: Home, party: Party, sealer: Sealer) -> Silo:
    """A silo of this federation, in its newest term."""
    plan, secret = party.agreement.plan, party.keys.seeds["salt"]
    place, since = home.store(plan.hash), party.roll.since(party.name)
    return Silo.open(place, plan, name=party.name, secret=secret, sealer=sealer, new_term=True, since=since)


def begun_anew(folder: Path, name: str) -> str | None:
    """Why a silo draws nothing in the second term, when mixer and analyzer have answered it; None if it draws."""
    office = PostOffice(Agreement.load(folder / "federation.json"))

    async def meet() -> str | None:
        with ExitStack() as resources:
            handlers = {}
            for role, kind in (("mixer", Mixer), ("analyzer", Analyzer)):
                home = Home.load(folder / role)
                engine = open_engine(process.claimed(home, home.agreement()))
                resources.callback(engine.close)
                store = SyncStore(engine)
                process.remember_terms(home, store)
                handlers[role] = kind(home.party(), store, office).take
            party = Home.load(folder / name).party()
            sealer = Sealer(party)
            silo = resources.enter_context(opened_by(Home.load(folder / name), party, sealer))
            agent = Agent(silo, party, sealer)
            await agent.introduce(cast(Link, office))
            for keeper, handle in handlers.items():
                await handle(office.take(keeper))
            await agent.handle(office.take(name))
            await agent.judge()
            return agent.problem

    return asyncio.run(meet())


@pytest.fixture
def renewed(ended, tmp_path):
    folder, known = ended
    run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    for name in known:
        run("federation", "accept", folder / name, folder / "federation.json", "--new-term")
    return folder


def test_a_ledger_goes_on_from_term_to_term(renewed):
    assert begun_anew(renewed, "silo-00") is None


def test_a_silo_that_has_lost_its_ledger_between_two_terms_draws_nothing(renewed):
    """With an empty store it would say that nothing was spent before, and count those who are to count no more."""
    for file in (renewed / "silo-00").glob("silo.db*"):
        file.unlink()
    problem = begun_anew(renewed, "silo-00")
    assert problem is not None
    assert "a ledger of 3 entries; this store holds 0 and 0" in problem


def test_nor_does_one_that_was_no_member_for_a_while(ended, tmp_path):
    """It is dismissed by the new file, and joins again by an edition, with its old keys and an empty store."""
    folder, _ = ended
    run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    last = Agreement.load(folder / "federation.json")
    few = replace(last, parties=tuple(party for party in last.parties if party.name != "silo-00"))
    for home in (folder, folder / "mixer", folder / "analyzer"):
        few.save(home / "federation.json")
    founding.configure(folder, few)
    home = Home.load(folder / "silo-00")
    founding.change(folder, Edition(1, "", 1, "admit", "silo-00", home.public))
    shutil.copy(folder / "federation.json", home.path / "federation.json")
    shutil.copy(folder / "members.json", home.path / "members.json")
    for file in home.path.glob("silo.db*"):
        file.unlink()
    assert "a ledger of 3 entries; this store holds 1 and 0" in (begun_anew(folder, "silo-00") or "")


def test_new_keys_let_a_silo_go_on_that_has_lost_its_ledger(ended, tmp_path):
    folder, _ = ended
    for file in (folder / "silo-00").glob("silo.db*"):
        file.unlink()
    run("federation", "new-keys", folder / "silo-00")
    card = folder / "silo-00" / "silo-00.card.json"
    run("federation", "renew", folder, "--plan", tmp_path / "next.json", "--replace", card)
    run("federation", "accept", folder / "silo-00", folder / "federation.json", "--new-term")
    assert begun_anew(folder, "silo-00") is None


def test_a_silo_that_has_lost_its_keys_too_begins_a_new_ledger(ended, tmp_path):
    folder, _ = ended
    lost = folder / "silo-00"
    shutil.rmtree(lost)
    home = Home.create(lost, name="silo-00", role="silo")
    (tmp_path / "card.json").write_text(json.dumps(home.public.as_dict()))
    run("federation", "renew", folder, "--plan", tmp_path / "next.json", "--replace", tmp_path / "card.json")
    shutil.copy(folder / "federation.json", lost / "federation.json")
    assert begun_anew(folder, "silo-00") is None


def rotated(folder: Path, name: str) -> None:
    """The founder signs new keys of a party, while mixer and analyzer are down: it is in their directories only."""
    founding.change(folder, Edition(1, "", 1, "rotate", name, Home.load(folder / name).new_keys()))


@pytest.mark.parametrize("heard", [True, False])
def test_keys_that_changed_while_the_others_were_down_are_not_those_of_a_new_ledger(ended, tmp_path, heard):
    """What they had seen of the silo was forgotten, so it began the new term as if it had spent nothing."""
    folder, _ = ended
    rotated(folder, "silo-00")
    for role in ("mixer", "analyzer") if not heard else ():
        (folder / role / "members.json").unlink()
    run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    run("federation", "accept", folder / "silo-00", folder / "federation.json", "--new-term")
    for file in (folder / "silo-00").glob("silo.db*"):
        file.unlink()
    assert "a ledger of 3 entries; this store holds 0 and 0" in (begun_anew(folder, "silo-00") or "")


def without_store(home: Path) -> None:
    for file in home.glob("silo.db*"):
        file.unlink()


def without_keys(home: Path) -> Path:
    """A silo that has lost everything joins again; the file of its new public keys."""
    shutil.rmtree(home)
    card = home.with_name("card.json")
    card.write_text(json.dumps(Home.create(home, name=home.name, role="silo").public.as_dict()))
    return card


def following(folder: Path, plan: fb.Plan, *options: object) -> None:
    """The next term, which silo-00 accepts; it begins from nothing, since nobody has played the last one."""
    file = folder / "following.json"
    file.write_text(json.dumps(plan.as_dict()))
    run("federation", "renew", folder, "--plan", file, "--from-nothing", *options)
    shutil.copy(folder / "federation.json", folder / "silo-00" / "federation.json")
    (folder / "silo-00" / "members.json").unlink(missing_ok=True)


def seen(folder: Path, length: int, role: str = "analyzer") -> Head:
    """A mixer or analyzer sees a release of silo-00 in the newest term, which makes its ledger so long."""
    home, silo = Home.load(folder / role), Home.load(folder / "silo-00")
    engine = open_engine(process.claimed(home, home.agreement()))
    process.bind(engine, home.agreement())
    head = heads.signed("silo-00", length, bytes([length]) * 32, (silo.later_keys() or [silo.keys])[-1].signer)
    process.remember_terms(home, SyncStore(engine))
    SeenStore(engine, "").note([("silo-00", 1, head)])
    engine.close()
    return head


LOST = "this store is an old copy, or empty"


def test_a_new_ledger_begins_in_its_term_whatever_was_seen_before(ended):
    """The keys of the terms before are not all known, so keys cannot tell which ledger a head is of."""
    folder, _ = ended
    rotated(folder, "silo-00")
    following(folder, NEXT)
    seen(folder, 4)
    without_store(folder / "silo-00")
    assert LOST in (begun_anew(folder, "silo-00") or "")
    following(folder, NEXT.changed(rounds=7), "--new-ledger", "silo-00")
    assert begun_anew(folder, "silo-00") is None
    without_store(folder / "silo-00")
    following(folder, NEXT.changed(rounds=8))
    assert begun_anew(folder, "silo-00") is None  # nobody has seen anything of the new one
    seen(folder, 1)
    without_store(folder / "silo-00")
    following(folder, NEXT.changed(rounds=9))
    assert "a ledger of 1 entries; this store holds 0" in (begun_anew(folder, "silo-00") or "")


def test_new_keys_alone_begin_no_new_ledger(ended):
    """The operator has signed keys of a new directory, in place of those of a lost one."""
    folder, _ = ended
    card = without_keys(folder / "silo-00")
    founding.change(folder, Edition(1, "", 1, "rotate", "silo-00", PublicKeys.load(card)))
    following(folder, NEXT)
    assert LOST in (begun_anew(folder, "silo-00") or "")
    following(folder, NEXT.changed(rounds=7), "--new-ledger", "silo-00")
    assert begun_anew(folder, "silo-00") is None


def test_what_was_seen_of_a_silo_outlives_a_term_without_it_and_the_store_in_which_it_was_seen(ended):
    folder, _ = ended
    founding.change(folder, Edition(1, "", 1, "dismiss", "silo-00"))
    following(folder, NEXT)
    for role in ("mixer", "analyzer"):
        home = Home.load(folder / role)
        engine = open_engine(process.claimed(home, home.agreement()))
        process.remember_terms(home, SyncStore(engine))
        engine.close()
        Path(home.store(PLAN.hash)).unlink()  # a backup of today does not hold it
    following(folder, NEXT.changed(rounds=7))
    home = Home.load(folder / "silo-00")
    founding.change(folder, Edition(1, "", 1, "admit", "silo-00", home.public))
    shutil.copy(folder / "members.json", home.path / "members.json")
    without_store(home.path)
    assert LOST in (begun_anew(folder, "silo-00") or "")


def test_a_store_whose_place_was_chosen_is_found_in_the_next_term(ended, tmp_path):
    """A keeper needs another place for the new term, and what it had seen was forgotten without a word."""
    folder, _ = ended
    for role in ("mixer", "analyzer"):
        home, chosen = Home.load(folder / role), tmp_path / f"chosen-{role}.db"
        for file in Path(home.store(PLAN.hash)).parent.glob(f"{role}-*.db*"):
            file.rename(Path(str(chosen) + file.name.partition(".db")[2]))
        replace(home.settings, store=str(chosen)).save(home.path / "party.json")
        for _ in range(2):
            Home.load(home.path).note_store(PLAN.hash)  # as it does when it starts
    following(folder, NEXT)
    for role in ("mixer", "analyzer"):
        home = Home.load(folder / role)
        replace(home.settings, store=str(tmp_path / f"next-{role}.db")).save(home.path / "party.json")
    without_store(folder / "silo-00")
    assert LOST in (begun_anew(folder, "silo-00") or "")


def test_what_is_not_there_of_an_earlier_term_is_said(ended, caplog):
    folder, _ = ended
    following(folder, NEXT)
    mixer = Home.load(folder / "mixer")
    Path(mixer.store(PLAN.hash)).unlink()
    seen(folder, 4, "mixer")
    assert "no store of an earlier term is there" in caplog.text
    assert PLAN.hash[:16] in caplog.text


def test_a_file_from_before_the_last_term_is_refused(ended, tmp_path):
    """It does not know whose ledger has begun since."""
    folder, _ = ended
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    run("federation", "renew", folder, "--plan", tmp_path / "next.json", "--new-ledger", "silo-00")
    said = run("federation", "accept", folder / "silo-01", folder / "federation.json", "--new-term")
    assert "silo-00 may begin a new ledger" in said
    (tmp_path / "other.json").write_text(json.dumps(NEXT.changed(rounds=7).as_dict()))
    run("federation", "renew", old, "--plan", tmp_path / "other.json", "--from-nothing")
    said = run("federation", "accept", folder / "silo-01", old / "federation.json", "--new-term", ok=False)
    assert "must follow term 2, which is here, and be of a later one, got term 2" in said
    (tmp_path / "other.json").write_text(json.dumps(NEXT.changed(rounds=8).as_dict()))
    run("federation", "renew", old, "--plan", tmp_path / "other.json", "--from-nothing")  # of term 3, by now
    said = run("federation", "accept", folder / "silo-01", old / "federation.json", "--new-term", ok=False)
    assert "old copy of the founder's directory" in said


def test_what_cannot_be_read_of_an_earlier_term_stops_no_keeper(ended, caplog):
    """A note that others can read is refused, as a database that is switched off is."""
    folder, _ = ended
    following(folder, NEXT)
    note = folder / "mixer" / f"store-{PLAN.hash[:12]}.txt"
    note.write_text("elsewhere.db")
    note.chmod(0o644)
    seen(folder, 4, "mixer")
    assert "cannot be read" in caplog.text


def test_a_file_of_an_earlier_number_is_refused_under_the_same_plan_but_not_from_another_federation(ended):
    folder, _ = ended
    following(folder, NEXT)
    home = Home.load(folder / "silo-00")
    offered = replace(home.agreement(), term=1)
    with pytest.raises(ArgumentError, match="must follow term 2"):
        check_follows(home, offered)
    check_follows(home, home.agreement())
    check_follows(home, replace(offered, id="another"))


def test_who_begins_a_new_ledger_must_be_a_silo(ended, tmp_path):
    folder, _ = ended
    for name in ("analyzer", "silo-09"):
        renew = ("federation", "renew", folder, "--plan", tmp_path / "next.json", "--new-ledger", name)
        assert f"must name a silo, of this term or an earlier one, got '{name}'" in run(*renew, ok=False)


KEY = 32 * "ab"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("term", 0, "term must be"),
        ("term", "2", "term must be"),
        ("ledgers", [], "federation"),
        ("ledgers", {"silo-00": 2}, "federation"),
        ("ledgers", {"silo-00": {"since": 2}}, "ledger"),
        ("ledgers", {"silo-00": {"since": 3, "keys": []}}, "ledgers must begin by term 2, got 3"),
        ("ledgers", {"silo-00": {"since": "2", "keys": []}}, "since must be"),
        ("ledgers", {"silo-00": {"since": 2, "keys": ["00"]}}, "ledgers must have keys of 32 bytes"),
        ("ledgers", {"silo-00": {"since": 2, "keys": KEY}}, "federation"),
        ("ledgers", {"silo 00": {"since": 2, "keys": [KEY]}}, "name must"),
    ],
)
def test_nonsense_about_terms_is_refused(ended, field, value, says):
    agreed = founding.roll_of(ended[0]).next_term((), ["silo-00"])
    file = ended[0] / "again.json"
    agreed.save(file)
    assert Agreement.load(file) == agreed
    assert agreed.fingerprint != replace(agreed, ledgers={}).fingerprint != replace(agreed, term=3).fingerprint
    file.write_text(json.dumps({**agreed.as_dict(), field: value}))
    with pytest.raises(ArgumentError, match=says):
        Agreement.load(file)


def test_a_lie_about_a_ledger_stops_no_silo(ended):
    """What was never signed by the silo says nothing about it."""
    folder, _ = ended
    following(folder, NEXT)
    home = Home.load(folder / "analyzer")
    engine = open_engine(process.claimed(home, home.agreement()))
    SeenStore(engine, "").note([("silo-00", 3, Head(99, b"x" * 32, b"y" * 64))])
    engine.close()
    assert begun_anew(folder, "silo-00") is None


def test_a_head_is_not_hidden_by_a_term_without_a_budget(tmp_path):
    """There a silo shows none; the ledger of the terms before goes on in the terms after."""
    engine = open_engine(tmp_path / "mixer.db")
    with ExitStack() as stack:
        stack.callback(engine.close)
        head = heads.signed("silo-00", 3, b"a" * 32, PartyKeys.generate().signer)
        SeenStore(engine, EARLIER).note([("silo-00", 0, head)])
        store = SeenStore(engine, "")
        store.note([("silo-00", 1, NONE)])
        assert store.of("silo-00") == (1, head)
        assert store.heads() == {"silo-00": head}


@pytest.mark.parametrize("known_from", ["file", "store"])
def test_a_file_that_was_made_from_an_old_copy_of_the_founders_directory_is_refused(ended, tmp_path, known_from):
    """It gave a member its replaced keys back, which may have been stolen."""
    folder, _ = ended
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    rotated(folder, "silo-01")
    home = Home.load(folder / "silo-00")
    if known_from == "file":
        shutil.copy(folder / "members.json", home.path / "members.json")
    else:
        engine = open_engine(home.store(PLAN.hash))
        process.bind(engine, home.agreement())
        store = SyncStore(engine)
        founding.roll_of(folder).tie(store.remember, store.recall)
        engine.close()
    run("federation", "renew", old, "--plan", tmp_path / "next.json")
    said = run("federation", "accept", home.path, old / "federation.json", "--new-term", ok=False)
    assert "the keys of 'silo-01' that edition 1 has replaced" in said
    assert home.agreement().plan.hash == PLAN.hash
    run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    run("federation", "accept", home.path, folder / "federation.json", "--new-term")


def test_an_old_copy_of_the_founders_directory_renews_nothing(ended, tmp_path, monkeypatch):
    """Members that had left were members again, as it does not know of editions that were signed elsewhere."""
    folder, _ = ended
    assert "has not answered" in run("federation", "renew", folder, "--plan", tmp_path / "next.json")
    before = (folder / "federation.json").read_bytes()

    def known(path: Path) -> bool:
        raise ArgumentError("directory", "must have edition 2")

    monkeypatch.setattr(register, "check_newest", known)
    (tmp_path / "next.json").write_text(json.dumps(PLAN.changed(rounds=7).as_dict()))
    assert "edition 2" in run("federation", "renew", folder, "--plan", tmp_path / "next.json", ok=False)
    assert (folder / "federation.json").read_bytes() == before


def test_an_analyzer_that_was_put_back_into_the_last_term_stops_nobody(renewed, tmp_path):
    """Mixer and silos ended with exit code 3, as under a wrong plan, and no service manager starts them again then."""
    home = Home.load(renewed / "analyzer")
    (aside,) = home.path.glob("federation-*.json")
    office, silo_home = PostOffice(Agreement.load(aside)), Home.load(renewed / "silo-00")

    async def meet() -> None:
        with ExitStack() as resources:
            stores = []
            for place in (home.store(PLAN.hash), str(tmp_path / "mixer.db")):
                engine = open_engine(place)
                resources.callback(engine.close)
                stores.append(SyncStore(engine))
            analyzer = Analyzer(Party(Agreement.load(aside), home.keys, home.public), stores[0], office)
            process.remember_terms(Home.load(renewed / "mixer"), stores[1])
            mixer = Mixer(Home.load(renewed / "mixer").party(), stores[1], office)
            party = silo_home.party()
            sealer = Sealer(party)
            silo = resources.enter_context(opened_by(silo_home, party, sealer))
            agent = Agent(silo, party, sealer)
            await agent.introduce(cast(Link, office))
            await mixer.greet()
            await analyzer.take(office.take("analyzer"))
            await agent.handle(office.take("silo-00"))
            await mixer.take(office.take("mixer"))
            assert "the plan of a term that is over here" in (sealer.held or "")
            assert not mixer.answered
            silo.decide([[1.0, 0.0]])

    asyncio.run(meet())
