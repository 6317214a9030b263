"""The catalogue of planted faults: what is planted, and what catches it.

A fault is caught by one kind of evidence, which the table names: a score ("epsilon"), arithmetic ("claimed noise"), a
test of the noise ("residuals") with a word of what it says, or "times and sizes". A catch by anything else is an
accident and does not count. Faults of what happens between syncs, which the audit does not play, are caught by the test
of just that property (`TESTED`); faults of the live noise source have a table of their own in `test_live_game`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Literal, NamedTuple

import numpy as np
import pytest

from fedbandit import clock, every
from fedbandit._arrays import Floats, Integers
from fedbandit.audit.adaptive_game import AdaptiveGame
from fedbandit.audit.cases import Case, case
from fedbandit.audit.worlds import neighbours
from fedbandit.bandit.prior import Prior
from fedbandit.bandit.statistics import Scales
from fedbandit.plan_data import PERSONAL_SHARE
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.endless import EndlessEncoder
from fedbandit.protocol.trusts.secure_sum import PersonalSecureSum, SecureSumProtocol
from fedbandit.protocol.trusts.silo import SiloProtocol
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from tests.audit import faults
from tests.audit.faults import (
    BUDGET,
    faulty,
    made_of,
    masked,
    scaled,
    small_case,
    small_plan,
    with_protocol,
)
from tests.protocol import test_endless
from tests.protocol.trusts import test_secure_sum
from tests.simulator import test_terms

Evidence = Literal["epsilon", "claimed noise", "residuals", "times and sizes"]


class Fault(NamedTuple):
    """What is planted, and what the audit says of it."""

    plant: Callable[[], Case]
    caught_by: Evidence
    says: str = ""  # a word of the failed check
    trials: int = 4_000


def _protocol_of(kind: type[Protocol], **fields: object) -> Case:
    plan = small_plan(**fields)
    return with_protocol(small_case(plan), made_of(kind, plan.protocol))


def _other_plan(wrong: dict[str, object], **fields: object) -> Case:
    """Promised for one plan, run with the noise of another."""
    right = small_plan(**fields)
    scales = small_plan(**{**fields, **wrong}).protocol.scales
    return with_protocol(small_case(right), replace(right.protocol, scales=scales))


def _raw_sums() -> Case:
    lazy = small_case(small_plan())
    return replace(lazy, games=(replace(faults.the_game(lazy), eager=True),))


def _unnoised(**scales: float) -> Case:
    """Part of the noise is missing, and the adversary knows."""
    protocol = small_plan().protocol
    return with_protocol(small_case(small_plan()), replace(protocol, scales=protocol.scales._replace(**scales)))


def _planned_scales(bias: float = 1.0, diagonal: float = 1.0, off_diagonal: float = 1.0) -> Case:
    """The plan itself, and all who read it, think that this share of the noise is right."""
    case = small_case(small_plan())
    right = case.plan.protocol.scales
    wrong = Scales(right.bias * bias, right.diagonal * diagonal, right.off_diagonal * off_diagonal)
    return with_protocol(case, replace(case.plan.protocol, scales=wrong))


def _colluding_not_counted() -> Case:
    """Noise planned for nobody colluding, one silo of two tells: mu is sqrt 2 times as large."""
    told = small_plan(trust="secure-sum", silos=3, colluding=1)
    forgotten = small_plan(trust="secure-sum", silos=3, colluding=0).protocol.scales
    return with_protocol(small_case(told), replace(told.protocol, scales=forgotten))


def _cohort_below_minimum() -> Case:
    """Planned for four silos in a sync, opened with two."""
    two = small_plan(trust="secure-sum", silos=2, colluding=0)
    four = small_plan(trust="secure-sum", silos=4, colluding=0).protocol.scales
    return with_protocol(small_case(two), replace(two.protocol, scales=four))


def _one_visit_counted(**fields: object) -> Case:
    """Promised for three visits of a user, with the noise of one."""
    return _other_plan({"privacy": BUDGET}, privacy=replace(BUDGET, participations=3), **fields)


def _distance_not_enforced() -> Case:
    """Promised for three visits that lie apart, and all of them come in one batch."""
    spaced = small_plan(privacy=replace(BUDGET, participations=3, apart=2))
    together = neighbours(small_plan(privacy=replace(BUDGET, participations=3)), 1)
    return faults.with_worlds(small_case(spaced), together)


def _other_distance() -> Case:
    """Visits may come in every batch, and the noise is that of eight syncs between them."""
    right = {"privacy": replace(BUDGET, participations=3, apart=1), "rounds": 64}
    return _other_plan({"privacy": replace(BUDGET, participations=3, apart=8)}, **right)


ENDLESS: dict[str, object] = {"forget": 0.8, "endless": True, "schedule": every(1), "rounds": 28}


def _counted_per_stretch() -> Case:
    """Promised for two visits ever; a silo that forgets whom it has counted lets the same person count four times."""
    promised = small_plan(privacy=replace(BUDGET, participations=2, apart=4), **ENDLESS)
    often = small_plan(privacy=replace(BUDGET, participations=4, apart=4), **ENDLESS)
    return faults.with_worlds(small_case(promised), neighbours(often, 1))


PERSONAL: dict[str, object] = {"trust": "secure-sum", "personal": (0,), "personal_share": 0.4}


def _own_noise(scales: Callable[[PersonalSecureSum], Scales]) -> Case:
    """What a silo releases to itself has other noise than its plan says."""
    plan = small_plan(**PERSONAL)
    protocol = plan.protocol
    assert isinstance(protocol, PersonalSecureSum)
    return with_protocol(small_case(plan), replace(protocol, own_scales=scales(protocol)))


def _own_draw(kind: type[PersonalSecureSum]) -> Case:
    """Both noises are of the claimed size, and one of them is made of the other."""
    plan = small_plan(**PERSONAL)
    protocol = plan.protocol
    assert isinstance(protocol, PersonalSecureSum)
    return with_protocol(small_case(plan), kind(**{f.name: getattr(protocol, f.name) for f in fields(protocol)}))


def _own_not_counted() -> Case:
    """The shared releases spend the whole budget, as if silos released nothing to themselves."""
    return _other_plan({"personal": (), "personal_share": PERSONAL_SHARE}, **PERSONAL)


def _cohort_not_counted() -> Case:
    """Two silos are enough for a sync, and the noise is that of all four."""
    return _other_plan({"cohort": 4}, trust="secure-sum", silos=4, colluding=1, cohort=2)


def _one_colluder_counted() -> Case:
    """Three silos may collude, and the noise is that of one."""
    return _other_plan({"colluding": 1}, trust="secure-sum", silos=5, colluding=3)


def _rule(factor: float) -> Case:
    whole = case("private-adaptive", 1.0, 1e-5)
    game = whole.games[1]
    assert isinstance(game, AdaptiveGame)
    rule = replace(game.rule, scales=game.rule.scales.times(factor))
    return replace(whole, games=(replace(game, rule=rule),))


def _rule_off_diagonal() -> Case:
    whole = case("private-adaptive", 1.0, 1e-5)
    game = whole.games[1]
    assert isinstance(game, AdaptiveGame)
    rule = replace(game.rule, scales=game.rule.scales._replace(off_diagonal=1e-9))
    return replace(whole, games=(replace(game, rule=rule),))


def _bits(kind: type[VectorSumProtocol], name: str = "sdp-vector-sum") -> Case:
    whole = case(name, 1.0, 1e-5)
    protocol = whole.plan.protocol
    return with_protocol(whole, kind(**{f.name: getattr(protocol, f.name) for f in fields(protocol)}))


def _shuffled_too_quietly() -> Case:
    return scaled(case("sdp-amplified", 1.0, 1e-5), 0.5)


def _unnoised_total() -> Case:
    return _protocol_of(faults.LateServer, trust="central")


NOISE: dict[str, Fault] = {
    "noise / 1.5": Fault(lambda: scaled(small_case(small_plan()), 1 / 1.5), "epsilon"),
    "bias without noise": Fault(lambda: faulty(faults.packed(0, 1, 1)), "epsilon"),
    "bias without noise, and said so": Fault(lambda: _unnoised(bias=0.0), "epsilon"),
    "covariance off-diagonals without noise": Fault(
        lambda: faulty(faults.packed(1, 1, 0)), "residuals", "has 0.000 of the claimed variance"
    ),
    "covariance off-diagonals without noise, and said so": Fault(lambda: _unnoised(off_diagonal=0.0), "epsilon"),
    "covariance off-diagonals without noise, d = 2": Fault(lambda: faulty(faults.packed(1, 1, 0), dim=2), "epsilon"),
    "covariance diagonal without noise": Fault(
        lambda: faulty(faults.packed(1, 0, 1)), "residuals", "has 0.000 of the claimed variance"
    ),
    "off-diagonal scale right only at d = 2": Fault(
        lambda: faulty(faults.packed(1, 1, (2 / 3) ** 0.5)), "residuals", "claimed variance"
    ),
    "wrong scale in one entry": Fault(
        lambda: faulty(faults.scaled_entries(faults.one_entry)), "residuals", "entry 7 of silo 0 has 0.7"
    ),
    "the same noise in every release": Fault(lambda: faulty(faults.same_always), "residuals", "one release before"),
    "noise seeded by the sync number": Fault(lambda: faulty(faults.by_sync_number), "residuals", "between runs"),
    "one seed for every process": Fault(lambda: faulty(faults.one_seed), "residuals", "occur more than once"),
    "noise from a table of 4,096 vectors": Fault(lambda: faulty(faults.from_a_table), "residuals", "more than once"),
    "noise reused after a restart": Fault(lambda: faulty(faults.after_restart), "residuals", "more than once"),
    "bias noise equal to diagonal noise": Fault(
        lambda: faulty(faults.bias_is_diagonal), "residuals", "of one release is correlated"
    ),
    "equal-scale numbers share one draw": Fault(
        lambda: faulty(faults.shared_by_scale), "residuals", "of one release is correlated"
    ),
    "correlation in time": Fault(lambda: faulty(faults.in_time), "residuals", "one release before"),
    "every second release with the negated noise": Fault(
        lambda: faulty(faults.antithetic), "residuals", "one release before"
    ),
    "one entry comes back five releases later": Fault(
        lambda: faulty(faults.far_in_time), "residuals", "earlier releases"
    ),
    "bias stream repeats the covariance stream": Fault(
        lambda: faulty(faults.bias_from_before), "residuals", "entry 0 is correlated with that of entry 3"
    ),
    "every other release without noise": Fault(lambda: faulty(faults.every_other), "residuals", "sync"),
    "noise off centre": Fault(lambda: faulty(faults.off_centre), "residuals", "not centred"),
    "Laplace noise of the same variance": Fault(
        lambda: faulty(faults.of_law(lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2))),
        "residuals",
        "not Gaussian",
    ),
    "uniform noise of the same variance": Fault(
        lambda: faulty(faults.of_law(lambda rng, shape: rng.uniform(-(3**0.5), 3**0.5, shape))),
        "residuals",
        "not Gaussian",
    ),
    "noise cut off at 2.5 deviations": Fault(
        lambda: faulty(faults.of_law(faults.cut_off)), "residuals", "not Gaussian"
    ),
    "noise on a grid as wide as itself": Fault(
        lambda: faulty(faults.of_law(faults.coarse)), "residuals", "not Gaussian"
    ),
    "the same noise at every silo": Fault(
        lambda: faulty(faults.same_at_every_silo, SecureSumProtocol, trust="secure-sum"), "residuals", "the next one"
    ),
    "noise correlated between silos": Fault(
        lambda: faulty(faults.alike_silos, SecureSumProtocol, trust="secure-sum"), "residuals", "the next one"
    ),
    "local model, one user's noise for a whole batch": Fault(
        lambda: _protocol_of(faults.OneUserNoise, trust="local", mechanism="batches"), "residuals", "claimed variance"
    ),
    "trusted server begins without noise": Fault(_unnoised_total, "residuals", "sync 0 has"),
    "vector sum with half of its bits": Fault(lambda: _bits(faults.HalfTheBits), "residuals", "claimed variance"),
    "vector sum with all bits at one silo": Fault(
        lambda: _bits(faults.BitsAtOneSilo, "vector-sum"), "residuals", "each silo's counts: noise of entry"
    ),
    "vector sum with the same bits at every silo": Fault(
        lambda: _bits(faults.SameBitsAtEverySilo, "vector-sum"), "residuals", "and the next one is correlated"
    ),
    "a mixer that does not shuffle": Fault(
        lambda: faults.shuffled(faults.NotShuffled), "residuals", "order of the shuffled messages", 400
    ),
    "a mixer that turns the order": Fault(
        lambda: faults.shuffled(faults.Turned), "residuals", "of one release is correlated", 400
    ),
    "a mixer with one order for all syncs": Fault(
        lambda: faults.shuffled(faults.OneOrderForAllSyncs), "residuals", "order of the shuffled messages", 400
    ),
    "the same noise in every release behind a mixer": Fault(
        lambda: faults.shuffled(faults.SameNoiseBehindMixer), "residuals", "noise behind the mixer", 400
    ),
    "releases with the noise that the rule saw first": Fault(
        lambda: faults.one_source("first look"), "residuals", "the rule saw first", 400
    ),
    "releases with the noise that the rule saw last": Fault(
        lambda: faults.one_source("last look"), "residuals", "the rule saw last", 400
    ),
    "a rule with the noise of the release before": Fault(
        lambda: faults.one_source("release before"), "residuals", "the release before it", 400
    ),
    "a rule with the same noise after every sync": Fault(
        lambda: faults.one_source("every interval"), "residuals", "after a sync", 400
    ),
    "half the noise behind a shuffler": Fault(_shuffled_too_quietly, "residuals", "claimed variance", 400),
    "too little noise on the determinant rule": Fault(lambda: _rule(1 / 3), "epsilon", trials=2_000),
    "determinant rule without off-diagonal noise": Fault(_rule_off_diagonal, "epsilon", trials=1_000),
}

SHARES: dict[str, Fault] = {
    "no mask": Fault(lambda: masked(faults.no_mask), "epsilon"),
    "one mask for all syncs": Fault(lambda: masked(faults.one_mask_for_all_syncs), "residuals", "one release before"),
    "the same mask at every silo": Fault(
        lambda: masked(faults.one_mask_for_all_silos), "residuals", "shares of the mixer: the noise of silo"
    ),
    "one mask per process": Fault(lambda: masked(faults.one_mask_per_process), "residuals", "more than once"),
    "one word for all entries": Fault(
        lambda: masked(faults.one_word_for_all_entries), "residuals", "of one release is correlated"
    ),
    "a mask of 32 bits": Fault(lambda: masked(faults.half_a_mask), "residuals", "shares of the mixer"),
    "a mask without low bits": Fault(lambda: masked(faults.mask_without_low_bits), "residuals", "low bits"),
    "a mask that follows what it hides": Fault(
        lambda: masked(faults.mask_that_follows), "residuals", "the noise it hides"
    ),
}

SENSITIVITY: dict[str, Fault] = {
    "features of norm 1.01": Fault(
        lambda: faults.with_pair(lambda user: user._replace(x=1.01 * user.x)), "claimed noise", "epsilon of 4.0"
    ),
    "off-diagonal noise planned as at d = 2": Fault(
        lambda: _planned_scales(off_diagonal=(2 / 3) ** 0.5), "claimed noise", "epsilon of"
    ),
    "one percent too little noise planned": Fault(
        lambda: _planned_scales(0.99, 0.99, 0.99), "claimed noise", "epsilon of 4.0"
    ),
    "features of norm 1.1": Fault(lambda: faults.with_pair(lambda user: user._replace(x=1.1 * user.x)), "epsilon"),
    "rewards up to 1.3": Fault(lambda: faults.with_pair(lambda user: user._replace(y=1.3)), "epsilon"),
    "a user who comes twice": Fault(lambda: faults.coming_often(2), "epsilon"),
    "a user at two silos": Fault(faults.at_two_silos, "epsilon"),
    "visits not counted, in one batch": Fault(_one_visit_counted, "epsilon"),
    "visits not counted, on a clock": Fault(lambda: _one_visit_counted(schedule=clock(60), rounds=8), "epsilon"),
    "visits not counted, in several batches": Fault(
        lambda: _one_visit_counted(schedule=every(1), rounds=8, mechanism="batches"), "epsilon"
    ),
    "the distance between visits not enforced": Fault(_distance_not_enforced, "epsilon"),
    "the noise of visits that lie further apart": Fault(_other_distance, "claimed noise", "epsilon of"),
    "contributions rounded to halves": Fault(lambda: faults.coarsely_rounded(1), "epsilon"),
    "noise for add/remove, neighbours replaced": Fault(
        lambda: _other_plan({"privacy": replace(BUDGET, adjacency="add-remove")}), "epsilon"
    ),
    "column norm of another mechanism": Fault(lambda: _other_plan({"mechanism": "batches"}), "epsilon"),
    "noise of sums that forget under an encoder that does not": Fault(
        lambda: _other_plan({"forget": 0.5}, forget=1.0), "epsilon"
    ),
    "late reward under a mechanism with negative entries": Fault(
        lambda: faults.late_reward(counted=False), "claimed noise", "epsilon of 4."
    ),
    "rewards centred in the plan alone": Fault(lambda: _other_plan({"centre": 0.5}), "epsilon"),
    "the column norm of the first releases, where there is no end": Fault(
        lambda: _other_plan({"endless": False, "rounds": 1}, **ENDLESS), "claimed noise", "epsilon of"
    ),
    "visits counted anew in every stretch, where there is no end": Fault(_counted_per_stretch, "epsilon"),
}

PROTOCOL: dict[str, Fault] = {
    "one release sent twice with fresh noise": Fault(lambda: _protocol_of(faults.OneRedraw), "epsilon"),
    "tree nodes twice": Fault(lambda: _protocol_of(faults.NodesTwice, mechanism="tree"), "epsilon"),
    "acting on raw sums": Fault(_raw_sums, "epsilon"),
    "colluding silos not counted": Fault(_colluding_not_counted, "epsilon"),
    "cohort below the minimum": Fault(_cohort_below_minimum, "epsilon"),
    "the smallest cohort not counted": Fault(_cohort_not_counted, "epsilon"),
    "one colluding silo counted of three": Fault(_one_colluder_counted, "epsilon"),
    "a run without an end loses its memory at a restart": Fault(
        lambda: _protocol_of(faults.LosesMemory, **ENDLESS), "residuals", "not centred"
    ),
    "a run without an end draws a release again after a restart": Fault(
        lambda: _protocol_of(faults.OneRedraw, **ENDLESS), "epsilon"
    ),
    "a silo's own release with its share of the noise": Fault(
        lambda: _own_noise(lambda protocol: protocol.scales), "claimed noise", "epsilon of"
    ),
    "a silo's own release with a tenth less noise than claimed": Fault(
        lambda: _own_noise(lambda protocol: protocol.own_scales.times(0.9)), "residuals", "claimed variance"
    ),
    "a silo's own release with the noise of its shared one": Fault(
        lambda: _own_draw(faults.OneDrawForBoth), "residuals", "of the silo's other noise (", 1_000
    ),
    "a silo's own release with the noise of the shared one before it": Fault(
        lambda: _own_draw(faults.OneDrawForBothLater), "residuals", "other noise one release before", 1_000
    ),
    "a silo's own release with the noise of another silo's shared one": Fault(
        lambda: _own_draw(faults.OneDrawForTwoSilos), "residuals", "silo before", 1_000
    ),
    "silos' own releases not counted": Fault(_own_not_counted, "claimed noise", "epsilon of"),
    "Algorithm 1 as printed": Fault(lambda: case("ldp-eager", 1.0, 1e-5), "epsilon", trials=300),
}

CALENDAR: dict[str, Fault] = {
    "a calendar that counts requests": Fault(faults.shifted_calendar, "epsilon"),
    "a schedule that reads raw sums": Fault(lambda: case("dubey", 1.0, 1e-5), "epsilon", trials=200),
    "one message more for some data": Fault(
        lambda: faults.first_entry_large(faults.SizeByData), "times and sizes", "depends on the user"
    ),
    "padding that depends on data": Fault(
        lambda: faults.first_entry_large(faults.PaddingByData), "times and sizes", "depends on the user"
    ),
}


class Tested(NamedTuple):
    """What is planted in the source, and the test that then fails."""

    plant: Callable[[pytest.MonkeyPatch], None]
    caught_by: Callable[[], None]


def _catch_up(patch: pytest.MonkeyPatch) -> None:
    """A silo of a secure sum folds what it missed into its next message, as it may under trust `silo`."""
    patch.setattr(SecureSumProtocol, "outgoing", SiloProtocol.outgoing)


def _other_weight(patch: pytest.MonkeyPatch) -> None:
    """The analyzer's sums forget a little less than the plan says."""
    right = EndlessEncoder.decode_step

    def wrong(self: EndlessEncoder, state: Stream, released: Integers | Floats) -> tuple[Stream, Floats]:
        return right(replace(self, forget=self.forget + 0.01), state, released)

    patch.setattr(EndlessEncoder, "decode_step", wrong)


def _silent_prior(patch: pytest.MonkeyPatch) -> None:
    """What an earlier term has released is taken for exact."""
    patch.setattr(Prior, "added", lambda self, law, forget: law)


TESTED: dict[str, Tested] = {
    "a decoder that forgets otherwise": Tested(
        _other_weight, lambda: test_endless.test_streams_have_fixed_memory_and_decode_weighted_sums("toeplitz")
    ),
    "a prior's noise left out of the radii": Tested(_silent_prior, test_terms.test_the_noise_of_a_prior_is_in_the_law),
    "catch-up under secure-sum": Tested(
        _catch_up, test_secure_sum.test_no_absence_lets_anybody_move_the_sums_further_than_counted
    ),
}

CATALOGUE = NOISE | SHARES | SENSITIVITY | PROTOCOL | CALENDAR
