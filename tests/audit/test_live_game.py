"""The audit of the live path: sound parties hold, and faults planted in the live noise source are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import chdtr, chdtri

pytest.importorskip("opendp")
pytest.importorskip("nats")

from fedbandit import Plan, Privacy
from fedbandit._arrays import Floats, Integers, Words
from fedbandit._validate import ArgumentError
from fedbandit.audit.live_game import LIVE, LiveGame, live_case, live_reduced
from fedbandit.audit.report import Report, audit
from fedbandit.audit.residuals import FALSE_ALARMS
from fedbandit.federation.exact import exact_noise
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.silo.ticker import Ticker
from fedbandit.federation.store.silo_store import SiloStore
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.adversaries import Moment, Residual
from fedbandit.protocol.base import Protocol

UNUSED = SimulatedNoise(np.random.default_rng(0))
Patch = pytest.MonkeyPatch
gaussian, words = exact_noise._gaussian, ExactNoise.words


def audited(name: str, trials: int) -> Report:
    return audit(live_case(name, 1.0, 1e-5), trials=trials)


@pytest.mark.parametrize("name", LIVE)
def test_a_sound_federation_holds(name: str) -> None:
    """Live noise has no seed: a sound audit fails once in 1,000 times, two of them once in a million."""
    reports = [audited(name, 4)]
    if reports[0].verdict != "holds":
        reports.append(audited(name, 4))
    report = reports[-1]
    assert report.verdict == "holds", [one.failed for one in reports]
    assert report.live
    assert report.as_dict()["live"] is True
    assert "on the live path" in report.described
    assert {check.kind for check in report.checks} == {"residuals", "times and sizes", "served apart"}


class Watcher:
    """Keeps what the adversaries are shown."""

    name, bound, remembers = "watcher", "dp", False

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def score(self, protocol: Protocol, moment: Moment) -> float:
        self.moments.append(moment)
        return 0.0

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        return ()


@pytest.mark.parametrize("name", ["silo", "secure-sum", "central"])
@pytest.mark.parametrize("world", [0, 1])
def test_without_noise_what_crosses_is_what_is_retraced(name: str, world: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(exact_noise, "_gaussian", lambda scales, lead: np.zeros((*lead, len(scales)), dtype=np.int64))
    case, watcher = live_case(name, 1.0, 1e-5), Watcher()
    (game,) = case.games
    assert isinstance(game, LiveGame)
    LiveGame(game.plan, game.worlds, (watcher,)).play(world, 1, UNUSED)  # type: ignore[arg-type]
    assert len(watcher.moments) == case.plan.syncs
    for moment in watcher.moments:
        total = game.plan.protocol.total(moment.held)
        assert np.array_equal(total, moment.expected[world].sum(axis=-2))
    assert not np.array_equal(watcher.moments[0].expected[0], watcher.moments[0].expected[1])


# -- planted faults ----------------------------------------------------------------------------------------------------


def shared_draws(scales: Floats, lead: tuple[int, ...]) -> Integers:
    """Equal-scale numbers share one draw."""
    drawn = gaussian(scales, lead).copy()
    for scale in np.unique(scales):
        columns = np.flatnonzero(scales == scale)
        drawn[..., columns] = drawn[..., columns[:1]]
    return drawn


def right_at_two(scales: Floats, lead: tuple[int, ...]) -> Integers:
    """An off-diagonal scale of sigma / sqrt d."""
    return gaussian(np.where(scales < scales.max(), scales * np.sqrt(2 / 3), scales), lead)


def seeded(scales: Floats, lead: tuple[int, ...]) -> Integers:
    """A seed where there should be none."""
    return SimulatedNoise(np.random.default_rng(1)).gaussian(scales, lead)


def never_used_up(self: ExactNoise, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
    """A prepared draw is handed out again and again."""
    self.prepare(scales, lead)
    return self._prepared[scales.tobytes(), lead][0]


def uniform(scales: Floats, lead: tuple[int, ...]) -> Integers:
    """The right variance, the wrong law."""
    size = (*lead, len(scales))
    return np.rint(np.random.default_rng().uniform(-np.sqrt(3), np.sqrt(3), size) * scales).astype(np.int64)


def one_mask_per_process(self: ExactNoise, shape: tuple[int, ...]) -> Words:
    return np.random.default_rng(2).integers(0, 2**64, size=shape, dtype=np.uint64)


def mask_of_32_bits(self: ExactNoise, shape: tuple[int, ...]) -> Words:
    return words(self, shape) >> np.uint64(32)


def same_after_restart(patch: Patch) -> None:
    """A silo that is opened again draws from the beginning what it drew before."""
    streams: dict[int, SimulatedNoise] = {}
    kept: list[ExactNoise] = []  # so that no other one gets its id
    make = Ticker.__init__

    def opened(self: Ticker, store: SiloStore, *arguments: Any, **fields: Any) -> None:
        make(self, store, *arguments, **fields)
        with store.engine.read() as sql:
            (_, _, path), *_ = sql.all("PRAGMA database_list")
        kept.append(self._noise)
        streams[id(self._noise)] = SimulatedNoise(np.random.default_rng(list(str(path).encode())))

    patch.setattr(Ticker, "__init__", opened)
    patch.setattr(ExactNoise, "gaussian", lambda self, scales, lead=(): streams[id(self)].gaussian(scales, lead))
    patch.setattr(ExactNoise, "prepare", lambda self, scales, lead=(): None)


def plant_gaussian(fault: Callable[[Floats, tuple[int, ...]], Integers]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(exact_noise, "_gaussian", fault)


LIVE_FAULTS: dict[str, tuple[str, Callable[[Patch], None], str]] = {
    "equal-scale numbers share one draw": ("silo", plant_gaussian(shared_draws), "of one release is correlated"),
    "the same, at a trusted server": ("central", plant_gaussian(shared_draws), "of one release is correlated"),
    "off-diagonal scale right only at d = 2": ("silo", plant_gaussian(right_at_two), "claimed variance"),
    "a seed": ("secure-sum", plant_gaussian(seeded), "more than once"),
    "a prepared draw is handed out twice": (
        "silo",
        lambda patch: patch.setattr(ExactNoise, "gaussian", never_used_up),
        "more than once",
    ),
    "uniform noise": ("silo", plant_gaussian(uniform), "not Gaussian"),
    "noise reused after a restart": ("silo", same_after_restart, "more than once"),
    "one mask per process": (
        "secure-sum",
        lambda patch: patch.setattr(ExactNoise, "words", one_mask_per_process),
        "shares of the mixer: ",
    ),
    "masks of 32 bits": (
        "secure-sum",
        lambda patch: patch.setattr(ExactNoise, "words", mask_of_32_bits),
        "shares of the mixer: ",
    ),
}


def test_the_weakest_of_these_faults_is_hardly_ever_missed() -> None:
    """Live noise has no seed, so the power is computed: entries with 2/3 of their variance, as in 15 trials.

    One entry of all silos is a chi-square over 8 syncs, 2 worlds, 15 trials and 3 silos; three entries are too small,
    and all three must be missed.
    """
    numbers = 8 * 2 * 15 * 3
    level = FALSE_ALARMS / 2_000  # an audit has fewer tests than that
    missed = 1 - chdtr(numbers, chdtri(numbers, 1 - level) / (2 / 3))
    assert missed**3 < 1e-5


QUICK = ("off-diagonal scale right only at d = 2", "a seed", "one mask per process")  # the others: make torture


@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.torture) for one in LIVE_FAULTS]
)
def test_a_fault_in_the_live_noise_is_caught(fault: str, monkeypatch: Patch) -> None:
    name, plant, says = LIVE_FAULTS[fault]
    plant(monkeypatch)
    report = audited(name, 6 if name == "secure-sum" else 15)  # what is planted there needs no statistics
    assert report.verdict == "broken"
    assert says in " | ".join(report.failed)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_run_live_is_refused() -> None:
    for name in ("ldp-eager", "dubey", "local"):
        with pytest.raises(ArgumentError):
            live_case(name, 1.0, 1e-5)


def test_anybody_s_plan_is_made_small_enough() -> None:
    case = live_reduced(Plan(50, 5_000, 20, Privacy(0.5, 1e-6), trust="silo"))
    assert (case.plan.silos, case.plan.dim, case.plan.syncs) == (3, 3, 8)
    assert case.claim is not None
    assert (case.claim.epsilon, case.claim.delta) == (0.5, 1e-6)
    with pytest.raises(ArgumentError, match="privacy"):
        live_reduced(Plan(3, 100, 2, trust="none"))
