"""The ledger: nothing altered, removed or unknown gets past it, and what it adds up is what was spent."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit import Plan, Privacy
from fedbandit._roots import falling_root
from fedbandit._validate import ArgumentError
from fedbandit.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.ledger import (
    GENESIS,
    LOST,
    ONLY_SUMS,
    Binomial,
    Clear,
    Entry,
    Gaussian,
    LedgerError,
    Release,
    append,
    entries_since,
    event_from_json,
    event_to_json,
    from_json,
    to_json,
    verify,
)
from fedbandit.privacy.spending import TermSpent, spent
from fedbandit.protocol import mechanisms
from fedbandit.schedule import every

SYNCS = 12
SIGMA = gaussian_sigma(1.0, 1e-5) * 2.0 * mechanisms.encoder("tree", SYNCS).column_norm
COST = Gaussian(sigma=SIGMA, own_sigma=SIGMA, sensitivity=2.0)


def release(sync: int, term: int = 1, **fields: Any) -> Release:
    """Release `sync` of a tree over SYNCS batches that spends (1, 1e-5) in all; one user moves a batch by 2."""
    values: dict[str, Any] = {
        "silo": "north",
        "plan": f"plan {term}",
        "term": term,
        "trust": "silo",
        "mechanism": "tree",
        "syncs": SYNCS,
        "sync": sync,
        "released": "noisy sums of one batch",
        "adjacency": "replace-one",
        "epsilon": 1.0,
        "delta": 1e-5,
        "cost": COST,
    }
    return Release(**(values | fields))


def chained(events: list[Release]) -> list[Entry]:
    entries: list[Entry] = []
    for event in events:
        entries.append(append(entries[-1].hash if entries else GENESIS, event))
    return entries


WHOLE = chained([release(sync) for sync in range(SYNCS)])


def test_a_ledger_reads_back_as_it_was_written() -> None:
    lines = [to_json(entry) for entry in WHOLE]
    assert [from_json(line) for line in lines] == WHOLE
    verify([from_json(line) for line in lines], head=WHOLE[-1].hash)
    assert event_from_json(event_to_json(WHOLE[3].event)) == WHOLE[3].event


@pytest.mark.parametrize("missing", range(SYNCS - 1))
def test_a_removed_entry_is_noticed(missing: int) -> None:
    with pytest.raises(LedgerError, match="removed"):
        verify(WHOLE[:missing] + WHOLE[missing + 1 :])


def test_entries_cut_off_the_end_are_noticed_by_who_noted_the_head() -> None:
    verify(WHOLE[:-1])
    with pytest.raises(LedgerError, match="missing at the end"):
        verify(WHOLE[:-1], head=WHOLE[-1].hash)


def test_any_hash_that_was_once_the_last_is_a_head() -> None:
    for number, entry in enumerate(WHOLE, 1):
        verify(WHOLE, head=entry.hash.upper())
        assert entries_since(WHOLE, entry.hash) == SYNCS - number
    assert entries_since(WHOLE, GENESIS) == SYNCS
    lost = append(WHOLE[-1].hash, release(0, released=LOST + "ab" * 32))
    assert entries_since([*WHOLE, lost], "ab" * 32) == 1
    with pytest.raises(LedgerError, match="no entry has the noted hash abababababab"):
        verify(WHOLE, head="ab" * 32)
    for text in ("abc", "", "x" * 64, WHOLE[0].hash + "0"):
        with pytest.raises(ArgumentError, match=r"^head must be a hash of 64 hexadecimal digits"):
            verify(WHOLE, head=text)


def test_signatures_and_witnesses() -> None:
    """Whoever rewrites a ledger needs the silo's key; the silo, which has it, is held to what others have seen."""

    def sign(number: int, hash_: bytes) -> bytes:
        return b"silo" + number.to_bytes(1, "big") + hash_

    def check(number: int, hash_: bytes, signature: bytes) -> bool:
        return signature == sign(number, hash_)

    entries: list[Entry] = []
    for sync in range(4):
        previous = entries[-1].hash if entries else GENESIS
        entries.append(append(previous, release(sync), sync + 1, sign))
    assert [from_json(to_json(entry)) for entry in entries] == entries
    verify(entries, signed=check, witnessed=[(3, entries[2].hash), (4, entries[3].hash), (0, GENESIS)])
    with pytest.raises(LedgerError, match="entry 1 is not signed"):
        verify(WHOLE, signed=check)
    with pytest.raises(LedgerError, match="entry 3 is not signed"):
        verify([*entries[:2], entries[2]._replace(signature="no hex"), entries[3]], signed=check)
    for wrong in ((3, entries[1].hash), (5, entries[3].hash), (4, "ab" * 32)):
        with pytest.raises(LedgerError, match="others have seen a ledger"):
            verify(entries, witnessed=[wrong])


