"""Appendix figure (b): the cost of silo-level LDP by delta, synthetic instance."""

from __future__ import annotations

from fedbandit.paper.figures.instances import SYNTHETIC, fed_lin_ucb, ldp
from fedbandit.paper.figures.observations import ordered
from fedbandit.paper.figures.panel import Panel

CURVES = (fed_lin_ucb(), *(ldp(5.0, delta) for delta in (0.1, 0.01, 0.001)))

PANEL = Panel(
    name="figA-b",
    title="Appendix figure (b): the cost of silo-level LDP by δ; synthetic data, M = 100",
    settings=SYNTHETIC,
    silos=100,
    rounds=10_000,
    runs=25,
    curves=CURVES,
    observed="regret of LDP-FedLinUCB decreases and comes closer to that of FedLinUCB as δ increases",
    observations=ordered(*(curve.label for curve in CURVES)),
)
