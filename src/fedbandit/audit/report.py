"""The result of an audit: a lower bound on epsilon, the claimed epsilon, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from fedbandit.audit import residuals
from fedbandit.audit.auditor import CONFIDENCE, Check, CheckKind, Finding, examined, ignore_interrupts
from fedbandit.audit.calendar_game import CalendarGame
from fedbandit.audit.cases import Case, Claim
from fedbandit.audit.worlds import neighbours, worst_pairs
from fedbandit.privacy.accounting import gaussian_epsilon
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.adversaries import Bound

__all__ = ["PROVES", "REFUTES", "Report", "audit", "audit_all"]

#: What a bound of each kind refutes, in words.
REFUTES: dict[Bound, str] = {
    "gdp": "refutes mu-GDP, which for Gaussian noise is the same as (epsilon, delta)-DP",
    "dp": "refutes (epsilon, delta)-DP, whatever the mechanism",
}
LARGEST_MU = 30.0  # larger values of mu are not told apart
ARITHMETIC = 1e-6  # relative error allowed for floating point
WHOLE = 2**31  # the stream of noise for the plan as it is; games have the first ones
#: What a failed check of each kind proves, in words.
PROVES: dict[CheckKind, str] = {
    "claimed noise": "even noise of exactly the claimed size would not keep the claim",
    "residuals": "the noise is not the independent noise of the claimed size that the proof relies on",
    "times and sizes": "the times or sizes of messages depend on the user, and no noise covers that",
    "served apart": "data of people who do not count, or raw data, reach a release or somebody who counts",
}


@dataclass(frozen=True)
class Report:
    """What all adversaries together proved about a case."""

    name: str
    described: str
    claim: Claim | None
    budget: tuple[float, float]
    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]
    trials: int
    seed: int
    live: bool = False
    cut: str = ""  # how the audited plan is smaller than the plan that was asked about
    smaller_claim: Claim | None = None  # the claim of the audited plan, if it differs

    @property
    def worst(self) -> Finding:
        """The finding of the adversary that proved most."""
        return max(self.findings, key=lambda finding: finding.epsilon_lower)

    @property
    def epsilon_lower(self) -> float:
        """With confidence 95 %, epsilon is at least this, at the claimed delta."""
        return self.worst.epsilon_lower

    @property
    def verdict(self) -> str:
        """`broken` if the lower bound exceeds the claimed epsilon (without a claim: the budget's), or if a check
        failed: then an assumption of the proof is not true. Otherwise `holds`, or `nothing claimed`: where there is no
        claim, none can hold."""
        allowed = self.budget[0] if self.claim is None else self.claim.epsilon
        if self.epsilon_lower > allowed or self.failed:
            return "broken"
        return "nothing claimed" if self.claim is None else "holds"

    @property
    def failed(self) -> tuple[str, ...]:
        """What the checks found wrong, in words."""
        return tuple(f"{check.what}: {text}" for check in self.checks for text in check.failed)

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data; `live` and `failed` appear only if the audit was live, or if a check failed."""
        claim = self.claim
        more: dict[str, Any] = {"live": True} if self.live else {}
        if self.failed:
            more["failed"] = list(self.failed)
        return {
            "name": self.name,
            "claimed": None if claim is None else {"epsilon": claim.epsilon, "delta": claim.delta},
            "epsilon_lower": self.epsilon_lower,
            "confidence": CONFIDENCE,
            "trials": self.trials,
            "verdict": self.verdict,
            **more,
        }


def audit(
    case: Case,
    trials: int | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[float], None] = lambda share: None,
) -> Report:
    """Play the case's games `trials` times in each world. The same seed gives the same report, whatever `workers`,
    except on the live path, whose noise has no seed.

    A plan that keeps its promise is reported as broken with probability at most 1 - CONFIDENCE.
    """
    runs = case.trials if trials is None else trials
    delta = case.budget[1] if case.claim is None else case.claim.delta
    found = examined(case.games, delta, runs, seed, workers, progress)
    checks = (*_claimed_noise(case, delta), *_whole_noise(case, seed), *found.checks, *_apart(case))
    return Report(
        case.name,
        case.described,
        case.claim,
        case.budget,
        found.findings,
        checks,
        runs,
        seed,
        case.live,
        case.cut,
        case.smaller_claim,
    )


def _apart(case: Case) -> Iterator[Check]:
    if case.live:
        from fedbandit.audit.opting_out import served_apart  # imported late: it loads the live federation

        yield served_apart(case.plan)


def _claimed_noise(case: Case, delta: float) -> Iterator[Check]:
    """Whether noise of the claimed size would keep the claim: computed for the neighbours of each game, and for the
    worst pair in both positions (see `worst_pair`)."""
    if case.claim is None:
        return
    for game in case.games:
        if isinstance(game, CalendarGame) and game.plan.guarantee.promised:
            yield _arithmetic("size of the claimed noise", (game, *_turned(game)), case.claim.epsilon, delta)
    if case.whole:
        yield _arithmetic("size of the claimed noise, in the whole plan", case.whole, case.claim.epsilon, delta)


def _whole_noise(case: Case, seed: int) -> Iterator[Check]:
    """Whether every number of the plan as it is has its noise: the games play it in fewer dimensions and syncs, where
    a fault that begins beyond them cannot be seen."""
    for game in case.whole[:1]:
        noise = SimulatedNoise(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(WHOLE,))))
        for name, (tests, failed) in residuals.too_small(game.squares(noise)).items():
            yield Check("residuals", f"{name}, in the whole plan", tests, failed)


def _arithmetic(what: str, games: Iterable[CalendarGame], claimed: float, delta: float) -> Check:
    exact = [game.exact_mu() for game in games]
    failed = {
        name: f"{name}: noise of the claimed size gives an epsilon of {epsilon:.4g}{' or more' * (mu > LARGEST_MU)}"
        for found in exact
        for name, mu in found.items()
        if mu > 0 and (epsilon := gaussian_epsilon(min(mu, LARGEST_MU), delta)) > claimed * (1 + ARITHMETIC)
    }
    return Check("claimed noise", what, sum(map(len, exact)), tuple(failed.values()))


def _turned(game: CalendarGame) -> Iterator[CalendarGame]:
    for pair in worst_pairs(game.plan):
        yield replace(game, worlds=neighbours(game.plan, game.silos, pair))


def audit_all(
    cases: Sequence[Case],
    trials: int | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Report]:
    """Audit many cases, one per worker at a time; the reports come in the order of the cases.

    Live audits mostly wait, so a few more processes are started for them.
    """
    if workers == 1:
        reports = []
        for case in cases:
            reports.append(audit(case, trials, seed))
            progress(len(reports) / len(cases))
        return reports
    processes = workers + min(workers, sum(case.live for case in cases))
    with ProcessPoolExecutor(processes, get_context("spawn"), ignore_interrupts) as pool:
        futures = [pool.submit(audit, case, trials, seed) for case in reversed(cases)]  # slow (live) cases start first
        try:
            for done, _ in enumerate(as_completed(futures), 1):
                progress(done / len(cases))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return [future.result() for future in reversed(futures)]
