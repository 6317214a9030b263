"""What a protocol is asked for, and what it promises in return: the last lines of a proof, with their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

import numpy as np

from fedbandit import _validate, _words
from fedbandit.bandit.statistics import Scales, width
from fedbandit.privacy.accounting import compose_gdp, gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy, at_most, exactly
from fedbandit.privacy.grid import LEAST, SPARE, slack, widened
from fedbandit.privacy.ledger import Cost
from fedbandit.privacy.sensitivity import Adjacency, Shift, joint_shift, late_factor, rounding_shift
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.personal import Personal

__all__ = [
    "BOUNDED_BY_USERS",
    "COMMON_ASSUMPTIONS",
    "ELSEWHERE",
    "FEW_ENOUGH",
    "OWN_CHOICE",
    "OWN_DATA",
    "PLAN_APART",
    "Acting",
    "Built",
    "Calibration",
    "DecodeAt",
    "Guarantee",
    "Request",
    "Uncounted",
    "Visits",
    "nothing",
]

Calibration = Literal["exact", "paper", "published", "literature"]
Acting = Literal["lazy", "eager"]
DecodeAt = Literal["analyzer", "silo"]
Visits = Literal["private", "public"]
Uncounted = Literal["local", "public"]

BOUNDED = "features have norm at most 1 and rewards lie in [0, 1]; a silo refuses anything else"
BOUNDED_BY_USERS = (
    "features have norm at most 1 and rewards lie in [0, 1]: users make sure of it before they add noise, since nobody "
    "else can"
)
FIXED_TIMES = "times and sizes of messages are fixed by the plan, not by data"
DECIDED_TIMES = (
    "the plan fixes the sizes of messages; a noisy rule, whose cost is counted, decides when silos synchronise"
)
COMMON_ASSUMPTIONS = (BOUNDED, FIXED_TIMES)
NEIGHBOURS = {
    "replace-one": (
        "each person: their data are compared with any other person's in their place (replace-one), so how many people "
        "a silo has is not hidden"
    ),
    "add-remove": "each person: taking part is compared with staying away (add-remove)",
}
PUBLIC = "which silos take part, when they synchronise, how long messages are"
PUBLIC_VISITS = (
    "it is public that somebody asks, when and how often they ask, and whether they share: a silo may tick by counting "
    "requests, and people who opt out are not counted"
)
OWN_DATA = (
    "what a silo is told about a person (features, the actions that are offered and allowed, rewards) depends on that "
    "person, on public information (models included) and on chance, not on other people's unreleased data"
)
PLAN_APART = "the plan, including its schema, does not depend on anybody's unreleased data"
FEW_ENOUGH = "no silo counts more than {:,} visits{}: a silo that does stops releasing, and others can see that"
OWN_CHOICE = (
    "where the application chooses instead of the model, its choice depends on the person's own record, on public "
    "information (models included) and on chance, not on other people's unreleased data"
)
NOT_COUNTED = (
    "anybody who has opted out or comes more often{} than that; nothing of such a visit leaves the silo (what counted "
    "before is not taken back), and "
)
SENDS_NOTHING = "anybody who sends nothing; they are served by the public model, like everybody else"
SERVED: dict[Uncounted, str] = {
    "public": "they are served by the public model, like everybody else",
    "local": (
        "they are served by everything the silo knows, including its raw data; people who count are served only by the "
        "public model, and anybody who was once served otherwise never counts again, in this run or a later one, as "
        "far as their user key tells"
    ),
}
SERVED_EAGERLY = "they are served like everybody else, by the public model and the raw sums of the batch so far"
ELSEWHERE = (
    "whoever was served by a silo's raw data counts at no other silo in a later run: no silo sees who visits another"
)
OWN_TOO = "the public model and what their silo has released to itself"
SAME_KEY = "a person who comes to a silo more than once is given the same user key each time"
EMPTY_ROUND = (
    "a person who stays away leaves their round empty, so that everybody else stays in the same batch; this is not so "
    "in a live federation that counts rounds by who comes, so a live federation runs this plan only on a clock"
)
NOISE_ALONE = (
    "a person who stays away sends noise alone instead: users send their own messages, so others would notice a "
    "missing one"
)


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) for one user; where `epsilon` is None, nothing is promised, and the statement says why."""

    statement: str
    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    against: str = ""
    steps: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()  # a reader's questions, and their answers

    @property
    def pair(self) -> str:
        """(epsilon, delta) as text, exactly; "nothing" where nothing is promised."""
        if self.epsilon is None or self.delta is None:
            return "nothing"
        return f"({exactly(self.epsilon)}, {exactly(self.delta)})"

    @property
    def promised(self) -> bool:
        """Whether anything is promised at all."""
        return self.epsilon is not None

    def __str__(self) -> str:
        lines = [self.statement, *(f"  {question}: {answer}." for question, answer in self.answers)]
        if self.steps:
            lines += ["Because:", *(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))]
        if self.assumes:
            lines += ["Assuming:", *(f"  - {assumption}" for assumption in self.assumes)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        answers = _words.tabled((), self.answers) if self.answers else ""
        steps = _words.folded("Because", _words.listed(self.steps, numbered=True)) if self.steps else ""
        assumes = _words.folded("Assuming", _words.listed(self.assumes)) if self.assumes else ""
        return _words.paragraph(self.statement) + answers + steps + assumes


def _apart(syncs: int) -> str:
    """How far visits must lie apart, in words."""
    if syncs < 2:
        return ", each in a batch of its own" if syncs else ""
    return f", each at least {syncs:,} syncs after the last one there"


def nothing(why: str) -> Guarantee:
    """A guarantee that says plainly that there is none, and why."""
    return Guarantee(f"No privacy guarantee: {why}.")


class Built(NamedTuple):
    """What a trust model makes of a request."""

    protocol: Protocol
    guarantee: Guarantee
    spends: Callable[[int], Cost]  # what the release of a sync costs
    assumed_std: float | None = None  # noise of a p-sum over all silos that the published lambda takes, if not as drawn


@dataclass(frozen=True)
class Request:
    """Everything that a trust model needs to know to calibrate itself."""

    silos: int
    rounds: int
    dim: int
    encoder: Encoder
    times: tuple[int, ...]  # rounds after which silos synchronise
    privacy: Privacy | None
    calibration: Calibration
    acting: Acting
    bits: int
    centre: float
    ratio: float  # (covariance noise / bias noise)^2
    cohort: int  # the smallest number of silos in a sync
    colluding: int
    decode_at: DecodeAt
    public_schedule: bool  # False: raw data decide when to synchronise
    share: float  # the share of mu^2 that the releases may spend; the schedule spends the rest
    counted: bool = True  # False: `times` are periods of a clock, and nobody knows how many people come in each
    visits: Visits = "private"
    apprentice: bool = False  # the application may choose in the model's place
    uncounted: Uncounted = "public"
    personal: Personal | None = None  # a release of each silo for itself

    def promise(
        self,
        statement: str,
        against: str,
        steps: Iterable[str],
        assumes: Iterable[str],
        collusion: str,
        missing: str,
        silos_count: bool = True,
    ) -> Guarantee:
        """The guarantee that promises the budget asked for; `collusion` and `missing` say what happens if parties
        collude, or if a silo is missing. `silos_count`: silos are trusted to leave out whoever comes too often;
        otherwise users see to it."""
        privacy = self.asked
        if privacy.adjacency == "add-remove" and self.visits == "public":
            raise _validate.ArgumentError(
                "visits", "must be 'private' under add-remove, which hides whether somebody asks at all; got 'public'"
            )
        public = f"{PUBLIC}, and every model"
        if self.visits == "public":
            public = f"{PUBLIC}, every model, that somebody asks, when and how often they ask, and whether they share"
        answers = (
            ("Against whom", against),
            ("For whom", NEIGHBOURS[privacy.adjacency]),
            ("How often one may come", self._visits(silos_count)),
            ("Who does not count", self._not_counted if silos_count else SENDS_NOTHING),
            ("What is public", public),
            ("If parties collude", collusion),
            ("If a silo is missing", missing),
        )
        return Guarantee(
            statement,
            privacy.epsilon,
            privacy.delta,
            privacy.adjacency,
            against,
            tuple(steps),
            self._assumed(assumes, silos_count),
            answers,
        )

    @property
    def _not_counted(self) -> str:
        """Who does not count, what serves them, and what serves those who do."""
        who = NOT_COUNTED.format(" or sooner" if self.asked.apart else "")
        served = SERVED[self.uncounted] if self.acting == "lazy" else SERVED_EAGERLY
        return who + (served if self.personal is None else served.replace("the public model", OWN_TOO, 1))

    def _assumed(self, assumes: Iterable[str], silos_count: bool) -> tuple[str, ...]:
        """What the trust model assumes, and what every promise assumes with these visits and this schedule."""
        said = [DECIDED_TIMES if self.adaptive and one == FIXED_TIMES else one for one in assumes]
        said += [OWN_DATA, PLAN_APART]
        if silos_count:
            said += [SAME_KEY, *self._few_silos]
        if self.asked.adjacency == "add-remove" and (self.counted or not silos_count):
            said.append(EMPTY_ROUND if silos_count else NOISE_ALONE)
        if self.visits == "public":
            said.append(PUBLIC_VISITS)
        if self.apprentice:
            said.append(OWN_CHOICE)
        if self.uncounted == "local":
            said.append(ELSEWHERE)
        return tuple(said)

    @property
    def _few_silos(self) -> tuple[str, ...]:
        """The assumption that people visit few silos, wherever they could visit more."""
        visits = self.asked.silos_per_user
        if visits >= self.silos:
            return ()
        silos = "1 silo" if visits == 1 else f"{visits:,} silos"
        return (f"nobody visits more than {silos}: no silo sees who visits another, so none of them can enforce it",)

    def _visits(self, silos_count: bool) -> str:
        """How often one person is covered, and who sees to it."""
        privacy = self.asked
        visits = "1 visit" if privacy.participations == 1 else f"{privacy.participations:,} visits"
        silos = "1 silo" if privacy.silos_per_user == 1 else f"each of {privacy.silos_per_user:,} silos"
        over = "ever: the run has no end" if self.encoder.endless else "over the whole run"
        covered = f"the promise covers at most {visits} to {silos}{_apart(privacy.apart)}, {over}"
        if not silos_count:
            return f"{covered}; users enforce this themselves, since nobody else is trusted to"
        across = (
            "; nobody enforces the number of silos, because no silo sees who visits another" if self._few_silos else ""
        )
        return (
            f"{covered}; a silo counts visits by the user key it is given, leaves out those that come more "
            f"often{' or sooner' if privacy.apart else ''}, and takes anybody without a key for a new person{across}"
        )

    @property
    def asked(self) -> Privacy:
        """The budget that was asked for; an error where there is none."""
        if self.privacy is None:
            raise _validate.ArgumentError("privacy", "must be given for every trust but 'none', got None")
        return self.privacy

    def pair_of(self, epsilon: float) -> str:
        """A computed epsilon and the budget's delta, as text."""
        return f"({at_most(epsilon)}, {exactly(self.asked.delta)})"

    @property
    def adaptive(self) -> bool:
        """Whether the data decide when to synchronise, by a private rule or by a raw one."""
        return not self.public_schedule or self.share < 1

    @property
    def largest_batch(self) -> int:
        """The number of users of one silo in its largest batch."""
        return int(np.max(np.diff((0, *self.times))))

    @property
    def shift(self) -> Shift:
        """The largest move of one batch sum by one user, in units of the covariance noise.

        If silos act eagerly, one user can change the action, and so the contribution, of everyone after them in the
        batch. Every batch that the user takes part in may then move as a whole, each of its users by a full
        replacement.
        """
        visits = 1 if self.asked.apart else self.asked.participations
        together = visits * (1 if self.acting == "lazy" else self.largest_batch)
        rounding = rounding_shift(self._moved_by, self.dim, self.bits, self.ratio) + self.release_rounding
        return Shift(joint_shift(self._moved_by, self.reward_bound, self.ratio), rounding, together)

    @property
    def _moved_by(self) -> Adjacency:
        """What one user can do to a single round: acting eagerly, replace somebody else's."""
        return self.asked.adjacency if self.acting == "lazy" else "replace-one"

    @property
    def reward_bound(self) -> float:
        """The largest |y - centre|: both lie in [0, 1]."""
        return max(1 - self.centre, self.centre)

    @property
    def release_rounding(self) -> float:
        """What rounding of releases adds to the shift: half a unit in each number, in either world, in every release.

        That includes releases that the batch no longer enters: two worlds that once differed may round differently for
        ever. The shift is later multiplied by the column norm, and this part of it need not be. To make up for that it
        is divided by the column norm where that is below 1; above, leaving it as it is errs on the safe side.
        """
        release_bits = self.bits + self.encoder.fraction_bits
        one_release = rounding_shift("replace-one", self.dim, release_bits, self.ratio)
        return (
            self.encoder.rounding_units
            * one_release
            * math.sqrt(self.encoder.size)
            / min(1.0, self.encoder.column_norm)
        )

    @property
    def sensitivity(self) -> float:
        """The l2 sensitivity of one silo's whole transcript."""
        return self.reach * self.shift.total * self._late

    @property
    def reach(self) -> float:
        """How far one user moves all releases of a silo, per unit of shift of each batch that they are in.

        It is the norm of the worst column of C or, where visits count in batches that lie apart, of the worst sum of
        columns.
        """
        privacy = self.asked
        if not privacy.apart:
            return self.encoder.column_norm
        return self.encoder.visits_norm(privacy.participations, privacy.apart)

    @property
    def _late(self) -> float:
        """The factor by which a reward that comes in another batch lets a user move the releases further: 1 unless
        columns of C point apart."""
        if not self.encoder.has_negative:
            return 1.0
        return late_factor(self._moved_by, self.reward_bound, self.ratio, self.encoder.overlapping)

    def mu(self, sigma: float, joint_silos: bool) -> float:
        """The GDP parameter of the whole transcript, schedule and silos' own releases included, at noise `sigma` in the
        covariance's units.

        A user who visits several silos moves the sum over all silos by one shift per visited silo (`joint_silos`), but
        each silo's own transcript by one shift: those compose in squares.
        """
        rest = math.sqrt(1 - self.released_share) / gaussian_sigma(self.asked.epsilon, self.asked.delta)
        return compose_gdp(self._moved(joint_silos) / sigma, rest)

    @property
    def released_share(self) -> float:
        """The share of mu^2 left to the shared releases: the schedule and the silos' own releases spend the rest."""
        return self.share - (0.0 if self.personal is None else self.personal.share)

    def own_scales(self) -> Scales:
        """The noise of a silo's release for itself, as it is drawn: enough for the silo alone, at its share of mu^2."""
        assert self.personal is not None
        budget = gaussian_sigma(self.asked.epsilon, self.asked.delta)
        sigma = budget * self._moved(joint_silos=False) / math.sqrt(self.personal.share)
        return self.on_grid(self.exact_scales(sigma))

    def user_shift(self, joint_silos: bool) -> float:
        """How far one user moves the batch sums that are accounted for together, over all their rounds and silos."""
        visits = self.asked.silos_per_user
        return self.shift.total * self._late * (visits if joint_silos else math.sqrt(visits))

    def _moved(self, joint_silos: bool) -> float:
        """How far one user moves the releases that are accounted for together."""
        return self.reach * self.user_shift(joint_silos)

    def exact_sigma(self, joint_silos: bool) -> float:
        """The noise, in the covariance's units, at which the whole transcript meets the budget exactly."""
        budget = gaussian_sigma(self.asked.epsilon, self.asked.delta)
        return budget * self._moved(joint_silos) / math.sqrt(self.released_share)

    def exact_epsilon(self, sigma: float, joint_silos: bool) -> float:
        """The epsilon that noise `sigma` on every number gives, computed exactly, at the budget's delta."""
        return gaussian_epsilon(self.mu(sigma, joint_silos), self.asked.delta)

    def exact_scales(self, sigma: float) -> Scales:
        """Noise laid out exactly for the Frobenius norm: sigma on the diagonal; sigma / sqrt 2 above it, because an
        off-diagonal move counts twice in the Frobenius norm but is released once; sigma / sqrt(ratio) on the bias."""
        return Scales(sigma / math.sqrt(self.ratio), sigma, sigma / math.sqrt(2))

    # -- on the grid ------------------------------------------------------------------------------------------------

    def on_grid(self, scales: Scales) -> Scales:
        """One silo's noise as drawn: a little wider, because it is on a grid; refused where the grid is too coarse.

        See `privacy.grid`. `scales` are in natural units; a release is a multiple of 2^-(bits + fraction_bits).
        """
        step, narrowest = self._grid_step, min(scales)
        if narrowest < LEAST * step:
            raise _validate.ArgumentError(
                "bits",
                f"must be at least {self._bits_for(narrowest)} here, got {self.bits}: noise of {narrowest:.3g} must be "
                f"at least {LEAST:g} grid steps wide, and a step is {step:.3g}",
            )
        return Scales(*(widened(scale, step) for scale in scales))

    @property
    def _grid_step(self) -> float:
        """The step of the release grid."""
        return 2.0 ** -(self.bits + self.encoder.fraction_bits)

    def _bits_for(self, narrowest: float) -> int:
        """The fewest bits at which the grid is fine enough, given that this noise is too narrow for the present grid.

        Exact noise shrinks with the grid, because a finer grid needs less of it for rounding.
        """
        for bits in count(self.bits + 1):
            finer = replace(self, bits=bits)
            shrunk = finer.shift.total / self.shift.total if self.calibration == "exact" else 1.0
            if narrowest * shrunk >= LEAST * finer._grid_step:
                break
        return bits

    def grid_step(self, scales: Scales, whose: str = "Live noise", messages: int = 1) -> str:
        """The step of the proof about the grid, for the noise of one silo or of whoever else draws it; `messages` is
        how many messages of one silo a release has."""
        visits, encoder = self.asked.participations, self.encoder
        releases = max(encoder.size, visits)
        if encoder.endless:  # a release that holds nothing of a person is the same in both worlds
            releases = encoder.touches * visits * self.asked.silos_per_user
        kinds = 1 if self.personal is None else 2  # a silo's own releases have fewer numbers
        numbers = releases * messages * kinds * width(self.dim)
        return (
            f"{whose} is drawn on the grid 2^-{self.bits + self.encoder.fraction_bits}, where it is at least "
            f"{min(scales) / self._grid_step:.3g} steps wide ({LEAST:g} are needed). With {SPARE:g} squared "
            f"steps added to its variance, the grid adds at most {at_most(slack(numbers, self.silos), 1)} to epsilon "
            "and at most that fraction of delta to delta."
        )