def lost_after(kept: int, count: int) -> tuple[list[Entry], list[Entry]]:
    """A ledger of `count` entries, and the old copy with the first `kept` of them, brought forward to there."""
    before = chained([release(sync) for sync in range(count)])
    names = LOST + before[-1].hash
    return before, chained([given_up(sync, names) if sync >= kept else release(sync) for sync in range(count)])


def given_up(sync: int, names: str, **fields: Any) -> Release:
    return release(sync, released=names, **fields)


@pytest.mark.parametrize("kept", [1, 3, 5])
def test_heads_of_a_lost_copy_are_known_by_what_was_given_up(kept: int) -> None:
    """Named or not: somebody who was not asked when the copy was brought forward may hold an earlier head of it."""
    before, after = lost_after(kept, 6)
    verify(after, witnessed=[(number, entry.hash) for number, entry in enumerate(before, 1)])
    longer = [*after, append(after[-1].hash, release(6))]
    verify(longer, witnessed=[(6, before[-1].hash), (7, longer[-1].hash)])


def test_a_ledger_of_which_nothing_was_kept_learns_the_text_from_what_came_after() -> None:
    before, after = lost_after(0, 3)
    longer = [*after, append(after[-1].hash, release(3))]
    verify(longer, witnessed=[(number, entry.hash) for number, entry in enumerate(before, 1)])
    with pytest.raises(LedgerError, match="others have seen a ledger of 1 entries"):
        verify(longer, witnessed=[(1, before[1].hash)])


def test_a_copy_that_is_lost_again_is_known_as_well() -> None:
    _, once = lost_after(2, 4)
    twice = chained([*(e.event for e in once), *(given_up(s, LOST + "cd" * 32) for s in (4, 5))])
    lost = chained([*(e.event for e in once), release(4), release(5)])
    verify(twice, witnessed=[(5, lost[4].hash), (6, lost[5].hash)])


def test_a_release_that_was_seen_and_is_not_there_is_not_made_good_by_naming_it() -> None:
    """A silo that others have seen at 6 releases, and that gives up one of them alone, has spent more than it says."""
    before, after = lost_after(3, 6)
    with pytest.raises(LedgerError, match="others have seen a ledger of 6 entries"):
        verify(after[:4], witnessed=[(6, before[-1].hash)])


def test_giving_up_does_not_cover_a_rewritten_past() -> None:
    """Entries before the loss are those of the lost copy, and what was given up cost what it had cost."""
    before, _ = lost_after(3, 6)
    names = LOST + before[-1].hash
    cheap = Gaussian(sigma=10 * SIGMA, own_sigma=10 * SIGMA, sensitivity=2.0)
    rewritten = [release(s, cost=cheap) if s == 1 else given_up(s, names) if s >= 3 else release(s) for s in range(6)]
    redrawn = [given_up(s, names) if s == 5 else release(s) for s in (0, 1, 2, 2, 2, 5)]
    cheaper = [given_up(s, names, cost=cheap) if s >= 3 else release(s) for s in range(6)]
    for events in (rewritten, redrawn, cheaper):
        with pytest.raises(LedgerError, match="others have seen a ledger of 6 entries"):
            verify(chained(events), witnessed=[(6, before[-1].hash)])


def test_a_ledger_that_is_all_lost_is_believed_in_what_it_names() -> None:
    """Nothing is left to learn from what the releases were; their number and cost stand in the ledger."""
    before, after = lost_after(0, 3)
    verify(after, witnessed=[(3, before[-1].hash)])
    for number, hash_ in ((2, before[1].hash), (4, before[-1].hash)):
        with pytest.raises(LedgerError, match="others have seen"):
            verify(after, witnessed=[(number, hash_)])


