"""Figure 1(a): shuffling by amplification against silo-level LDP, synthetic instance, tiny budgets."""

from __future__ import annotations

from fedbandit.paper.figures.instances import SYNTHETIC, ldp, sdp_amplified
from fedbandit.paper.figures.observations import Below
from fedbandit.paper.figures.panel import Panel

DELTA = 1e-4
EPSILONS = (1e-3, 1e-4)

PANEL = Panel(
    name="fig1a",
    title="Figure 1(a): shuffling by amplification against silo-level LDP; synthetic data, M = 100",
    settings=SYNTHETIC,
    silos=100,
    rounds=10_000,
    runs=25,
    curves=tuple(curve(epsilon, DELTA) for epsilon in EPSILONS for curve in (ldp, sdp_amplified)),
    observed="regret of SDP-FedLinUCB is less than LDP-FedLinUCB for both values of ε",
    observations=tuple(Below(sdp_amplified(e, DELTA).label, ldp(e, DELTA).label) for e in EPSILONS),
)
