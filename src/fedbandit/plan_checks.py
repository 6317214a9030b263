"""What a plan refuses, and why: values out of range, fields that contradict each other, settings without an effect,
sums that would not fit.

Every refusal carries the field's name (`ArgumentError`), so that the command line and the HTTP service can say which of
their settings is meant.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, get_args

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import Radii
from fedbandit.bandit.policies import UCB
from fedbandit.bandit.prior import Prior
from fedbandit.plan_data import PERSONAL_SHARE
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms
from fedbandit.protocol.endless import LONGEST_WEIGHT
from fedbandit.protocol.guarantee import Acting, Calibration, DecodeAt, Uncounted, Visits
from fedbandit.protocol.trust import names as trust_names
from fedbandit.protocol.trust import trust as declared
from fedbandit.schedule import Adaptive, At, Clock, Every, Schedule

if TYPE_CHECKING:
    from fedbandit.plan import Plan

__all__ = ["check_effects", "check_fields", "check_headroom", "people_that_fit"]

HEADROOM_BITS = 62  # a total, noise included, must stay this far inside 64-bit integers
PEOPLE = 10**9  # people who must fit into the sums of a term on a clock, in all silos: nobody knows how many will come


def check_fields(plan: Plan) -> None:
    """Refuse values that no plan can have, and values that no plan can have together."""
    for name in ("silos", "rounds", "dim"):
        _validate.count(name, getattr(plan, name))
    if not isinstance(plan.privacy, Privacy | None):
        raise ArgumentError("privacy", f"must be a Privacy or None, got {plan.privacy!r}")
    if not isinstance(plan.schedule, Schedule):
        raise ArgumentError("schedule", f"must be made by every, growing, clock or adaptive, got {plan.schedule!r}")
    _validate.one_of("calibration", plan.calibration, get_args(Calibration))
    _validate.one_of("acting", plan.acting, get_args(Acting))
    _validate.one_of("confidence", plan.confidence, get_args(Radii))
    _validate.one_of("decode_at", plan.decode_at, get_args(DecodeAt))
    _validate.one_of("visits", plan.visits, get_args(Visits))
    _validate.count("people", plan.people)
    if plan.uncounted is not None:
        _validate.one_of("uncounted", plan.uncounted, get_args(Uncounted))
    _validate.within("alpha", plan.alpha, 0, 1)
    _validate.positive("exploration", plan.exploration)
    _validate.positive("reward_noise", plan.reward_noise)
    _validate.positive("ratio", plan.ratio)
    if _validate.positive("forget", plan.forget) > 1:
        raise ArgumentError("forget", f"must be at most 1, where nothing is forgotten, got {plan.forget!r}")
    if _validate.count("bits", plan.bits) > HEADROOM_BITS:
        raise ArgumentError("bits", f"must be at most {HEADROOM_BITS}, got {plan.bits}: sums are 64-bit integers")
    _validate.one_of("mechanism", plan.mechanism, mechanisms.names())
    _validate.reward("centre", plan.centre)
    if plan.decode_at not in plan.trusting.decodes_at:
        possible = " or ".join(map(repr, plan.trusting.decodes_at))
        raise ArgumentError("decode_at", f"must be {possible} for trust {plan.trust!r}, got {plan.decode_at!r}")
    if plan.ratio != 1 and plan.calibration not in ("exact", "literature"):
        raise ArgumentError(
            "ratio",
            f"must be 1 unless calibration is 'exact' or 'literature', got {plan.ratio!r}: the others fix the noise",
        )
    if plan.calibration not in plan.trusting.calibrations:
        possible = " or ".join(map(repr, plan.trusting.calibrations))
        raise ArgumentError("calibration", f"must be {possible} for trust {plan.trust!r}, got {plan.calibration!r}")
    if plan.acting == "eager" and isinstance(plan.schedule, Clock):
        raise ArgumentError(
            "acting", "must be 'lazy' with a clock: nobody knows beforehand how many people come between two ticks"
        )
    if plan.cohort is not None and _validate.count("cohort", plan.cohort) > plan.silos:
        raise ArgumentError("cohort", f"must lie between 1 and the {plan.silos} silos, got {plan.cohort!r}")
    if plan.colluding is not None and _validate.count("colluding", plan.colluding, least=0) > plan.silos:
        raise ArgumentError("colluding", f"must be at most the {plan.silos} silos, got {plan.colluding}")
    if plan.privacy is not None and plan.privacy.silos_per_user > plan.silos:
        visits = plan.privacy.silos_per_user
        raise ArgumentError("silos_per_user", f"must be at most the {plan.silos} silos, got {visits}")
    for name in ("apprentice", "endless"):
        if not isinstance(getattr(plan, name), bool):
            raise ArgumentError(name, f"must be true or false, got {getattr(plan, name)!r}")
    _check_eager(plan)


def _check_eager(plan: Plan) -> None:
    """Refuse all but plain ucb where silos act eagerly: their choices depend on others' raw data, outside the proof."""
    if plan.acting == "lazy":
        return
    for name, usual in (("policy", UCB), ("apprentice", False)):
        if getattr(plan, name) != usual:
            raise ArgumentError(name, f"must be left out where silos act eagerly, got {getattr(plan, name)}")


