"""Appendix figure (a): the cost of silo-level LDP by epsilon, synthetic instance."""

from __future__ import annotations

from fedbandit.paper.figures.instances import SYNTHETIC, fed_lin_ucb, ldp
from fedbandit.paper.figures.observations import ordered
from fedbandit.paper.figures.panel import Panel

CURVES = (fed_lin_ucb(), *(ldp(epsilon, 0.1) for epsilon in (5.0, 1.0, 0.2)))

PANEL = Panel(
    name="figA-a",
    title="Appendix figure (a): the cost of silo-level LDP by ε; synthetic data, M = 100",
    settings=SYNTHETIC,
    silos=100,
    rounds=10_000,
    runs=25,
    curves=CURVES,
    observed="regret of LDP-FedLinUCB decreases and comes closer to that of FedLinUCB as ε increases",
    observations=ordered(*(curve.label for curve in CURVES)),
)
