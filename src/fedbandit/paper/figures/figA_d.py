"""Appendix figure (d): shuffling by amplification against silo-level LDP, judged documents, a tiny budget."""

from __future__ import annotations

from fedbandit.paper.figures.instances import TITLE, ldp, sdp_amplified
from fedbandit.paper.figures.observations import Below
from fedbandit.paper.figures.panel import Panel

BUDGET = (1e-4, 1e-4)

PANEL = Panel(
    name="figA-d",
    title="Appendix figure (d): shuffling by amplification against silo-level LDP; judged documents, M = 100",
    settings=TITLE,
    silos=100,
    rounds=25_000,
    runs=5,
    curves=(ldp(*BUDGET), sdp_amplified(*BUDGET)),
    observed="a drop in regret of SDP-FedLinUCB compared to that of LDP-FedLinUCB",
    observations=(Below(sdp_amplified(*BUDGET).label, ldp(*BUDGET).label),),
    needs="letor",
    quick_rounds=100,
)