def check_effects(plan: Plan) -> None:
    """Refuse settings that would change nothing: somebody who asks for one expects something of it."""
    trusting = plan.trusting
    if plan.uncounted == "local" and not plan.keeps_local:
        raise ArgumentError(
            "uncounted",
            "must not be 'local' where a silo sees no raw data, nor where silos act eagerly, people visit several "
            "silos, or visits must lie apart to count: people who were served by raw data must never count again",
        )
    _check_spacing(plan)
    _check_forgetting(plan)
    _check_endless(plan)
    _check_personal(plan)
    _check_prior(plan)
    if plan.colluding and not trusting.shares_noise:
        raise ArgumentError(
            "colluding",
            f"must be left out for trust {plan.trust!r}, got {plan.colluding}: it would not change the noise",
        )
    if plan.cohort is not None and plan.cohort < plan.silos and (trusting.whole or not trusting.live):
        why = "it needs every silo" if trusting.whole else "it does not run live, so no silo is ever missing"
        raise ArgumentError("cohort", f"must be left out for trust {plan.trust!r}, got {plan.cohort}: {why}")
    if plan.people != 1 and not isinstance(plan.schedule, Clock):
        raise ArgumentError("people", f"must be 1 without a clock, got {plan.people}: a round is then one visit")
    for name in ("exploration", "reward_noise"):
        if getattr(plan, name) != 1 and plan.confidence != "published":
            raise ArgumentError(
                name,
                f"must be 1 unless confidence is 'published', got {getattr(plan, name)!r}: no other radii use it",
            )


def _check_spacing(plan: Plan) -> None:
    """Refuse visits that lie apart unless silos are lazy and the schedule is public: each then moves one batch."""
    apart = 0 if plan.privacy is None else plan.privacy.apart
    if not apart:
        return
    if plan.acting != "lazy":
        raise ArgumentError(
            "apart", f"must be 0 where silos act eagerly, got {apart}: a visit then changes what others do"
        )
    if isinstance(plan.schedule, Adaptive):
        raise ArgumentError("apart", f"must be 0 where data decide when to synchronise, got {apart}")
    if apart >= len(plan.times) and not plan.endless:
        raise ArgumentError(
            "apart",
            f"must be less than the {len(plan.times)} syncs, got {apart}: nobody could count twice; leave it out",
        )


def _check_forgetting(plan: Plan) -> None:
    """Refuse weighted sums unless calibration is exact, silos act on nothing else, and the calendar is public."""
    if plan.forget == 1:
        return
    for name, needed in (("acting", "lazy"), ("calibration", "exact")):
        if getattr(plan, name) != needed:
            raise ArgumentError("forget", f"must be 1 unless {name} is {needed!r}, got {plan.forget:g}")
    if isinstance(plan.schedule, Adaptive):
        raise ArgumentError("forget", f"must be 1 where data decide when to synchronise, got {plan.forget:g}")


