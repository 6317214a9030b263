"""Appendix figure (c): the cost of silo-level LDP by epsilon, body features of judged documents."""

from __future__ import annotations

from fedbandit.paper.figures.instances import BODY, fed_lin_ucb, ldp
from fedbandit.paper.figures.observations import ordered
from fedbandit.paper.figures.panel import Panel

CURVES = (fed_lin_ucb(), *(ldp(epsilon, 0.1) for epsilon in (5.0, 1.0, 0.2)))

PANEL = Panel(
    name="figA-c",
    title="Appendix figure (c): the cost of silo-level LDP by ε; judged documents, body features, M = 10",
    settings=BODY,
    silos=10,
    rounds=25_000,
    runs=5,
    curves=CURVES,
    observed="regret of LDP-FedLinUCB decreases and comes closer to that of FedLinUCB as ε increases",
    observations=ordered(*(curve.label for curve in CURVES)),
    needs="letor",
)
