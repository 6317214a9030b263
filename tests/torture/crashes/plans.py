"""The plans whose federations are crashed: every way in which a release travels, on a clock and counted.

They are made when this module is imported, which the parties' processes are forked after: they find them worked out.
"""

from __future__ import annotations

from fedbandit.plan import Plan
from fedbandit.schedule import clock, every
from tests.federation.small import small_plan

__all__ = ["PLANS", "USERS"]

USERS = 2  # per silo and batch
_CLOCK = {"rounds": 3, "schedule": clock(1.0), "visits": "private"}
_COUNTED = {"rounds": 3 * USERS, "schedule": every(USERS)}

PLANS: dict[str, Plan] = {
    "secure-sum": small_plan(trust="secure-sum", **_CLOCK),  # a share each for mixer and analyzer
    "silo": small_plan(trust="silo", **_CLOCK),  # no mixer, and a release waits for what became of the last one
    "central": small_plan(trust="central", **_CLOCK),  # the analyzer draws the noise
    "vector-sum": small_plan(trust="vector-sum", mechanism="tree", calibration="paper", **_COUNTED),
    "secure-sum, counted": small_plan(trust="secure-sum", **_COUNTED),
}
for _plan in PLANS.values():
    _plan.hash, _plan.guarantee, _plan.protocol  # noqa: B018 (worked out once, for all processes)
