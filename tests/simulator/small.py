"""One small comparison of every protocol that the tests of this folder share."""

from __future__ import annotations

from fedbandit.plan import Plan
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.tasks import synthetic

BASE = Plan(5, 30, 3, Privacy(5.0, 0.1))
TASK = synthetic(3, 7)
PLANS = {name: plan_for(name, BASE) for name in NAMES if name != "sdp-amplified"}  # out of its theorem's reach
RUNS = 4
