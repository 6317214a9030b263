"""The paper's two bandit instances in both versions, and the protocols its figures compare."""

from __future__ import annotations

from pathlib import Path

from fedbandit.paper import presets
from fedbandit.paper.figures.panel import Curve, Setting, Sources
from fedbandit.simulate import tasks

DIM, ARMS = 10, 100
PROVEN = "as_proven: the theorems' constants, lazy acting, Bernoulli rewards"
SIMULATED = "as_simulated: the published simulation's constants, eager acting"

SYNTHETIC = (
    Setting("as_proven", "synthetic", PROVEN, "as_proven", lambda _: tasks.synthetic(DIM, ARMS)),
    Setting(
        "as_simulated",
        "synthetic",
        f"{SIMULATED}, unclipped Gaussian rewards",
        "as_simulated",
        lambda _: tasks.synthetic(DIM, ARMS, rewards="gaussian", basis=True, same_in_all_runs=True),
        exploration=1.0,
        reward_noise=0.5,
    ),
)


def real(group: str) -> tuple[Setting, ...]:
    """Judged documents: "title" (57 features) or "body" (78), as the paper calls them."""

    def path(sources: Sources) -> Path:
        assert sources.letor is not None  # Panel.can_run
        return sources.letor

    return (
        Setting("as_proven", f"real-{group}", PROVEN, "as_proven", lambda sources: tasks.letor(path(sources), group)),
        Setting(
            "as_simulated",
            f"real-{group}",
            f"{SIMULATED}, noiseless rewards",
            "as_simulated",
            lambda sources: tasks.letor(path(sources), group, scaling="published", rewards="exact"),
            exploration=0.1,
            reward_noise=1.0,
        ),
    )


TITLE, BODY = real("title"), real("body")


def fed_lin_ucb() -> Curve:
    """The non-private algorithm; its plan ignores the budget."""
    return Curve("FedLinUCB (non-private)", presets.fed_lin_ucb, 1.0, 0.1, private=False)


def ldp(epsilon: float, delta: float) -> Curve:
    """Silo-level LDP, Theorem LDP."""
    return Curve("LDP", presets.ldp, epsilon, delta)


def sdp_amplified(epsilon: float, delta: float) -> Curve:
    """Shuffling, Theorem SDP."""
    return Curve("SDP by amplification", presets.sdp_amplified, epsilon, delta)


def sdp_vector_sum(epsilon: float, delta: float) -> Curve:
    """Shuffling, Theorem SDP-vec."""
    return Curve("SDP by vector sum", presets.sdp_vector_sum, epsilon, delta)
