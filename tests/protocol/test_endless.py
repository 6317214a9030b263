"""A matrix without a last row: the same numbers as a long one's, in fixed memory, and a bound that no length passes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedbandit import Plan, Privacy, clock, every, growing
from fedbandit._validate import ArgumentError
from fedbandit.privacy import ledger
from fedbandit.privacy.ledger import Entry, LedgerError
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.privacy.spending import spent
from fedbandit.protocol import composition, mechanisms
from fedbandit.protocol.trusts.secure_sum import SecureSumProtocol
from fedbandit.schedule import Clock

WEIGHT = 0.8


def plan_of(**fields: Any) -> Plan:
    given = {"silos": 3, "rounds": 12, "dim": 2, "privacy": Privacy(1.0, 1e-6), "schedule": clock(60), "forget": WEIGHT}
    return Plan(**{**given, "endless": True, **fields})


@pytest.mark.parametrize("name", ["toeplitz", "batches"])
@pytest.mark.parametrize("forget", [0.3, 0.8, 0.97])
def test_it_is_the_matrix_of_any_length(name: str, forget: float) -> None:
    short, long = mechanisms.endless(name, 5, forget), mechanisms.encoder(name, 700, forget)
    assert short.column_norm == pytest.approx(long.column_norm, rel=1e-14)
    assert short.touches == long.touches == len(short.first_column)
    for k in (0, 3, 60, 699):
        np.testing.assert_array_equal(short.row(k), long.row(k))
        np.testing.assert_allclose(short.decoder_row(k), long.decoder_row(k), atol=1e-12)
    norms = long.prefix_norms
    assert short.prefix_norms[:-1] == pytest.approx(norms[:4])
    assert short.prefix_norms[-1] >= norms[-1] * (1 - 1e-14)  # what follows is no noisier than it says
    assert short.prefix_norms[-1] == pytest.approx(norms[-1], rel=1e-9)


def test_the_worst_visits_are_worse_than_any_others() -> None:
    """By going through all sets of visits over a horizon that is long enough for the band."""
    encoder = mechanisms.endless("toeplitz", 4, 0.5)
    columns = mechanisms.encoder("toeplitz", 24, 0.5).coefficients
    for visits, apart in ((2, 1), (3, 1), (3, 2), (2, 5), (3, 20)):
        worst = 0.0
        for chosen in itertools.combinations(range(24), visits):
            if all(later - sooner >= apart for sooner, later in itertools.pairwise(chosen)):
                worst = max(worst, float(np.linalg.norm(columns[:, chosen].sum(axis=1))))
        assert worst <= encoder.visits_norm(visits, apart) * (1 + 1e-12)
        if (visits - 1) * apart + len(encoder.first_column) <= 24:
            assert worst == pytest.approx(encoder.visits_norm(visits, apart), rel=1e-12)


@pytest.mark.parametrize(("visits", "apart"), [(12, 30), (52, 7), (3, 1), (2, 400)])
def test_the_closed_form_is_the_norm_over_a_long_horizon(visits: int, apart: int) -> None:
    encoder, long = mechanisms.endless("toeplitz", 9, 0.97), mechanisms.encoder("toeplitz", 3_000, 0.97)
    norm = encoder.visits_norm(visits, apart)
    assert norm == pytest.approx(long.visits_norm(visits, apart), rel=1e-12)
    assert encoder.reached(10**9, visits, apart) == pytest.approx(norm, rel=1e-12)
    assert encoder.reached(100, visits, apart) == pytest.approx(long.reached(100, visits, apart), rel=1e-12)
    assert encoder.reached(100, 1, 0) == pytest.approx(long.reached(100, 1, 0), rel=1e-12)


@pytest.mark.parametrize("name", ["toeplitz", "batches"])
def test_streams_have_fixed_memory_and_decode_weighted_sums(name: str) -> None:
    """Also what the planted fault "a decoder that forgets otherwise" is caught by."""
    encoder, long = mechanisms.endless(name, 3, WEIGHT), mechanisms.encoder(name, 300, WEIGHT)
    rng = np.random.default_rng(0)
    encoding, decoding, whole = encoder.init((4,)), encoder.init_decoder((4,)), long.init((4,))
    shapes = [array.shape for array in (*encoding.memory, *decoding.memory)]
    weighted = np.zeros(4)
    for k in range(300):
        batch = rng.integers(-(2**40), 2**40, 4)
        weighted = WEIGHT * weighted + batch
        encoding, release = encoder.step(encoding, batch)
        whole, expected = long.step(whole, batch)
        np.testing.assert_array_equal(release, expected)  # to the last bit: nothing is rounded
        decoding, decoded = encoder.decode_step(decoding, release)
        np.testing.assert_allclose(decoded, weighted, rtol=1e-9, atol=1.0)
        assert [array.shape for array in (*encoding.memory, *decoding.memory)] == shapes
        assert (encoding.done, decoding.done) == (k + 1, k + 1)


def test_a_batch_is_gone_after_its_band() -> None:
    """So two worlds that differ in one person are the same world again, exactly: what the proof for ever rests on."""
    encoder = mechanisms.endless("toeplitz", 3, WEIGHT)
    here, there = encoder.init((1,)), encoder.init((1,))
    here, there = encoder.step(here, np.array([7]))[0], encoder.step(there, np.array([3]))[0]
    for k in range(1, encoder.touches + 1):
        (here, one), (there, other) = (encoder.step(state, np.array([k])) for state in (here, there))
        assert (one == other).all() == (k >= encoder.touches)
    np.testing.assert_array_equal(here.memory[0], there.memory[0])


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central"])
def test_noise_of_late_sums_is_what_the_plan_says(trust: str) -> None:
    """After 60 syncs, of which the plan looks at 12. Accepts its noise to 4 standard errors, rejects 1.3 times it."""
    trials, rng = 3_000, np.random.default_rng(1)
    plan = plan_of(trust=trust)
    protocol = plan.protocol
    state, batch = composition.init(protocol, (trials,)), np.zeros((trials, 3, plan.protocol.width), dtype=np.int64)
    for _ in range(60):
        state = composition.step(protocol, state, batch, SimulatedNoise(rng))
    bias, claimed = state.prefix[:, : plan.dim], plan.noise_law.bias[-1]
    error = 4 / np.sqrt(2 * bias.size)
    assert abs(bias.std() / claimed - 1) < error
    assert abs(bias.std() / (1.3 * claimed) - 1) > error


def _chain(plan: Plan, syncs: range, before: list[Entry] | None = None) -> list[Entry]:
    entries = list(before or [])
    for sync in syncs:
        event = plan.release("here", 1 if before is None else 2, sync)
        assert event is not None
        assert ledger.event_from_json(ledger.event_to_json(event)) == event
        entries.append(ledger.append(entries[-1].hash if entries else ledger.GENESIS, event))
    return entries


@pytest.mark.parametrize("apart", [0, 4])
def test_what_is_spent_grows_to_the_budget_and_never_beyond(apart: int) -> None:
    plan = plan_of(privacy=Privacy(1.0, 1e-6, participations=3, apart=apart))
    event = plan.release("here", 1, 0)
    assert event is not None
    spents = [
        spent([ledger.append(ledger.GENESIS, replace(event, sync=sync))], mechanisms.encoder).terms[0]
        for sync in (0, 1, 5, 20, 100, 5_000, 10**8)
    ]
    epsilons = [term.epsilon for term in spents]
    assert epsilons == sorted(epsilons)
    assert epsilons[0] < 0.9
    assert epsilons[-1] == pytest.approx(1.0, rel=1e-9)
    assert not any(term.overspent for term in spents)
    assert [term.released for term in spents] == [1, 2, 6, 21, 101, 5_001, 10**8 + 1]


def test_a_finite_matrix_would_not_be_enough() -> None:
    """Noise for the first syncs alone overspends later: the planted fault's own arithmetic."""
    plan = plan_of(forget=0.97)
    short = plan.changed(endless=False, rounds=2)
    event, cost = plan.release("here", 1, 10**6), short.release("here", 1, 0)
    assert event is not None
    assert cost is not None
    (term,) = spent([ledger.append(ledger.GENESIS, replace(event, cost=cost.cost))], mechanisms.encoder).terms
    assert term.overspent


