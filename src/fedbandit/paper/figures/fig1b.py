"""Figure 1(b): shuffling by vector sum against silo-level LDP, synthetic instance, larger budgets."""

from __future__ import annotations

from fedbandit.paper.figures.instances import SYNTHETIC, ldp, sdp_vector_sum
from fedbandit.paper.figures.observations import Below
from fedbandit.paper.figures.panel import Panel

BUDGET = (0.2, 0.1)

PANEL = Panel(
    name="fig1b",
    title="Figure 1(b): shuffling by vector sum against silo-level LDP; synthetic data, M = 100",
    settings=SYNTHETIC,
    silos=100,
    rounds=10_000,
    runs=25,
    curves=(ldp(*BUDGET), sdp_vector_sum(*BUDGET)),
    observed="regret of SDP-FedLinUCB decreases faster than that of LDP-FedLinUCB",
    observations=(Below(sdp_vector_sum(*BUDGET).label, ldp(*BUDGET).label),),
)
