"""Every panel as data: the paper's two instances in both versions, the protocols that its figures compare, and PANELS.

The labels of curves are part of the simulation's seed: changing a label changes the drawn noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fedbandit import presets
from fedbandit.paper.figures.observations import Below, ordered
from fedbandit.paper.figures.panel import Curve, Panel, Setting, Sources
from fedbandit.presets import plan_for
from fedbandit.simulator import tasks

__all__ = ["PANELS", "PAPER_PANELS"]

# -- who the users are, and whose constants are used ------------------------------------------------------------------

DIM, ARMS = 10, 100
PROVEN = "as_proven: the theorems' constants, lazy acting, Bernoulli rewards"
SIMULATED = "as_simulated: the published simulation's constants, eager acting"

SYNTHETIC = (
    Setting("as_proven", "synthetic", PROVEN, "as_proven", lambda _: tasks.synthetic(DIM, ARMS)),
    Setting(
        "as_simulated",
        "synthetic",
        f"{SIMULATED}, unclipped Gaussian rewards, one fixed instance",
        "as_simulated",
        lambda _: tasks.synthetic(DIM, ARMS, rewards="gaussian", contexts="fixed", basis=True, realised=True),
        exploration=1.0,
        reward_noise=0.5,
    ),
)


def _judged(group: Literal["title", "body"]) -> tuple[Setting, ...]:
    """The settings on judged documents, with the features that the paper calls "title" (57) or "body" (78)."""

    def path(sources: Sources) -> Path:
        assert sources.letor is not None  # Panel.can_run
        return sources.letor

    return (
        Setting("as_proven", f"real-{group}", PROVEN, "as_proven", lambda sources: tasks.letor(path(sources), group)),
        Setting(
            "as_simulated",
            f"real-{group}",
            f"{SIMULATED}, noiseless rewards that are not linear in the features",
            "as_simulated",
            lambda sources: tasks.letor(path(sources), group, scaling="published", rewards="exact"),
            exploration=0.1,
            reward_noise=1.0,
        ),
    )


def _patients(outcomes: bool, name: str, heading: str) -> Setting:
    """A setting of warfarin dosing: contexts are patients, actions are three doses, silos are parts of the file."""

    def task(sources: Sources) -> tasks.Task:
        assert sources.warfarin is not None  # Panel.can_run
        return tasks.warfarin(sources.warfarin, outcomes=outcomes)

    return Setting(name, "warfarin", f"{name}: {heading}", "as_proven", task)


TITLE, BODY = _judged("title"), _judged("body")
WARFARIN = (
    _patients(False, "linear", "rewards drawn from the best linear fit"),
    _patients(True, "outcomes", "a dose is right or wrong as the data say"),
)

# -- what is compared -------------------------------------------------------------------------------------------------


def _ldp(epsilon: float, delta: float) -> Curve:
    return Curve("LDP", presets.ldp, epsilon, delta)


def _amplified(epsilon: float, delta: float) -> Curve:
    return Curve("SDP by amplification", presets.sdp_amplified, epsilon, delta)


def _vector_sum(epsilon: float, delta: float) -> Curve:
    return Curve("SDP by vector sum", presets.sdp_vector_sum, epsilon, delta)


def _ours(name: str, family: str, private: bool = True) -> Curve:
    return Curve(family, lambda plan, _: plan_for(name, plan), 1.0, 1e-4, private, name)


FREE = Curve("FedLinUCB (non-private)", presets.fed_lin_ucb, 1.0, 0.1, private=False)  # ignores the budget
BY_EPSILON = (FREE, *(_ldp(epsilon, 0.1) for epsilon in (5.0, 1.0, 0.2)))
BY_DELTA = (FREE, *(_ldp(5.0, delta) for delta in (0.1, 0.01, 0.001)))
AMPLIFIED = tuple((_ldp(epsilon, 1e-4), _amplified(epsilon, 1e-4)) for epsilon in (1e-3, 1e-4))
VECTOR_SUM = (_ldp(0.2, 0.1), _vector_sum(0.2, 0.1))
ALONE = _ours("isolated", "each silo alone (non-private)", private=False)
SECURE, SILO = _ours("secure-sum", "secure-sum (ours)"), _ours("silo", "silo (ours)")
DOSES = (FREE, SECURE, SILO, _ldp(1.0, 1e-4))


def _in_order(*curves: Curve) -> tuple[Below, ...]:
    """The observations that each curve ends below the next."""
    return ordered(*(curve.label for curve in curves))


CLOSER_BY_EPSILON = "regret of LDP-FedLinUCB decreases and comes closer to that of FedLinUCB as ε increases"
CLOSER_IN_APPENDIX = "regret of LDP-FedLinUCB decreases and, comes closer to that of FedLinUCB as ε,δ increases"

# -- the panels -------------------------------------------------------------------------------------------------------

PAPER_PANELS = (
    Panel(
        name="fig1a",
        title="Figure 1(a): shuffling by amplification against silo-level LDP; synthetic data, M = 100",
        settings=SYNTHETIC,
        silos=100,
        rounds=10_000,
        runs=25,
        curves=(*AMPLIFIED[0], *AMPLIFIED[1]),
        observed="regret of SDP-FedLinUCB is less than LDP-FedLinUCB for both values of ε",
        observations=tuple(Below(sdp.label, ldp.label) for ldp, sdp in AMPLIFIED),
    ),
    Panel(
        name="fig1b",
        title="Figure 1(b): shuffling by vector sum against silo-level LDP; synthetic data, M = 100",
        settings=SYNTHETIC,
        silos=100,
        rounds=10_000,
        runs=25,
        curves=VECTOR_SUM,
        observed="regret of SDP-FedLinUCB decreases faster than that of LDP-FedLinUCB",
        observations=_in_order(*reversed(VECTOR_SUM)),
    ),
    Panel(
        name="fig1c",
        title="Figure 1(c): the cost of silo-level LDP by ε; judged documents, title features, M = 10",
        settings=TITLE,
        silos=10,
        rounds=25_000,
        runs=25,
        curves=BY_EPSILON,
        observed=CLOSER_BY_EPSILON,
        observations=_in_order(*BY_EPSILON),
        needs="letor",
    ),
    Panel(
        name="figA-a",
        title="Appendix figure (a): the cost of silo-level LDP by ε; synthetic data, M = 100",
        settings=SYNTHETIC,
        silos=100,
        rounds=10_000,
        runs=25,
        curves=BY_EPSILON,
        observed=CLOSER_IN_APPENDIX,
        observations=_in_order(*BY_EPSILON),
    ),
    Panel(
        name="figA-b",
        title="Appendix figure (b): the cost of silo-level LDP by δ; synthetic data, M = 100",
        settings=SYNTHETIC,
        silos=100,
        rounds=10_000,
        runs=25,
        curves=BY_DELTA,
        observed=CLOSER_IN_APPENDIX,
        observations=_in_order(*BY_DELTA),
    ),
    Panel(
        name="figA-c",
        title="Appendix figure (c): the cost of silo-level LDP by ε; judged documents, body features, M = 10",
        settings=BODY,
        silos=10,
        rounds=25_000,
        runs=25,
        curves=BY_EPSILON,
        observed=CLOSER_IN_APPENDIX,
        observations=_in_order(*BY_EPSILON),
        needs="letor",
    ),
    Panel(
        name="figA-d",
        title="Appendix figure (d): shuffling by amplification against silo-level LDP; judged documents, M = 100",
        settings=TITLE,
        silos=100,
        rounds=25_000,
        runs=25,
        curves=AMPLIFIED[1],
        observed="a drop in regret of SDP-FedLinUCB compared to that of LDP-FedLinUCB",
        observations=_in_order(*reversed(AMPLIFIED[1])),
        needs="letor",
        quick_rounds=100,
    ),
)
DOSING = Panel(
    name="warfarin",
    title="Not in the paper: warfarin dosing, M = 10",
    settings=WARFARIN,
    silos=10,
    rounds=5_000,
    runs=25,
    curves=(FREE, SECURE, ALONE, SILO, DOSES[-1]),
    observed="privacy costs regret, least with secure-sum and most with the paper's LDP",
    observer="Expected",
    observations=_in_order(*DOSES),
    needs="warfarin",
)
PANELS: dict[str, Panel] = {panel.name: panel for panel in (*PAPER_PANELS, DOSING)}