@settings(max_examples=60, deadline=None)
@given(number=st.integers(0, SYNCS - 1), field=st.sampled_from(["sigma", "sensitivity", "sync", "silo", "released"]))
def test_an_altered_entry_is_noticed(number: int, field: str) -> None:
    entry = WHOLE[number]
    data = json.loads(event_to_json(entry.event))
    value = data[field]
    other = f"{value}!" if isinstance(value, str) else (value + 1) % SYNCS if field == "sync" else value * 1.01
    altered = entry._replace(event=event_from_json(json.dumps(data | {field: other})))
    with pytest.raises(LedgerError, match=f"entry {number + 1} was altered"):
        verify([*WHOLE[:number], altered, *WHOLE[number + 1 :]])
    rehashed = append(entry.previous, altered.event)  # whoever alters can compute a hash, but not that of the next
    if number < SYNCS - 1:
        with pytest.raises(LedgerError, match=r"does not follow|one silo"):
            verify([*WHOLE[:number], rehashed, *WHOLE[number + 1 :]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "teapot"}, "event kind must be one of"),
        ({"kind": ["gaussian"]}, "event kind must be one of"),
        ({"comment": "hello"}, "differs in comment"),
        ({"": "hello"}, "differs in an empty name"),
        ({"sigma": 10**400}, "is invalid"),
        ({"sigma": None}, "sigma must be of type float"),
        ({"sigma": -1.0}, "sigma must be"),
        ({"sync": 99}, "sync must lie below"),
        ({"sync": True}, "sync must be of type int"),
        ({"adjacency": "nearby"}, "adjacency must be one of"),
        ({"silo": ""}, "silo must not be empty"),
    ],
)
def test_what_is_not_known_is_refused(change: dict[str, object], message: str) -> None:
    data = json.loads(event_to_json(WHOLE[0].event)) | change
    with pytest.raises(LedgerError, match=message):
        event_from_json(json.dumps(data))


def test_missing_fields_and_other_texts_are_refused() -> None:
    data = json.loads(event_to_json(WHOLE[0].event))
    del data["sigma"]
    for text in (json.dumps(data), "[]", "nonsense", json.dumps({"hash": "a", "previous": "b"})):
        with pytest.raises(LedgerError):
            event_from_json(text)
        with pytest.raises(LedgerError):
            from_json(text)


def test_a_ledger_belongs_to_one_silo() -> None:
    with pytest.raises(LedgerError, match="one silo"):
        verify(chained([release(0), release(1, silo="south")]))


def test_the_whole_term_spends_the_budget_and_a_part_of_it_less() -> None:
    whole = spent(WHOLE, mechanisms.encoder)
    assert whole.epsilon == pytest.approx(1.0, abs=1e-6)
    assert whole.terms[0].left == pytest.approx(0.0, abs=1e-6)
    assert whole.terms[0].left == 0.0  # what rounding leaves is nothing
    assert whole.mu == pytest.approx(1 / gaussian_sigma(1.0, 1e-5), rel=1e-9)
    assert not whole.terms[0].overspent
    growing = [spent(WHOLE[:k], mechanisms.encoder).epsilon for k in range(SYNCS + 1)]
    assert growing == sorted(growing)
    assert growing[0] == 0


@pytest.mark.parametrize("syncs", [(0,), (0, 1, 3), (2, 5, 6), tuple(range(9))])
@pytest.mark.parametrize("mechanism", ["tree", "toeplitz", "batches"])
def test_mu_is_that_of_the_worst_placed_user(mechanism: str, syncs: tuple[int, ...]) -> None:
    """Computed another way: the distance of the mean transcripts of two worlds, user in batch j, worst over j."""
    entries = chained([release(sync, mechanism=mechanism) for sync in syncs])
    rows = mechanisms.encoder(mechanism, SYNCS).coefficients[list(syncs)]
    distances = [np.linalg.norm(2.0 * rows[:, j] / SIGMA) for j in range(SYNCS)]
    assert spent(entries, mechanisms.encoder).mu == pytest.approx(max(distances), rel=1e-12)


