"""One frozen value that ties everything together: who takes part, what is promised to them, and every number behind it.

No sigma is ever passed around loose: noise, regulariser, radii, schedule and guarantee are all read off the plan, by
the simulator, the audit and the live federation alike.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit import _validate
from fedbandit import protocol as protocols
from fedbandit import schedule as schedules
from fedbandit.bandit import confidence as confidences
from fedbandit.bandit.confidence import Confidence, NoiseLaw
from fedbandit.bandit.statistics import is_diagonal, width
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import covariance_shift, rounding_shift
from fedbandit.protocol import mechanisms
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.guarantee import Built, Guarantee, Request
from fedbandit.schedule import Adaptive, Growing, Schedule

CALIBRATIONS = ("exact", "paper", "published")
ACTINGS = ("lazy", "eager")
CONFIDENCES: dict[str, Callable[[NoiseLaw, int, float], Confidence] | None] = {
    "theory": confidences.theory,
    "proof": confidences.proof,
    "practical": confidences.practical,
    "published": None,  # follows from the published simulation's own lambda
}
DECODERS = ("analyzer", "silo")
HEADROOM_BITS = 62  # a total, noise included, must stay this far inside 64-bit integers


@dataclass(frozen=True)
class Plan:
    """A federation on paper. The defaults are the best known and the safest.

    Formal guarantee: `guarantee`, derived by the trust model; construction fails where its theorem does not reach.
    """

    silos: int
    rounds: int
    dim: int
    privacy: Privacy | None = None
    trust: str = "secure-sum"
    mechanism: str = "toeplitz"
    schedule: Schedule = field(default_factory=Growing)
    acting: str = "lazy"
    calibration: str = "exact"
    confidence: str = "theory"
    alpha: float = 0.01  # the regret bound holds with probability 1 - alpha
    exploration: float = 1.0  # crs of the published simulation: scales its radii
    reward_noise: float = 1.0  # R of the published simulation: sub-Gaussian constant of the rewards
    centre: float = 0.0  # subtracted from rewards; 1/2 halves their sensitivity, and needs a constant feature
    ratio: float = 1.0  # (covariance noise / bias noise)^2
    cohort: int | None = None  # fewest silos in a round (None: all of them)
    colluding: int = 0  # silos that may tell the analyzer their own noise
    decode_at: str = "analyzer"  # "silo": P_alt
    bits: int = 20  # statistics are kept on the grid 2^-bits

    def __post_init__(self) -> None:
        for name in ("silos", "rounds", "dim"):
            _validate.count(name, getattr(self, name))
        if not isinstance(self.privacy, Privacy | None):
            raise ValueError(f"privacy must be a Privacy or None, got {self.privacy!r}")
        if not isinstance(self.schedule, Schedule):
            raise ValueError(f"schedule must be made by every, growing, clock or adaptive, got {self.schedule!r}")
        _validate.one_of("calibration", self.calibration, CALIBRATIONS)
        _validate.one_of("acting", self.acting, ACTINGS)
        _validate.one_of("confidence", self.confidence, CONFIDENCES)
        _validate.one_of("decode_at", self.decode_at, DECODERS)
        _validate.within("alpha", self.alpha, 0, 1)
        _validate.positive("exploration", self.exploration)
        _validate.positive("reward_noise", self.reward_noise)
        _validate.positive("ratio", self.ratio)
        _validate.count("bits", self.bits)
        _validate.count("colluding", self.colluding, least=0)
        if not 0 <= self.centre <= 1:
            raise ValueError(f"centre must lie in [0, 1], got {self.centre!r}")
        if self.decode_at == "silo" and self.trust != "silo":
            raise ValueError(f"decode_at must be 'analyzer' unless trust is 'silo', got 'silo' with {self.trust!r}")
        if self.ratio != 1 and self.calibration != "exact":
            raise ValueError(f"ratio must be 1 unless calibration is 'exact', got {self.ratio!r}: others fix the noise")
        if self.cohort is not None and _validate.count("cohort", self.cohort) > self.silos:
            raise ValueError(f"cohort must lie between 1 and the {self.silos} silos, got {self.cohort!r}")
        if self.privacy is not None and self.privacy.silos_per_user > self.silos:
            visits = self.privacy.silos_per_user
            raise ValueError(f"silos_per_user must be at most the {self.silos} silos, got {visits}")
        self._check_headroom()

    # -- what follows from it ---------------------------------------------------------------------------------------

    @cached_property
    def times(self) -> tuple[int, ...]:
        """Rounds after which silos synchronise."""
        return self.schedule.times(self.rounds)

    @property
    def synchronisations(self) -> int | None:
        """How many there are; None where the data decide."""
        return None if isinstance(self.schedule, Adaptive) else len(self.times)

    @cached_property
    def encoder(self) -> Encoder:
        """The mechanism over the whole horizon (an adaptive schedule may synchronise after every round)."""
        return mechanisms.encoder(self.mechanism, self.synchronisations or self.rounds)

    @property
    def request(self) -> Request:
        """What the trust model is asked for: sensitivity, sigma and epsilon are read off it."""
        adaptive = isinstance(self.schedule, Adaptive)
        private_rule = isinstance(self.schedule, Adaptive) and self.schedule.private
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
            cohort=self.cohort or self.silos,
            colluding=self.colluding,
            decode_at=self.decode_at,
            public_schedule=not adaptive or private_rule,
            share=0.5 if private_rule else 1.0,
        )

    @property
    def protocol(self) -> Protocol:
        """R, S and A."""
        return self._built.protocol

    @property
    def guarantee(self) -> Guarantee:
        """What is promised, to whom, and why."""
        return self._built.guarantee

    @cached_property
    def noise_law(self) -> NoiseLaw:
        """Standard deviations of every released prefix sum over all silos."""
        gain = self.protocol.prefix_gain(self._times_or_rounds)
        scales = self.protocol.scales
        off_diagonal = scales[self.dim + 1] if self.dim > 1 else scales[self.dim]
        return NoiseLaw(scales[0] * gain, scales[self.dim] * gain, off_diagonal * gain)

    @property
    def noise_std(self) -> float:
        """Standard deviation in one entry of the bias vector of the worst released prefix sum over all silos."""
        return float(self.noise_law.bias.max())

    @cached_property
    def learner(self) -> Confidence:
        """Regulariser, eigenvalue floor and radii."""
        rule = CONFIDENCES[self.confidence]
        if rule is not None:
            return rule(self.noise_law, self.dim, self.alpha)
        levels = 1 + math.log2(self.encoder.steps)
        sigma = self.protocol.scales[0]
        regulariser = confidences.published_regulariser(sigma, self.silos, levels, self.dim, self.alpha)
        return confidences.published(regulariser, self.dim, self.alpha, self.exploration, self.reward_noise)

    @property
    def regulariser(self) -> float:
        """lambda."""
        return self.learner.regulariser

    def radius(self, round_: int) -> float:
        """beta_t, for a silo that has seen statistics of all silos up to this round (or its own, if it is alone)."""
        alone = self.synchronisations == 1
        return self.learner.radius(round_ * (1 if alone else self.silos))

    @property
    def schedule_sigma(self) -> float:
        """Noise of the private determinant rule: a tree over single rounds with its own half of mu^2; 0 without one.

        A user who visits several silos is seen by the rule of each: those compose in squares.
        """
        if self.privacy is None or not (isinstance(self.schedule, Adaptive) and self.schedule.private):
            return 0.0
        adjacency = self.privacy.adjacency
        one_round = covariance_shift(adjacency) + rounding_shift(adjacency, self.dim, self.bits, ratio=0.0)
        shift = one_round * self.privacy.participations * math.sqrt(self.privacy.silos_per_user)
        column = mechanisms.encoder("tree", self.rounds).column_norm
        return gaussian_sigma(self.privacy.epsilon, self.privacy.delta) * shift * column / math.sqrt(0.5)

    @property
    def schedule_scales(self) -> NDArray[np.float64]:
        """That noise in every packed entry of the covariance, in units of the statistics' grid."""
        cells = np.where(is_diagonal(self.dim), 1.0, math.sqrt(0.5))[self.dim :]
        return np.asarray(cells * self.schedule_sigma * 2.0**self.bits)

    @property
    def bytes_per_silo(self) -> int | None:
        """Payload one silo sends over the whole horizon, 8 bytes a number; None where the data decide."""
        if self.synchronisations is None:
            return None
        return self.synchronisations * self.protocol.message_arrays * width(self.dim) * 8

    # -- as data ----------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data; `from_dict` reads it back."""
        data = asdict(self)
        data["schedule"] = schedules.as_dict(self.schedule)
        return json.loads(json.dumps(data, default=_plain))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """The plan that `as_dict` wrote; unknown names are refused."""
        _validate.known_keys("plan", data, cls.__dataclass_fields__, required=("silos", "rounds", "dim"))
        values = dict(data)
        if isinstance(values.get("privacy"), dict):
            values["privacy"] = Privacy.from_dict(values["privacy"])
        if isinstance(values.get("schedule"), dict):
            values["schedule"] = schedules.from_dict(values["schedule"])
        return cls(**values)

    @cached_property
    def hash(self) -> str:
        """Two parties whose plans hash alike encode, calibrate and decode alike."""
        text = json.dumps({**self.as_dict(), "encoder": self.encoder.fingerprint}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def changed(self, **fields: Any) -> Plan:
        """A copy with some fields changed, checked anew."""
        return replace(self, **fields)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the fields. Everything else follows from them and is derived again where it is needed."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    # -- inside -----------------------------------------------------------------------------------------------------

    @cached_property
    def _built(self) -> Built:
        return protocols.build(self.trust, self.request)

    @property
    def _times_or_rounds(self) -> tuple[int, ...]:
        """The calendar, or every round where the data decide."""
        return tuple(range(1, self.rounds + 1)) if isinstance(self.schedule, Adaptive) else self.times

    def _check_headroom(self) -> None:
        """Sums and noise of the whole federation must fit into 64-bit integers."""
        largest = self.silos * self.rounds + 12 * max(self.protocol.scales) * math.sqrt(self.silos)
        bits = math.log2(largest) + self.protocol.release_bits + np.log2(max(1.0, self.encoder.column_norm))
        if bits > HEADROOM_BITS:
            possible = self.bits - math.ceil(bits - HEADROOM_BITS)
            raise ValueError(f"bits must be at most {possible} here, got {self.bits}")


def _plain(number: np.generic) -> Any:
    """A numpy number as Python's own."""
    return number.item()
