"""One frozen value that ties everything together: who takes part, what is promised to them, and every number behind it.

No sigma is ever passed around on its own: the simulator, the audit and the live federation all read noise, regulariser,
radii, schedule and guarantee off the plan.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit import _validate, plan_data
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit import confidence as confidences
from fedbandit.bandit import linucb, literature
from fedbandit.bandit.confidence import NOISELESS, Confidence, NoiseLaw, Radii, Rule
from fedbandit.bandit.linucb import Fit
from fedbandit.bandit.policies import UCB, Policy, as_policy
from fedbandit.bandit.prior import Prior
from fedbandit.bandit.statistics import Scales
from fedbandit.plan_checks import check_effects, check_fields, check_headroom, people_that_fit
from fedbandit.plan_data import PERSONAL_SHARE
from fedbandit.privacy.accounting import gaussian_sigma, published_levels
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import Release
from fedbandit.privacy.sensitivity import covariance_shift, rounding_shift
from fedbandit.problem.public_schema import Schema
from fedbandit.protocol import mechanisms, trust
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.determinant import DeterminantRule
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.guarantee import (
    FEW_ENOUGH,
    Acting,
    Built,
    Calibration,
    DecodeAt,
    Guarantee,
    Request,
    Uncounted,
    Visits,
)
from fedbandit.protocol.personal import Personal
from fedbandit.protocol.trust import Trust
from fedbandit.schedule import Adaptive, At, Clock, Every, Growing, Schedule

__all__ = ["Plan"]

RADII: dict[Radii, Rule | None] = {
    "theory": confidences.theory,
    "proof": confidences.proof,
    "practical": confidences.practical,
    "published": None,  # follows from the published simulation's own lambda
    **literature.RADII,
}
MOST_SYNCS = 2**31  # messages number syncs in 32 bits
FORGOTTEN = 1e-9  # a batch with a smaller weight is as good as gone
FEWEST_KEPT = 64  # syncs that parties of an endless run keep at least, however fast it forgets


@dataclass(frozen=True)
class Plan:
    """A federation on paper. The defaults are the best known and the safest.

    Formal guarantee: `guarantee`, derived by the trust model. A plan cannot be made where its theorem does not reach.

    >>> plan = Plan(silos=100, rounds=10_000, dim=10, privacy=Privacy(epsilon=1.0, delta=0.1))
    >>> plan.trust, plan.mechanism, str(plan.schedule), plan.syncs
    ('secure-sum', 'toeplitz', 'growing(1.1)', 79)
    >>> round(plan.noise_std, 2), round(plan.changed(trust="silo").noise_std, 2)
    (5.69, 56.58)
    >>> Plan.from_dict(plan.as_dict()) == plan
    True
    >>> plan.changed(cohort=101)
    Traceback (most recent call last):
    fedbandit._validate.ArgumentError: cohort must lie between 1 and the 100 silos, got 101
    """

    silos: int
    rounds: int
    dim: int = 0  # of the features; a schema sets it
    privacy: Privacy | None = None
    trust: str = "secure-sum"
    mechanism: str = "toeplitz"
    schedule: Schedule = field(default_factory=Growing)
    acting: Acting = "lazy"
    calibration: Calibration = "exact"
    confidence: Radii = "theory"
    alpha: float = 0.01  # the regret bound holds with probability 1 - alpha
    exploration: float = 1.0  # crs of the published simulation, which scales its radii
    reward_noise: float = 1.0  # R of the published simulation: the sub-Gaussian constant of the rewards
    centre: float = 0.0  # subtracted from rewards; 1/2 halves their sensitivity, and needs a constant feature
    ratio: float = 1.0  # (covariance noise / bias noise)^2
    cohort: int | None = None  # the fewest silos in a sync (None: all of them)
    colluding: int | None = None  # silos that may use their own noise against the others (None: 1 if silos share it)
    decode_at: DecodeAt = "analyzer"  # "silo": P_alt
    bits: int = 20  # statistics are kept on the grid 2^-bits
    visits: Visits = "private"  # "public": a live silo may tick by counting who asks
    people: int = 1  # expected visits per silo and round; more than one only with a clock, whose rounds are periods
    uncounted: Uncounted | None = None  # what serves visits that are not released (None: "local" where that is safe)
    schema: Schema | None = None  # how records become features, for applications that send records
    policy: Policy = UCB  # how silos choose; a name is enough
    apprentice: bool = False  # the application may choose in the model's place, and its choice is learnt from
    forget: float = 1.0  # the weight that one sync leaves to the past; below 1, models follow a world that changes
    endless: bool = False  # live silos go on for ever; `rounds` is then how far simulations, audits and radii look
    personal: tuple[int, ...] = ()  # features whose weights are each silo's own, added to the shared theta
    personal_share: float = PERSONAL_SHARE  # share of mu^2 that silos' own releases spend, if there are any
    prior: Prior | None = None  # sums that an earlier term has released: models begin with them

    def __post_init__(self) -> None:
        self._take_schema()
        if not isinstance(self.personal, tuple | list):
            raise ArgumentError("personal", f"must be numbers of features, got {self.personal!r}")
        object.__setattr__(self, "personal", tuple(self.personal))
        _validate.plain_numbers(self)
        object.__setattr__(self, "policy", as_policy(self.policy))
        check_fields(self)
        check_effects(self)
        check_headroom(self)

    # -- what follows from it ---------------------------------------------------------------------------------------

    @cached_property
    def times(self) -> tuple[int, ...]:
        """The rounds after which silos synchronise."""
        return self.schedule.times(self.rounds)

    @cached_property
    def ticks(self) -> Sequence[int]:
        """The rounds after which live silos synchronise: `times` or, in a run without an end, as many as messages can
        number (a daily clock gets there in six million years)."""
        if not self.endless:
            return self.times
        if not isinstance(self.schedule, Clock | Every):
            raise ArgumentError("schedule", f"must be clock or every to go on without an end, got {self.schedule}")
        step = self.schedule.batch if isinstance(self.schedule, Every) else 1
        return range(self.times[0], self.times[0] + MOST_SYNCS * step, step)

    @cached_property
    def reach(self) -> int:
        """The number of syncs after which nothing is left of a batch: its weight in what is decoded is below FORGOTTEN,
        and no release holds it. Parties of a run without an end keep that much of it and no more."""
        if not self.endless:
            return self.encoder.size
        return max(FEWEST_KEPT, self.encoder.touches, math.ceil(math.log(FORGOTTEN) / math.log(self.forget)))

    @property
    def syncs(self) -> int | None:
        """The number of syncs in `rounds`; None where the data decide."""
        return None if isinstance(self.schedule, Adaptive) else len(self.times)

    @cached_property
    def trusting(self) -> Trust:
        """What the trust model declares about itself."""
        return trust.trust(self.trust)

    @property
    def colluders(self) -> int:
        """The number of silos that the promise takes to use their own noise against the others.

        Every silo sees the decoded sums and knows its own noise. So where silos share the noise, one of them is counted
        as colluding by default. Elsewhere it does not matter: 0.
        """
        if not self.trusting.shares_noise:
            return 0
        return 1 if self.colluding is None else self.colluding

    @property
    def serves_uncounted(self) -> Uncounted:
        """What serves visits that are never released: all that their silo knows, or the public model.

        Local knowledge is not for people whom another silo may count: what they do there could depend on it.
        """
        return ("local" if self.keeps_local else "public") if self.uncounted is None else self.uncounted

    @property
    def keeps_local(self) -> bool:
        """Whether people whom a silo serves by local knowledge can be kept out of all releases. They cannot where
        somebody who does not count now, because they are back too soon, will count again later, or counts at another
        silo; nor where silos act eagerly or are shown no raw data."""
        if self.acting != "lazy" or not self.trusting.silo_sees:
            return False
        return self.privacy is None or (self.privacy.silos_per_user == 1 and not self.privacy.apart)

    @property
    def cap(self) -> int | None:
        """How often one person counts in a silo; None, without a budget, means always."""
        return None if self.privacy is None else self.privacy.participations

    @property
    def smallest_cohort(self) -> int:
        """The fewest silos that a sync can have: with fewer it is skipped."""
        return self.silos if self.trusting.whole or self.cohort is None else self.cohort

    @property
    def capacity(self) -> int:
        """How many people, in all silos over the whole term, have sums that surely fit, with noise, into 64 bits."""
        return people_that_fit(self)

    @cached_property
    def encoder(self) -> Encoder:
        """The mechanism over the whole horizon. (With an adaptive schedule a sync may follow every round or, where
        silos synchronise alone, every round of every silo.)"""
        size, forget = self.syncs or len(self._times_or_rounds), float(self.forget)
        if self.endless:
            return mechanisms.endless(self.mechanism, size, forget)
        return mechanisms.encoder(self.mechanism, size, forget)

    @property
    def request(self) -> Request:
        """What the trust model is asked for; sensitivity, sigma and epsilon are read off it."""
        return Request(
            silos=self.silos,
            rounds=self.rounds,
            dim=self.dim,
            encoder=self.encoder,
            times=self._times_or_rounds,
            privacy=self.privacy,
            calibration=self.calibration,
            acting=self.acting,
            bits=self.bits,
            centre=self.centre,
            ratio=self.ratio,
            cohort=self.smallest_cohort,
            colluding=self.colluders,
            decode_at=self.decode_at,
            public_schedule=not isinstance(self.schedule, Adaptive) or self.schedule.private,
            share=1 - self._rule_share,
            counted=not isinstance(self.schedule, Clock),
            visits=self.visits,
            apprentice=self.apprentice,
            uncounted=self.serves_uncounted,
            personal=Personal(self.personal, self.personal_share) if self.personal else None,
        )

    @property
    def protocol(self) -> Protocol:
        """R, S and A."""
        return self._built.protocol

    @property
    def guarantee(self) -> Guarantee:
        """What is promised, to whom, and why.

        >>> guarantee = Plan(100, 10_000, 10, Privacy(1.0, 0.1), trust="silo").guarantee
        >>> guarantee.epsilon, guarantee.delta, guarantee.against
        (1.0, 0.1, "everybody outside the user's silo")
        >>> print(guarantee.steps[-2])
        With that mu it is exactly (1, 0.1)-DP (analytic Gaussian).
        >>> print(Plan(100, 10_000, 10, trust="none").guarantee)
        No privacy guarantee: every silo's sums are sent in the clear.
        """
        promised = self._built.guarantee
        if not promised.promised:
            return promised
        before = () if self.prior is None else (self.prior.step,)
        fits = FEW_ENOUGH.format(self.capacity // self.silos, " in one release" if self.endless else "")
        assumes = (fits,) if isinstance(self.schedule, Clock) and self.trusting.live else ()  # counted rounds fit
        return replace(promised, steps=(*promised.steps, *before), assumes=(*promised.assumes, *assumes))

    @cached_property
    def noise_law(self) -> NoiseLaw:
        """Standard deviations of every decoded (prefix or weighted) sum over all silos, the noise of a prior
        included."""
        gain, scales = self.protocol.prefix_gain(self._visits_by_sync), self.protocol.scales
        off_diagonal = scales.off_diagonal if self.dim > 1 else scales.diagonal  # a 1 x 1 matrix has no such entry
        law = NoiseLaw(scales.bias * gain, scales.diagonal * gain, off_diagonal * gain, silos=self.silos)
        return law if self.prior is None else self.prior.added(law, self.forget)

    @property
    def noise_std(self) -> float:
        """The standard deviation in one entry of the bias vector of the worst released prefix sum over all silos."""
        return float(self.noise_law.bias.max())

    @cached_property
    def learner(self) -> Confidence:
        """Regularisers and radii."""
        rule = RADII[self.confidence]
        if rule is not None:
            return rule(self.noise_law, self.dim, self.alpha)
        size, assumed = self.encoder.size, self._built.assumed_std
        std = math.sqrt(self.silos) * self.protocol.scales.bias if assumed is None else assumed
        regulariser = confidences.published_regulariser(std, self.silos, published_levels(size), self.dim, self.alpha)
        return confidences.published(size, regulariser, self.dim, self.alpha, self.exploration, self.reward_noise)

    @property
    def regulariser(self) -> float:
        """lambda, the largest of all syncs; only practical radii have more than one value."""
        return float(self.learner.regularisers.max())

    def regulariser_after(self, round_: int) -> float:
        """lambda of the model that serves after `round_` rounds: that of the last sync so far, or of the first."""
        last = min(bisect_right(self._times_or_rounds, round_), len(self._times_or_rounds)) - 1
        return float(self.learner.regularisers[max(0, last)])

    def radius(self, round_: int) -> float:
        """beta_t, for a silo that has seen statistics of all silos up to this round (or only its own, if it is alone).

        A visit that is half forgotten counts half, because V holds it with that weight. The randomness of its reward
        enters with the square of the weight, which is smaller still. This is for a theta that does not change; no
        radius covers how it might.
        """
        silos = 1 if self.syncs == 1 else self.silos
        before = 0.0 if self.prior is None else self.prior.counts
        visits = self.remembered(round_) * self.people * silos + before
        return self.learner.radius(visits, self.regulariser_after(round_))

    def remembered(self, round_: int) -> float:
        """The rounds behind what silos know after `round_` of them, each counted with the weight that is left of it."""
        if self.forget == 1:
            return round_
        last = bisect_right(self.times, round_) - 1
        if last < 0:
            return round_
        left, at = self._remembered[last], self.times[last]
        if self.endless and round_ > at and not isinstance(self.schedule, At):
            gap = self.ticks[1] - self.ticks[0]
            following = (round_ - at) // gap  # syncs after those in `times`
            settled = gap / (1 - self.forget)
            left, at = settled + self.forget**following * (left - settled), at + following * gap
        return left + round_ - at

    def radius_alone(self, visits: float) -> float:
        """The radius for a silo's own raw data of `visits` visits: there is no noise to allow for."""
        return self._noiseless.radius(visits, NOISELESS)

    def known(self, prefix: Floats, round_: int, prior: Floats | None = None) -> Floats:
        """All that is public after `round_` rounds: the prefix sums of this term (..., width) and the sums that it
        began with. `prior` takes the place of the plan's own prior sums, because every simulated run has its own."""
        if self.prior is None:
            return prefix
        ticks = self.times if isinstance(self.schedule, At) else self.ticks
        return prefix + self.prior.left(bisect_right(ticks, round_) - 1, self.forget, prior)

    def fit(self, prefix: Floats, round_: int, prior: Floats | None = None) -> Fit:
        """The model that silos decide by after `round_` rounds, from the prefix sums (..., width) over all silos.

        No eigenvalue of V may fall below half of lambda, which is at most lambda_min of Assumption "Regularity".
        """
        regulariser, known = self.regulariser_after(round_), self.known(prefix, round_, prior)
        return linucb.fit(known, self.dim, regulariser, regulariser / 2, self.radius(round_))

    @cached_property
    def rule(self) -> DeterminantRule:
        """The determinant rule of an adaptive schedule; its noise is zero unless the rule is private."""
        if not isinstance(self.schedule, Adaptive):
            raise ArgumentError("schedule", f"must be adaptive to have a determinant rule, got {self.schedule}")
        sigma = self.schedule_sigma
        scales = Scales(0.0, sigma, sigma * math.sqrt(0.5))
        tree, patient = mechanisms.encoder("tree", self.rounds), not self.schedule.alone
        return DeterminantRule(self.dim, self.bits, self.schedule.threshold, scales, tree, patient)

    @property
    def schedule_sigma(self) -> float:
        """Noise of the private determinant rule, a tree over single rounds with its own share of mu^2; 0 without one.

        A user who visits several silos is seen by the rule of each of them: those compose in squares.
        """
        if self.privacy is None or not self._rule_share:
            return 0.0
        adjacency = self.privacy.adjacency
        one_round = covariance_shift(adjacency) + rounding_shift(adjacency, self.dim, self.bits, ratio=0.0)
        shift = one_round * self.privacy.participations * math.sqrt(self.privacy.silos_per_user)
        column = mechanisms.encoder("tree", self.rounds).column_norm
        return gaussian_sigma(self.privacy.epsilon, self.privacy.delta) * shift * column / math.sqrt(self._rule_share)

    @property
    def bytes_per_silo(self) -> int | None:
        """The payload that one silo sends over the whole horizon, at 8 bytes per number; None where the data decide."""
        if self.syncs is None:
            return None
        return self.syncs * self.protocol.sent_parts * self.protocol.width * 8

    def release(self, silo: str, term: int, sync: int) -> Release | None:
        """What release `sync` of a silo spends, as an event of its ledger; None for a plan without a budget."""
        if self.privacy is None:
            return None
        return Release(
            silo=silo,
            plan=self.hash,
            term=term,
            trust=self.trust,
            mechanism=self.mechanism,
            syncs=0 if self.endless else self.encoder.size,
            sync=sync,
            released=self.protocol.sends,
            adjacency=self.privacy.adjacency,
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            cost=self._built.spends(sync),
            visits=self.privacy.participations if self.privacy.apart else 1,
            apart=self.privacy.apart,
            forget=self.forget,
        )

    # -- as data ----------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data; `from_dict` reads it back."""
        return plan_data.as_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """The plan that `as_dict` wrote; unknown names are refused. A file may also hold a table `consortium`, which
        says for whom the plan was chosen; it is ignored."""
        return cls(**plan_data.values(data, cls.__dataclass_fields__))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan in a TOML or JSON file.

        >>> import tempfile
        >>> plan = Plan(12, 365, 20, Privacy(1.0, 1e-6), schedule=Clock(86400), people=20)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "plan.toml"
        ...     plan.save(file)
        ...     Plan.load(file) == plan
        True
        """
        return cls.from_dict(plan_data.read(path))

    def save(self, path: str | Path, consortium: Mapping[str, Any] | None = None) -> None:
        """Write the whole plan, defaults included, as TOML or JSON, by the ending of the name; the `consortium` that it
        was chosen for goes into a table of its own."""
        plan_data.write(path, self.as_dict(), consortium)

    def in_visits(self) -> Plan:
        """The same plan with one round per visit: what the simulator plays instead of a clock with `people`."""
        if not isinstance(self.schedule, Clock):
            return self
        visits = self._visits_by_sync
        return self.changed(rounds=visits[-1], schedule=At(visits), people=1)

    @cached_property
    def hash(self) -> str:
        """The hash of the whole plan: two parties whose plans hash alike encode, calibrate and decode alike."""
        text = json.dumps({**self.as_dict(), "encoder": self.encoder.fingerprint}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def changed(self, **fields: Any) -> Plan:
        """A copy with some fields changed, checked anew. Another schema brings its own dimension."""
        if "schema" in fields and fields["schema"] is not None:
            fields.setdefault("dim", 0)
        return replace(self, **fields)

    def _repr_html_(self) -> str:
        return plan_data.as_html(self)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the fields. Everything else follows from them and is derived again where it is needed."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    # -- inside -----------------------------------------------------------------------------------------------------

    @cached_property
    def _built(self) -> Built:
        return trust.build(self.trust, self.request)

    @cached_property
    def _remembered(self) -> tuple[float, ...]:
        """The rounds behind what is known at each sync, each counted with the weight that is left of it."""
        return tuple(accumulate(np.diff((0, *self.times)).tolist(), lambda left, new: self.forget * left + new))

    @cached_property
    def _noiseless(self) -> Confidence:
        rule, silent = RADII[self.confidence], NoiseLaw(*(np.zeros(1) for _ in Scales._fields))
        if rule is not None:
            return rule(silent, self.dim, self.alpha)
        return confidences.published(1, NOISELESS, self.dim, self.alpha, self.exploration, self.reward_noise)

    @cached_property
    def _times_or_rounds(self) -> tuple[int, ...]:
        """The calendar or, where the data decide, every round; where silos synchronise alone, every round of every
        silo, one after the other."""
        if not isinstance(self.schedule, Adaptive):
            return self.times
        return tuple(range(1, self.rounds * (self.silos if self.schedule.alone else 1) + 1))

    @property
    def _visits_by_sync(self) -> tuple[int, ...]:
        """Visits to one silo by each sync: one per round, or `people` per round where rounds are periods of a clock."""
        return tuple(self.people * time for time in self._times_or_rounds)

    @property
    def _rule_share(self) -> float:
        """The share of mu^2 that a private determinant rule spends."""
        return 0.5 if isinstance(self.schedule, Adaptive) and self.schedule.private else 0.0

    def _take_schema(self) -> None:
        """Take the dimension from the schema, if there is one."""
        if self.schema is None:
            return
        if not isinstance(self.schema, Schema):
            raise ArgumentError("schema", f"must be a Schema or None, got {self.schema!r}")
        if self.dim not in (0, self.schema.dim):
            raise ArgumentError("dim", f"must be left out or the schema's, {self.schema.dim}, got {self.dim!r}")
        object.__setattr__(self, "dim", self.schema.dim)