def test_a_redrawn_release_is_counted_twice_and_named() -> None:
    entries = chained([*(entry.event for entry in WHOLE), release(0)])
    term = spent(entries, mechanisms.encoder).terms[0]
    assert term.redrawn == (0,)
    assert term.overspent
    assert term.epsilon > 1.05


def test_terms_compose_in_squares() -> None:
    second = [release(sync, term=2) for sync in range(SYNCS)]
    both = spent(chained([*(entry.event for entry in WHOLE), *second]), mechanisms.encoder)
    assert both.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2) / gaussian_sigma(1.0, 1e-5), 1e-5), rel=1e-6)
    assert [term.epsilon for term in both.terms] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_binomial_terms_add_up_and_clear_ones_have_no_bound() -> None:
    counts = release(0, term=2, cost=Binomial(noise_bits=10, users=5))
    mixed = spent(chained([*(entry.event for entry in WHOLE), counts]), mechanisms.encoder)
    assert mixed.epsilon == pytest.approx(2.0, abs=1e-6)
    assert mixed.delta == pytest.approx(2e-5)
    assert [term.epsilon for term in mixed.terms] == pytest.approx([1.0, 1.0], abs=1e-6)
    clear = release(0, cost=Clear("analyzer"))
    assert math.isinf(spent(chained([clear]), mechanisms.encoder).epsilon)
    assert event_from_json(event_to_json(counts)) == counts
    assert event_from_json(event_to_json(clear)) == clear


def of_plan(plan: Plan, times: int = 1, term: int = 1) -> list[Release]:
    """All releases of a plan, each drawn so many times."""
    drawn = [plan.release("north", term, sync) for sync in range(plan.encoder.size) for _ in range(times)]
    return [event for event in drawn if event is not None]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_redrawn_binomial_releases_are_as_many_runs_of_the_term(times: int) -> None:
    plan = Plan(
        2,
        8,
        2,
        Privacy(1.0, 1e-5),
        trust="vector-sum",
        calibration="paper",
        mechanism="tree",
        schedule=every(2),
        visits="public",
    )
    whole = spent(chained(of_plan(plan, times)), mechanisms.encoder)
    assert whole.epsilon == times * 1.0
    assert whole.delta == pytest.approx(times * 1e-5)
    assert whole.terms[0].overspent is (times > 1)
    assert whole.terms[0].left == 0
    one = spent(chained([*of_plan(plan), *of_plan(plan)[:1]]), mechanisms.encoder).terms[0]
    assert (one.epsilon, one.redrawn, one.overspent) == (2.0, (0,), True)


def test_noise_that_a_trusted_receiver_adds_is_what_is_spent_against_everybody_else() -> None:
    plan = Plan(3, 60, 2, Privacy(1.0, 0.1), trust="central")
    releases = of_plan(plan)
    whole = spent(chained(releases), mechanisms.encoder)
    assert whole.epsilon == pytest.approx(1.0, rel=1e-6)
    assert not whole.terms[0].overspent
    assert whole.terms[0].against == ("everybody but the analyzer, which is trusted with the sums and adds the noise",)
    assert event_from_json(event_to_json(releases[0])) == releases[0]
    twice = spent(chained(of_plan(plan, times=2)), mechanisms.encoder)
    assert twice.mu == pytest.approx(math.sqrt(2) * whole.mu)
    assert twice.terms[0].overspent
    unprotected = spent(chained(of_plan(plan.changed(trust="none"))), mechanisms.encoder)
    assert math.isinf(unprotected.epsilon)
    assert unprotected.terms[0].overspent


def test_a_ledger_says_against_whom() -> None:
    alone, shared = (Plan(5, 60, 2, Privacy(1.0, 0.1), trust=trust) for trust in ("silo", "secure-sum"))
    for plan, who in (
        (alone, "everybody outside the silo"),
        (shared, ONLY_SUMS),
    ):
        assert spent(chained(of_plan(plan)), mechanisms.encoder).terms[0].against == (who,)


