"""One frozen value that ties everything together: who takes part, what is promised to them, and every number behind it.

No sigma is ever passed around loose: noise, regulariser, radii, schedule and guarantee are all read off the plan, by
the simulator, the audit and the live federation alike.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

import numpy as np
import tomli_w

from fedbandit import _html, _validate
from fedbandit import schedule as schedules
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit import confidence as confidences
from fedbandit.bandit import linucb, literature
from fedbandit.bandit.confidence import NOISELESS, Confidence, NoiseLaw, Radii, Rule
from fedbandit.bandit.linucb import Fit
from fedbandit.bandit.policies import UCB, Policy, as_policy
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import gaussian_sigma, published_levels
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import Release
from fedbandit.privacy.sensitivity import covariance_shift, rounding_shift
from fedbandit.problem.public_schema import Schema
from fedbandit.protocol import mechanisms, trust
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.determinant import DeterminantRule
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.guarantee import Acting, Built, Calibration, DecodeAt, Guarantee, Request, Uncounted, Visits
from fedbandit.protocol.trust import Trust
from fedbandit.schedule import Adaptive, At, Clock, Growing, Schedule

__all__ = ["Plan"]

RADII: dict[Radii, Rule | None] = {
    "theory": confidences.theory,
    "proof": confidences.proof,
    "practical": confidences.practical,
    "published": None,  # follows from the published simulation's own lambda
    **literature.RADII,
}
HEADROOM_BITS = 62  # a total, noise included, must stay this far inside 64-bit integers
# Fields that came later, and what plans written without them mean. A plan that says nothing else does not name them, so
# that it keeps its identity.
LATER: dict[str, Any] = {
    "people": 1,
    "uncounted": None,
    "schema": None,
    "policy": UCB,
    "apprentice": False,
    "forget": 1.0,
}
CONSORTIUM = "consortium"  # the table of a plan's file that says what the plan was chosen for
PEOPLE = 10**9  # who must fit into the sums of a term on a clock, all silos together: nobody knows how many will come


@dataclass(frozen=True)
class Plan:
    """A federation on paper. The defaults are the best known and the safest.

    Formal guarantee: `guarantee`, derived by the trust model; construction fails where its theorem does not reach.

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
    dim: int = 0  # of the features; a schema says it
    privacy: Privacy | None = None
    trust: str = "secure-sum"
    mechanism: str = "toeplitz"
    schedule: Schedule = field(default_factory=Growing)
    acting: Acting = "lazy"
    calibration: Calibration = "exact"
    confidence: Radii = "theory"
    alpha: float = 0.01  # the regret bound holds with probability 1 - alpha
    exploration: float = 1.0  # crs of the published simulation: scales its radii
    reward_noise: float = 1.0  # R of the published simulation: sub-Gaussian constant of the rewards
    centre: float = 0.0  # subtracted from rewards; 1/2 halves their sensitivity, and needs a constant feature
    ratio: float = 1.0  # (covariance noise / bias noise)^2
    cohort: int | None = None  # fewest silos in a sync (None: all of them)
    colluding: int | None = None  # silos that may use their own noise against the others (None: 1 if silos share it)
    decode_at: DecodeAt = "analyzer"  # "silo": P_alt
    bits: int = 20  # statistics are kept on the grid 2^-bits
    visits: Visits = "private"  # "public": a live silo may tick by counting who asks
    people: int = 1  # expected visits per silo and round; only a clock, whose rounds are periods, has more than one
    uncounted: Uncounted | None = None  # what serves visits that are not released (None: "local" where that is safe)
    schema: Schema | None = None  # how records become features, for applications that send records
    policy: Policy = UCB  # how silos choose; a name is enough
    apprentice: bool = False  # the application may choose in the model's place, and its choice is learnt from
    forget: float = 1.0  # the weight that one sync leaves to the past; below 1 models follow a world that changes

    def __post_init__(self) -> None:
        self._take_schema()
        _validate.plain_numbers(self)
        for name in ("silos", "rounds", "dim"):
            _validate.count(name, getattr(self, name))
        if not isinstance(self.privacy, Privacy | None):
            raise ArgumentError("privacy", f"must be a Privacy or None, got {self.privacy!r}")
        if not isinstance(self.schedule, Schedule):
            raise ArgumentError("schedule", f"must be made by every, growing, clock or adaptive, got {self.schedule!r}")
        _validate.one_of("calibration", self.calibration, get_args(Calibration))
        _validate.one_of("acting", self.acting, get_args(Acting))
        _validate.one_of("confidence", self.confidence, RADII)
        _validate.one_of("decode_at", self.decode_at, get_args(DecodeAt))
        _validate.one_of("visits", self.visits, get_args(Visits))
        _validate.count("people", self.people)
        if self.uncounted is not None:
            _validate.one_of("uncounted", self.uncounted, get_args(Uncounted))
        _validate.within("alpha", self.alpha, 0, 1)
        _validate.positive("exploration", self.exploration)
        _validate.positive("reward_noise", self.reward_noise)
        _validate.positive("ratio", self.ratio)
        if _validate.positive("forget", self.forget) > 1:
            raise ArgumentError("forget", f"must be at most 1, where nothing is forgotten, got {self.forget!r}")
        if _validate.count("bits", self.bits) > HEADROOM_BITS:
            raise ArgumentError("bits", f"must be at most {HEADROOM_BITS}, got {self.bits}: sums are 64-bit integers")
        _validate.one_of("mechanism", self.mechanism, mechanisms.names())
        _validate.reward("centre", self.centre)
        if self.decode_at not in self.trusting.decodes_at:
            possible = " or ".join(map(repr, self.trusting.decodes_at))
            raise ArgumentError("decode_at", f"must be {possible} for trust {self.trust!r}, got {self.decode_at!r}")
        if self.ratio != 1 and self.calibration not in ("exact", "literature"):
            raise ArgumentError(
                "ratio", f"must be 1 unless calibration is 'exact', got {self.ratio!r}: others fix the noise"
            )
        if self.calibration not in self.trusting.calibrations:
            possible = " or ".join(map(repr, self.trusting.calibrations))
            raise ArgumentError("calibration", f"must be {possible} for trust {self.trust!r}, got {self.calibration!r}")
        if self.acting == "eager" and isinstance(self.schedule, Clock):
            raise ArgumentError(
                "acting", "must be 'lazy' with a clock: nobody knows beforehand how many people come between two ticks"
            )
        if self.cohort is not None and _validate.count("cohort", self.cohort) > self.silos:
            raise ArgumentError("cohort", f"must lie between 1 and the {self.silos} silos, got {self.cohort!r}")
        if self.colluding is not None and _validate.count("colluding", self.colluding, least=0) > self.silos:
            raise ArgumentError("colluding", f"must be at most the {self.silos} silos, got {self.colluding}")
        if self.privacy is not None and self.privacy.silos_per_user > self.silos:
            visits = self.privacy.silos_per_user
            raise ArgumentError("silos_per_user", f"must be at most the {self.silos} silos, got {visits}")
        object.__setattr__(self, "policy", as_policy(self.policy))
        if not isinstance(self.apprentice, bool):
            raise ArgumentError("apprentice", f"must be true or false, got {self.apprentice!r}")
        self._check_policy()
        self._check_effects()
        self._check_headroom()

    # -- what follows from it ---------------------------------------------------------------------------------------

    @cached_property
    def times(self) -> tuple[int, ...]:
        """Rounds after which silos synchronise."""
        return self.schedule.times(self.rounds)

    @property
    def syncs(self) -> int | None:
        """How many syncs there are; None where the data decide."""
        return None if isinstance(self.schedule, Adaptive) else len(self.times)

    @cached_property
    def trusting(self) -> Trust:
        """What the trust model declares about itself."""
        return trust.trust(self.trust)

    @property
    def colluders(self) -> int:
        """Silos that the promise counts on to use their own noise against the others.

        Every silo sees the decoded sums and knows its own noise, so where silos share the noise one of them is counted
        by default. Elsewhere it does not matter: 0.
        """
        if not self.trusting.shares_noise:
            return 0
        return 1 if self.colluding is None else self.colluding

    @property
    def serves_uncounted(self) -> Uncounted:
        """What serves visits that are never released: all that their silo knows, or the public model like the others.

        Local knowledge is not for people whom another silo may count: what they do there could depend on it.
        """
        return ("local" if self._keeps_local else "public") if self.uncounted is None else self.uncounted

    @property
    def cap(self) -> int | None:
        """How often one person counts in a silo; None without a budget: always."""
        return None if self.privacy is None else self.privacy.participations

    @property
    def smallest_cohort(self) -> int:
        """Fewest silos that a sync can have: with fewer it is skipped."""
        return self.silos if self.trusting.whole or self.cohort is None else self.cohort

    @property
    def capacity(self) -> int:
        """People, all silos and the whole term together, whose sums and noise surely fit into 64-bit integers."""
        return max(0, int(2.0 ** (HEADROOM_BITS - self._bits_of_one) - self._most_noise))

    @cached_property
    def encoder(self) -> Encoder:
        """The mechanism over the whole horizon (an adaptive schedule may synchronise after every round, and every silo
        of its own if silos come alone)."""
        return mechanisms.encoder(self.mechanism, self.syncs or len(self._times_or_rounds), float(self.forget))

    @property
    def request(self) -> Request:
        """What the trust model is asked for: sensitivity, sigma and epsilon are read off it."""
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
        That mu is exactly (1, 0.1)-DP (analytic Gaussian).
        >>> print(Plan(100, 10_000, 10, trust="none").guarantee)
        No privacy guarantee: every silo's sums are sent in the clear.
        """
        return self._built.guarantee

    @cached_property
    def noise_law(self) -> NoiseLaw:
        """Standard deviations of every decoded (prefix or weighted) sum over all silos."""
        gain, scales = self.protocol.prefix_gain(self._times_or_rounds), self.protocol.scales
        off_diagonal = scales.off_diagonal if self.dim > 1 else scales.diagonal  # a 1 x 1 matrix has no such entry
        return NoiseLaw(scales.bias * gain, scales.diagonal * gain, off_diagonal * gain, silos=self.silos)

    @property
    def noise_std(self) -> float:
        """Standard deviation in one entry of the bias vector of the worst released prefix sum over all silos."""
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
        """lambda, the largest of all syncs: only practical radii have more than one."""
        return float(self.learner.regularisers.max())

    def regulariser_after(self, round_: int) -> float:
        """lambda of the model that serves after `round_` rounds: that of the last sync until then, or of the first."""
        return float(self.learner.regularisers[max(0, bisect_right(self._times_or_rounds, round_) - 1)])

    def radius(self, round_: int) -> float:
        """beta_t, for a silo that has seen statistics of all silos up to this round (or its own, if it is alone).

        Visits that are half forgotten count half: V holds them with their weights, of which the squares, smaller still,
        stand before the chance in rewards. That is for a theta that does not change; no radius covers how it might.
        """
        silos = 1 if self.syncs == 1 else self.silos
        return self.learner.radius(self.remembered(round_) * self.people * silos, self.regulariser_after(round_))

    def remembered(self, round_: int) -> float:
        """Rounds behind what silos know after `round_` of them, each as much as is left of it."""
        if self.forget == 1:
            return round_
        last = bisect_right(self.times, round_) - 1
        return round_ if last < 0 else self._remembered[last] + round_ - self.times[last]

    def radius_alone(self, visits: float) -> float:
        """The same for a silo's own raw data of so many visits: there is no noise to allow for."""
        return self._noiseless.radius(visits, NOISELESS)

    def fit(self, prefix: Floats, round_: int) -> Fit:
        """The model that silos decide by after `round_` rounds, from the prefix sums (..., width) over all silos.

        No eigenvalue of V may fall below half of lambda, at most lambda_min of Assumption "Regularity".
        """
        regulariser = self.regulariser_after(round_)
        return linucb.fit(prefix, self.dim, regulariser, regulariser / 2, self.radius(round_))

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

        A user who visits several silos is seen by the rule of each: those compose in squares.
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
        """Payload that one silo sends over the whole horizon, 8 bytes per number; None where the data decide."""
        if self.syncs is None:
            return None
        return self.syncs * len(self.protocol.parts) * self.protocol.width * 8

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
            syncs=self.encoder.size,
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
        data = asdict(self)
        data["schedule"] = schedules.as_dict(self.schedule)
        if self.privacy is not None:
            data["privacy"] = self.privacy.as_dict()
        if self.schema is not None:
            data["schema"] = self.schema.as_dict()
        for name, meant in LATER.items():
            if getattr(self, name) == meant:
                del data[name]
        return json.loads(json.dumps(data, default=_plain))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """The plan that `as_dict` wrote; unknown names are refused. A table `consortium`, for whom the plan was chosen,
        may stand beside it in a file and is left alone."""
        data = {name: value for name, value in data.items() if name != CONSORTIUM}
        sizes = ("silos", "rounds") if data.get("schema") else ("silos", "rounds", "dim")
        _validate.known_keys("plan", data, cls.__dataclass_fields__, required=sizes)
        values = dict(data)
        if isinstance(values.get("privacy"), dict):
            values["privacy"] = Privacy.from_dict(values["privacy"])
        if isinstance(values.get("schedule"), dict):
            values["schedule"] = schedules.from_dict(values["schedule"])
        if isinstance(values.get("schema"), dict):
            values["schema"] = Schema.from_dict(values["schema"])
        if isinstance(values.get("policy"), dict):
            values["policy"] = as_policy(values["policy"])
        return cls(**values)

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
        text, file = Path(path).read_text(encoding="utf-8"), Path(path)
        data = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        if not isinstance(data, dict):
            raise ArgumentError("plan", f"must be a table of fields, got {type(data).__name__}")
        return cls.from_dict(data)

    def save(self, path: str | Path, consortium: Mapping[str, Any] | None = None) -> None:
        """Write the whole plan as TOML, defaults included; in a table of its own the `consortium` it was chosen for."""
        data = self.as_dict() | ({} if consortium is None else {CONSORTIUM: dict(consortium)})
        Path(path).write_text(tomli_w.dumps(_without_none(data)), encoding="utf-8")

    def in_visits(self) -> Plan:
        """The same plan with one round per visit: what the simulator plays in the place of a clock with `people`."""
        if not isinstance(self.schedule, Clock):
            return self
        visits = tuple(self.people * time for time in self.times)
        return self.changed(rounds=visits[-1], schedule=At(visits), people=1)

    @cached_property
    def hash(self) -> str:
        """Two parties whose plans hash alike encode, calibrate and decode alike."""
        text = json.dumps({**self.as_dict(), "encoder": self.encoder.fingerprint}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def changed(self, **fields: Any) -> Plan:
        """A copy with some fields changed, checked anew. Another schema brings its own dimension."""
        if "schema" in fields and fields["schema"] is not None:
            fields.setdefault("dim", 0)
        return replace(self, **fields)

    def _repr_html_(self) -> str:
        budget = "none" if self.privacy is None else self.privacy.pair
        sent = "by data" if self.bytes_per_silo is None else f"{self.bytes_per_silo:,} bytes per silo"
        rows = [
            ("silos, rounds, dimension", f"{self.silos:,}, {self.rounds:,}, {self.dim}"),
            ("budget", budget),
            ("trust", self.trust),
            ("mechanism, schedule, acting", f"{self.mechanism}, {self.schedule}, {self.acting}"),
            ("policy", str(self.policy)),
            ("syncs", "by data" if self.syncs is None else f"{self.syncs:,}"),
            ("sent", sent),
            ("noise of the worst decoded sum", f"{self.noise_std:.4g}"),
            ("lambda", f"{self.regulariser:.4g}"),
            ("hash", self.hash[:12]),
        ]
        schema = "" if self.schema is None else self.schema._repr_html_()
        return _html.tabled((), rows, "Plan") + self.guarantee._repr_html_() + schema

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the fields. Everything else follows from them and is derived again where it is needed."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    # -- inside -----------------------------------------------------------------------------------------------------

    @cached_property
    def _built(self) -> Built:
        return trust.build(self.trust, self.request)

    @cached_property
    def _remembered(self) -> tuple[float, ...]:
        """What is left of all rounds, at each sync."""
        return tuple(accumulate(np.diff((0, *self.times)).tolist(), lambda left, new: self.forget * left + new))

    @cached_property
    def _noiseless(self) -> Confidence:
        rule, silent = RADII[self.confidence], NoiseLaw(*(np.zeros(1) for _ in Scales._fields))
        if rule is not None:
            return rule(silent, self.dim, self.alpha)
        return confidences.published(1, NOISELESS, self.dim, self.alpha, self.exploration, self.reward_noise)

    @cached_property
    def _times_or_rounds(self) -> tuple[int, ...]:
        """The calendar, or every round where the data decide: that of every silo, one after the other, if they come
        alone."""
        if not isinstance(self.schedule, Adaptive):
            return self.times
        return tuple(range(1, self.rounds * (self.silos if self.schedule.alone else 1) + 1))

    @property
    def _rule_share(self) -> float:
        """What a private determinant rule spends of mu^2."""
        return 0.5 if isinstance(self.schedule, Adaptive) and self.schedule.private else 0.0

    @property
    def _keeps_local(self) -> bool:
        """Whether those whom a silo serves by local knowledge can be kept out of all releases: not where somebody who
        does not count now, being back too soon, will count again, or counts at another silo."""
        privacy = self.privacy
        return self.acting == "lazy" and (privacy is None or (privacy.silos_per_user == 1 and not privacy.apart))

    def _take_schema(self) -> None:
        """The dimension, from the schema if there is one."""
        if self.schema is None:
            return
        if not isinstance(self.schema, Schema):
            raise ArgumentError("schema", f"must be a Schema or None, got {self.schema!r}")
        if self.dim not in (0, self.schema.dim):
            raise ArgumentError("dim", f"must be left out or the schema's, {self.schema.dim}, got {self.dim!r}")
        object.__setattr__(self, "dim", self.schema.dim)

    def _check_policy(self) -> None:
        """Anything but ucb is for lazy silos, as the proof is: an eager choice depends on others' raw data."""
        if self.acting == "lazy":
            return
        for name in ("policy", "apprentice"):
            if getattr(self, name) != LATER[name]:
                raise ArgumentError(name, f"must be left out where silos act eagerly, got {getattr(self, name)}")

    def _check_effects(self) -> None:
        """Refuse what would change nothing: whoever asks for it expects something of it."""
        trusting = self.trusting
        if self.uncounted == "local" and not self._keeps_local:
            raise ArgumentError(
                "uncounted",
                "must not be 'local' where silos act eagerly, people visit several, or visits count only some syncs "
                "apart: whoever was served by raw data must never count again",
            )
        self._check_spacing()
        self._check_forgetting()
        if self.colluding and not trusting.shares_noise:
            raise ArgumentError(
                "colluding",
                f"must be left out for trust {self.trust!r}, got {self.colluding}: its noise is not planned for that",
            )
        if self.cohort is not None and self.cohort < self.silos and (trusting.whole or not trusting.live):
            why = "it counts on every silo" if trusting.whole else "it does not run live, and nobody is ever missing"
            raise ArgumentError("cohort", f"must be left out for trust {self.trust!r}, got {self.cohort}: {why}")
        if self.people != 1 and not isinstance(self.schedule, Clock):
            raise ArgumentError("people", f"must be 1 unless a clock ticks, got {self.people}: a round is a visit")
        for name in ("exploration", "reward_noise"):
            if getattr(self, name) != 1 and self.confidence != "published":
                raise ArgumentError(
                    name,
                    f"must be 1 unless confidence is 'published', got {getattr(self, name)!r}: no other radii use it",
                )

    def _check_spacing(self) -> None:
        """Visits that lie apart are for lazy silos on a public schedule: there each visit moves one batch."""
        apart = 0 if self.privacy is None else self.privacy.apart
        if not apart:
            return
        if self.acting != "lazy":
            raise ArgumentError("apart", f"must be 0 where silos act eagerly, got {apart}: a visit moves others, too")
        if isinstance(self.schedule, Adaptive):
            raise ArgumentError("apart", f"must be 0 where data decide when to synchronise, got {apart}")
        if apart >= len(self.times):
            raise ArgumentError(
                "apart",
                f"must be less than the {len(self.times)} syncs, got {apart}: nobody counts twice; leave it out",
            )

    def _check_forgetting(self) -> None:
        """Weighted sums are for what is exactly calibrated, by silos that act on nothing else, on a public calendar."""
        if self.forget == 1:
            return
        for name, needed in (("acting", "lazy"), ("calibration", "exact")):
            if getattr(self, name) != needed:
                raise ArgumentError("forget", f"must be 1 unless {name} is {needed!r}, got {self.forget:g}")
        if isinstance(self.schedule, Adaptive):
            raise ArgumentError("forget", f"must be 1 where data decide when to synchronise, got {self.forget:g}")

    def _check_headroom(self) -> None:
        """Sums and noise of the whole federation must fit into 64-bit integers."""
        people, noise = self.silos * self.rounds, self._most_noise
        if isinstance(self.schedule, Clock):
            people = max(people, PEOPLE)
        bits = math.log2(people + noise) + self._bits_of_one
        if bits <= HEADROOM_BITS:
            return
        possible = self.bits - math.ceil(bits - HEADROOM_BITS)
        held = f"the sums of {people:,} people and noise of up to {noise:.3g} must fit into 64-bit integers"
        if possible >= 1:
            raise ArgumentError("bits", f"must be at most {possible} here, got {self.bits}: {held}")
        if noise < people:
            raise ArgumentError("rounds", f"must be fewer: {held}")
        way_out = f"nearer to 1, got {self.ratio:g}" if self.ratio != 1 else "1 already, and epsilon and delta larger"
        raise ArgumentError("ratio", f"must be {way_out}: {held}")

    @property
    def _bits_of_one(self) -> float:
        """Bits that a contribution of size 1 takes in a release."""
        return self.protocol.release_bits + math.log2(max(1.0, self.encoder.column_norm))

    @property
    def _most_noise(self) -> float:
        """No noise of a sum over all silos is larger than that, as far as chance goes."""
        return 12 * max(self.protocol.scales) * math.sqrt(self.silos)


def _without_none(data: dict[str, Any]) -> dict[str, Any]:
    """TOML has no word for None: what is left out means it."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in data.items()
        if value is not None
    }


def _plain(number: np.generic) -> Any:
    """A numpy number as Python's own."""
    return number.item()
