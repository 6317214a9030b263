# %% [markdown]
# # A mechanism of your own
#
# `banded.py`, beside this file, is the whole mechanism: one matrix. Here it is planned, simulated and audited.
#
#     python examples/own_mechanism/own_mechanism.py

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
with plugged_in(HERE / "banded.py") as mine:
    banded = mine(asked)
    others = {name: banded.changed(mechanism=name) for name in ("toeplitz", "tree")}
    plans = {"banded": banded, **others}
    for name, plan in plans.items():
        print(f"{name:9} a batch enters {plan.encoder.touches:2} releases; noise of the worst sum {plan.noise_std:.1f}")
    result = fb.simulate(fb.tasks.synthetic(dim=4, arms=10), plans, runs=2, seed=0)
    print({name: round(result.regret(name).mean, 2) for name in result.names})
    report = audit(reduced(banded), trials=1000)

print(f"audit: {report.verdict}, epsilon at least {report.epsilon_lower:.2f} of 2")