def test_old_entries_may_go_and_nothing_else() -> None:
    whole = _chain(plan_of(), range(30))
    kept = [whole[0], whole[20]._replace(left_out=19), *whole[21:]]
    ledger.verify(kept)
    assert ledger.numbers(kept) == [1, *range(21, 31)]
    assert spent(kept, mechanisms.encoder) == spent(whole, mechanisms.encoder)
    assert [ledger.from_json(ledger.to_json(entry)) for entry in kept] == kept
    assert ledger.entries_since(kept, whole[24].hash) == 5
    with pytest.raises(LedgerError, match="19 entries that are no longer kept"):
        ledger.entries_since(kept, whole[3].hash)
    ledger.verify(kept, witnessed=[(25, whole[24].hash)])
    for seen in ((25, whole[23].hash), (31, whole[23].hash), (3, whole[2].hash)):  # the last is kept no more
        with pytest.raises(LedgerError, match="others have seen"):
            ledger.verify(kept, witnessed=[seen])
    for wrong in (
        [whole[20], *whole[21:]],  # a gap that is not said
        [whole[20]._replace(left_out=20), *whole[21:]],  # the term's first entry is gone, and with it what was before
        [whole[0], whole[20]._replace(left_out=20)],  # more than the term has had
    ):
        with pytest.raises(LedgerError, match="does not follow"):
            ledger.verify(wrong)
    ended = _chain(plan_of(endless=False, rounds=30), range(30))
    with pytest.raises(LedgerError, match="does not follow"):
        ledger.verify([ended[0], ended[20]._replace(left_out=19), *ended[21:]])