def test_terms_of_different_adjacency_are_added_up_under_the_stronger_one() -> None:
    """What replacing somebody shifts in an add-remove term, 1.5 times as much here, is within what is counted."""
    replaced = Plan(3, 60, 2, Privacy(1.0, 1e-5), trust="silo")
    present = replaced.changed(privacy=Privacy(1.0, 1e-5, adjacency="add-remove"))
    other = present.changed(rounds=61)
    both = spent(chained([*of_plan(present), *of_plan(other, term=2)]), mechanisms.encoder)
    assert (both.adjacency, both.converted) == ("add-remove", ())
    mixed = spent(chained([*of_plan(present), *of_plan(other, term=2), *of_plan(replaced, term=3)]), mechanisms.encoder)
    assert (mixed.adjacency, mixed.converted) == ("replace-one", (1, 2))
    assert [term.adjacency for term in mixed.terms] == ["add-remove", "add-remove", "replace-one"]
    mu = 1 / gaussian_sigma(1.0, 1e-5)
    assert mixed.mu == pytest.approx(3 * mu, rel=1e-6)  # squares of 2, 2 and 1
    assert mixed.epsilon > gaussian_epsilon(math.sqrt(2 * 1.5**2 + 1) * mu, 1e-5) > 2.5


def test_binomial_terms_of_another_adjacency_count_for_a_group_of_two() -> None:
    counts = release(0, cost=Binomial(noise_bits=10, users=5), adjacency="add-remove")
    mixed = spent(chained([counts, release(0, term=2)]), mechanisms.encoder)
    alone = spent(chained([release(0, term=2)]), mechanisms.encoder)
    assert mixed.epsilon == pytest.approx(2.0 + alone.epsilon)
    assert mixed.delta == pytest.approx(1e-5 * (1 + math.e) + 1e-5)


def test_releases_of_one_term_must_agree_on_its_plan() -> None:
    with pytest.raises(LedgerError, match="releases of term 1 disagree about its plan"):
        spent(chained([release(0), release(1, epsilon=2.0)]), mechanisms.encoder)


def test_a_plan_s_own_releases_spend_exactly_its_budget() -> None:
    plan = Plan(silos=7, rounds=300, dim=3, privacy=Privacy(1.0, 1e-5), trust="silo")
    sigma = plan.protocol.scales.diagonal
    cost = Gaussian(sigma, sigma, plan.request.shift.total)
    own: dict[str, Any] = {"mechanism": plan.mechanism, "syncs": plan.encoder.size, "cost": cost}
    events = [release(k, **own) for k in range(plan.encoder.size)]
    assert spent(chained(events), mechanisms.encoder).epsilon == pytest.approx(1.0, abs=1e-6)
    written = [plan.release("north", 1, k) for k in range(plan.encoder.size)]
    assert [event.cost for event in written if event is not None] == [cost] * plan.encoder.size


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, '{"a": ' + "1" * 5000 + "}", "", "[]", "\ud800"])
def test_what_is_no_entry_is_refused_however_it_is_written(text: str) -> None:
    for read in (from_json, event_from_json):
        with pytest.raises(LedgerError):
            read(text)


def test_counts_of_nobody_are_still_an_event_and_no_noise_is_none() -> None:
    event = release(0, trust="vector-sum", cost=Binomial(noise_bits=1, users=0))
    assert event_from_json(event_to_json(event)) == event
    for bits, users in ((0, 1), (1, -1)):
        with pytest.raises(ArgumentError):
            Binomial(noise_bits=bits, users=users)


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -0.1])
def test_a_release_has_a_delta_between_0_and_1(delta: float) -> None:
    with pytest.raises(ArgumentError, match=r"^delta must lie strictly between 0 and 1"):
        release(0, delta=delta)


def term_at(mu: float, budget: tuple[float, float] = (4.0, 1e-3)) -> TermSpent:
    """A term of this budget whose releases make it mu-GDP."""
    (term,) = spent(WHOLE, mechanisms.encoder).terms
    return replace(term, mu=mu, budget=budget)


@pytest.mark.parametrize(
    ("missing", "is_left"), [(2e-6, True), (5e-7, False), (0.0, False), (-0.1, False), (0.5, True)]
)
def test_what_is_left_is_nothing_where_it_is_less_than_a_millionth(missing: float, is_left: bool) -> None:
    term = term_at(1 / gaussian_sigma(4.0 * (1 - missing), 1e-3))
    assert term.left == (pytest.approx(4.0 * missing, rel=1e-3) if is_left else 0.0)
    assert term.epsilon == pytest.approx(4.0 * (1 - missing), rel=1e-9)
    assert term.delta == 1e-3