def _check_endless(plan: Plan) -> None:
    """Refuse a run without an end unless sums forget, syncs are evenly spaced, and the trust model is proven for it."""
    if not plan.endless:
        return
    if plan.forget == 1:
        raise ArgumentError(
            "endless", "must be false where nothing is forgotten: set forget below 1, or noise grows for ever"
        )
    even = isinstance(plan.schedule, Clock | Every | At) and getattr(plan.schedule, "ratio", 1) == 1
    if not even:
        raise ArgumentError(
            "endless", f"must be false with {plan.schedule}: a run without an end needs an even clock or every(batch)"
        )
    if plan.forget > LONGEST_WEIGHT:
        raise ArgumentError(
            "forget",
            f"must be at most {LONGEST_WEIGHT:g} in a run without an end, got {plan.forget!r}: a larger weight "
            "remembers too long",
        )
    if not plan.trusting.endless:
        able = ", ".join(name for name in trust_names() if declared(name).endless)
        raise ArgumentError(
            "endless", f"must be false for trust {plan.trust!r}: runs without an end are proven only for {able}"
        )


def _check_personal(plan: Plan) -> None:
    """Refuse a part of theta that is each silo's own unless silos are lazy and the trust model has a release for it."""
    if not plan.personal:
        if plan.personal_share != PERSONAL_SHARE:
            raise ArgumentError("personal_share", "must be left out where nothing is personal: it has no effect")
        return
    _validate.within("personal_share", plan.personal_share, 0, 1)
    for column in plan.personal:
        if isinstance(column, bool) or not isinstance(column, int) or not 0 <= column < plan.dim:
            raise ArgumentError("personal", f"must be numbers of features, 0 to {plan.dim - 1}, got {column!r}")
    if len(set(plan.personal)) < len(plan.personal) or len(plan.personal) >= plan.dim:
        raise ArgumentError("personal", f"must be some of the features, each once, got {plan.personal}")
    if not plan.trusting.personal:
        able = ", ".join(name for name in trust_names() if declared(name).personal)
        raise ArgumentError("personal", f"must be empty for trust {plan.trust!r}: it is possible only for {able}")
    if plan.acting != "lazy" or isinstance(plan.schedule, Adaptive):
        raise ArgumentError("personal", "must be empty unless silos act lazily on a public schedule")


def _check_prior(plan: Plan) -> None:
    """Refuse a prior unless models are made from nothing but releases, with radii that allow for its noise."""
    if plan.prior is None:
        return
    if not isinstance(plan.prior, Prior):
        raise ArgumentError("prior", f"must be a Prior or None, got {plan.prior!r}")
    plan.prior.check(plan.dim)
    if plan.acting != "lazy" or isinstance(plan.schedule, Adaptive):
        raise ArgumentError("prior", "must be left out where silos act eagerly or data decide when to synchronise")
    if plan.confidence == "published":
        raise ArgumentError(
            "prior", "must be left out where confidence is 'published': its radii do not allow for a prior's noise"
        )


def check_headroom(plan: Plan) -> None:
    """Refuse a plan if the sums and noise of the whole federation may not fit into 64-bit integers."""
    people, noise = plan.silos * plan.rounds, _most_noise(plan)
    if isinstance(plan.schedule, Clock):
        people = max(people, PEOPLE)
    bits = math.log2(people + noise) + _bits_of_one(plan)
    if bits <= HEADROOM_BITS:
        return
    possible = plan.bits - math.ceil(bits - HEADROOM_BITS)
    held = f"the sums of {people:,} people and noise of up to {noise:.3g} must fit into 64-bit integers"
    if possible >= 1:
        raise ArgumentError("bits", f"must be at most {possible} here, got {plan.bits}: {held}")
    if noise < people:
        raise ArgumentError("rounds", f"must be fewer: {held}")
    way_out = f"nearer to 1, got {plan.ratio:g}" if plan.ratio != 1 else "1, as it is, with a larger epsilon and delta"
    raise ArgumentError("ratio", f"must be {way_out}: {held}")


def people_that_fit(plan: Plan) -> int:
    """How many people, in all silos over the whole term, have sums that surely fit, with noise, into 64 bits."""
    return max(0, int(2.0 ** (HEADROOM_BITS - _bits_of_one(plan)) - _most_noise(plan)))


def _bits_of_one(plan: Plan) -> float:
    """The number of bits that a contribution of size 1 takes in a release."""
    return plan.protocol.release_bits + math.log2(max(1.0, plan.encoder.column_norm))


def _most_noise(plan: Plan) -> float:
    """A bound that the noise of a sum over all silos does not exceed, as far as chance goes."""
    return 12 * plan.protocol.widest_noise * math.sqrt(plan.silos)
