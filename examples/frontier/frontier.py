# %% [markdown]
# # The price of epsilon
#
# Regret against epsilon for two trust models and for the published protocol, on the same users, with the price of
# staying alone as a line. `fedbandit frontier` does this for every protocol, at full size.
#
#     python examples/frontier/frontier.py

# %%
from __future__ import annotations

import fedbandit as fb
from fedbandit.presets import isolated

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
users = fb.tasks.synthetic(dim=5, arms=20)
base = fb.Plan(silos=20, rounds=400, dim=5, privacy=fb.Privacy(1.0, 1e-5))

# %%
plans = {"alone": isolated(base)}
for epsilon in EPSILONS:
    plan = base.changed(privacy=fb.Privacy(epsilon, 1e-5))
    plans |= {
        f"secure-sum {epsilon:g}": plan,
        f"silo {epsilon:g}": plan.changed(trust="silo"),
        f"paper {epsilon:g}": fb.paper.ldp(plan),
    }
result = fb.simulate(users, plans, runs=4, seed=0)

# %%
alone = result.regret("alone").mean
print(f"{'epsilon':>8} {'secure-sum':>11} {'silo':>6} {'paper':>6}   (alone: {alone:.2f})")
for epsilon in EPSILONS:
    row = [result.regret(f"{name} {epsilon:g}").mean for name in ("secure-sum", "silo", "paper")]
    print(f"{epsilon:>8g} {row[0]:>11.2f} {row[1]:>6.2f} {row[2]:>6.2f}")
pays = [e for e in EPSILONS if result.regret(f"secure-sum {e:g}").mean < alone]
print(
    f"secure-sum beats staying alone from epsilon {min(pays):g} on"
    if pays
    else "staying alone is better at all of them"
)