@pytest.mark.parametrize(("more", "overspent"), [(3e-6, True), (5e-7, False), (0.0, False), (-0.1, False), (0.1, True)])
def test_more_than_a_millionth_above_the_budget_is_overspent(more: float, overspent: bool) -> None:
    """In epsilon at its delta, or in delta at its epsilon."""
    assert term_at(1 / gaussian_sigma(4.0 * (1 + more), 1e-3)).overspent == overspent
    at = falling_root(lambda mu: 1e-3 * (1 + more) - gaussian_delta(mu, 4.0 * (1 + 1e-6)), 0.1, 10.0)
    assert term_at(at).overspent == overspent


def test_a_term_in_which_nothing_was_moved_has_spent_nothing() -> None:
    term = term_at(0.0)
    assert (term.epsilon, term.left, term.overspent) == (0.0, 4.0, False)


@pytest.mark.parametrize(("epsilon", "delta", "draws"), [(0.5, 1e-3, 1), (3.0, 1e-3, 2), (0.5, 0.4, 3), (800, 1e-9, 1)])
def test_counts_of_people_who_come_or_stay_away_count_for_two_who_are_replaced(
    epsilon: float, delta: float, draws: int
) -> None:
    """Group privacy for two: (2 epsilon, (1 + e^epsilon) delta), each as often as drawn; a delta is at most 1."""
    cost = Binomial(noise_bits=7, users=3)
    shared: dict[str, Any] = {"trust": "vector-sum", "cost": cost, "epsilon": epsilon, "delta": delta}
    counted = [release(0, adjacency="add-remove", **shared)] * draws
    total = spent(chained([*counted, release(0, term=2, **shared)]), mechanisms.encoder)
    assert total.adjacency == "replace-one"
    assert total.converted == (1,)
    assert total.epsilon == pytest.approx(2 * draws * epsilon + epsilon, rel=1e-12)
    once = min(1.0, draws * delta)
    assert (total.terms[0].epsilon, total.terms[0].delta) == (draws * epsilon, once)
    grown = once * (1 + math.exp(draws * epsilon)) if draws * epsilon < 700 else math.inf
    assert total.delta == pytest.approx(min(1.0, grown + delta), rel=1e-12)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("kind", "laplace"), ("kind", 5), ("kind", []), ("kind", None)),
        *(
            ("sigma", True),
            ("sigma", "7"),
            ("silo", 5),
            ("silo", None),
            ("term", 1.0),
            ("sync", True),
            ("released", []),
        ),
    ],
)
def test_an_event_of_another_kind_or_with_a_value_of_another_type_is_not_read(field: str, value: object) -> None:
    data = json.loads(event_to_json(release(0)))
    assert field in data
    said = "event kind must be one of gaussian" if field == "kind" else f"{field} must be of type"
    with pytest.raises(LedgerError, match=rf"^{said}"):
        event_from_json(json.dumps({**data, field: value}))


def test_terms_of_two_deltas_are_added_up_at_the_smaller_one() -> None:
    other = [release(sync, term=2, delta=1e-3) for sync in range(SYNCS)]
    total = spent(chained([*(entry.event for entry in WHOLE), *other]), mechanisms.encoder)
    assert total.delta == 1e-5
    mu = math.sqrt(2) / gaussian_sigma(1.0, 1e-5)  # the same noise in both
    assert total.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-9)


def test_twice_a_budget_that_fits_into_no_float_is_still_added_up() -> None:
    """Terms of two adjacencies: group privacy for two takes e to 800."""
    huge = release(0, term=1, trust="vector-sum", adjacency="add-remove", epsilon=800.0, cost=Binomial(7, 3))
    total = spent(chained([huge, release(0, term=2)]), mechanisms.encoder)
    assert total.epsilon == pytest.approx(1600, abs=1)
    assert total.delta == 1.0


def test_which_syncs_were_given_up_and_which_drawn_twice_is_told() -> None:
    _, after = lost_after(2, 4)
    (term,) = spent([*after, append(after[-1].hash, release(1))], mechanisms.encoder).terms
    assert (term.given_up, term.redrawn, term.released, term.draws) == ((2, 3), (1,), 4, 2)