def test_an_entry_that_is_added_never_lowers_what_was_spent() -> None:
    whole = _chain(plan_of(), range(30))
    last = whole[-1].event
    assert isinstance(last.cost, ledger.Gaussian)
    cheap = replace(last, sync=30, cost=replace(last.cost, sigma=1000 * last.cost.sigma))
    more = [*whole, ledger.append(whole[-1].hash, cheap, 31)]
    assert spent(more, mechanisms.encoder).epsilon >= spent(whole, mechanisms.encoder).epsilon


def test_an_earlier_term_stays_whole_before_the_gap() -> None:
    first = _chain(plan_of(endless=False, rounds=3), range(3))
    both = _chain(plan_of(), range(30), before=first)
    kept = [*first, both[3], both[13]._replace(left_out=9), *both[14:]]
    ledger.verify(kept)
    assert spent(kept, mechanisms.encoder).epsilon == spent(both, mechanisms.encoder).epsilon
    with pytest.raises(LedgerError, match="does not follow"):
        ledger.verify([*first[:2], both[13]._replace(left_out=11)])
    with pytest.raises(LedgerError, match="does not follow"):
        ledger.verify([both[13]._replace(left_out=10), *both[14:]])  # the earlier term hidden in the gap


def test_two_draws_of_a_sync_are_seen_in_what_is_kept() -> None:
    plan = plan_of()
    (term,) = spent(_chain(plan, range(30)) + _chain(plan, range(29, 30)), mechanisms.encoder).terms
    assert (term.redrawn, term.overspent) == ((29,), True)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"forget": 1.0}, "endless"),
        ({"mechanism": "blt"}, "mechanism"),
        ({"mechanism": "optimal"}, "mechanism"),
        ({"schedule": clock(60, ratio=1.1)}, "endless"),
        ({"schedule": growing()}, "endless"),
        ({"trust": "local", "mechanism": "batches"}, "endless"),
        ({"trust": "shuffle"}, "endless"),
        ({"forget": 0.9999}, "forget"),
        ({"forget": 0.9996, "mechanism": "batches"}, "forget"),
        ({"endless": 1}, "endless"),
    ],
    ids=str,
)
def test_what_cannot_go_on_for_ever_says_so(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ArgumentError) as error:
        _ = plan_of(**fields).guarantee
    assert error.value.field == field


def test_the_longest_memory_there_is() -> None:
    assert plan_of(forget=0.9995, mechanism="batches").guarantee.promised


def test_a_plan_without_an_end_is_another_plan_and_reads_back() -> None:
    plan = plan_of()
    assert Plan.from_dict(plan.as_dict()) == plan
    assert "endless" not in plan.changed(endless=False).as_dict()
    assert plan.hash != plan.changed(endless=False).hash
    assert "the promise covers at most 1 visit to 1 silo, ever: the run has no end" in str(plan.guarantee)
    assert "There is no last release" in str(plan.guarantee)
    assert "without an end" in plan._repr_html_()
    assert isinstance(plan.protocol, SecureSumProtocol)
    assert isinstance(plan.schedule, Clock)


def test_noise_is_that_of_a_long_plan() -> None:
    plan = plan_of(forget=0.97)
    long = plan.changed(endless=False, rounds=2_000)
    assert plan.noise_std == pytest.approx(long.noise_std, rel=1e-9)
    assert plan.changed(rounds=1).noise_std == pytest.approx(plan.noise_std, rel=1e-9)


def test_time_goes_on() -> None:
    plan, long = plan_of(schedule=clock(60, first=3)), plan_of(schedule=clock(60, first=3), endless=False, rounds=500)
    assert plan.ticks[:4] == range(3, 7)
    assert len(plan.ticks) == 2**31
    for round_ in (2, 3, 12, 13, 200, 500):
        assert plan.remembered(round_) == pytest.approx(long.remembered(round_), rel=1e-12)
        assert plan.radius(round_) > 0
    batches = plan_of(schedule=every(4), rounds=12)
    assert batches.ticks[:3] == range(4, 13, 4)
    assert batches.remembered(42) == pytest.approx(batches.changed(endless=False, rounds=400).remembered(42))
    assert plan.reach == 93  # 0.8^93 is below a billionth
    assert plan_of(forget=0.5).reach == 64
    assert plan_of(forget=0.97).reach == 681
