# %% [markdown]
# # A trust model of your own
#
# `summing.py`, beside this file, is the whole trust model: silos protect their own users, and a mixer adds. Here it is
# planned, simulated and audited. Its noise is as large as that of `silo`, so the difference between the two regrets is
# chance. What differs is who sees what.
#
#     python examples/own_trust/own_trust.py

# %%
from __future__ import annotations

from pathlib import Path

import fedbandit as fb
from fedbandit.audit.cases import reduced
from fedbandit.audit.report import audit
from fedbandit.comparison.own_file import plugged_in

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()  # a notebook runs in its own folder
asked = fb.Plan(silos=10, rounds=400, dim=4, privacy=fb.Privacy(epsilon=2.0, delta=1e-5))

# %%
with plugged_in(HERE / "summing.py") as mine:
    summing = mine(asked)
    print(summing.guarantee)
    plans = {"summing": summing, "silo": asked.changed(trust="silo"), "secure-sum": asked}
    result = fb.simulate(fb.tasks.synthetic(dim=4, arms=10), plans, runs=2, seed=0)
    print({name: round(result.regret(name).mean, 2) for name in result.names})
    report = audit(reduced(summing), trials=1000)

print(f"audit: {report.verdict}, epsilon at least {report.epsilon_lower:.2f} of 2")
