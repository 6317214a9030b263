# %% [markdown]
# # Shops with a thousand products
#
# Twenty shops of a chain sell the same thousand products. First, a simulation: does it pay to share? Then, a live silo
# that has the catalogue registered, so that a decision sends a name and not a thousand rows.
#
#     python examples/shop/shop.py

# %%
from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import fedbandit as fb
from fedbandit.presets import isolated

PRODUCTS, DIM = 1000, 8

# %% [markdown]
# What is sharing worth here, at (2, 1e-5), compared with staying alone?

# %%
customers = fb.tasks.synthetic(dim=DIM, arms=PRODUCTS)
plan = fb.Plan(
    silos=20,
    rounds=300,
    dim=DIM,
    privacy=fb.Privacy(epsilon=2.0, delta=1e-5),
    schedule=fb.clock(86_400, ratio=1.1),
    confidence="practical",
)
result = fb.simulate(customers, {"together": plan, "alone": isolated(plan)}, runs=2, seed=0)
together, apart = result.regret("together").mean, result.regret("alone").mean
print(f"lost per round by all shops: together {together:.2f}, each alone {apart:.2f}")

# %% [markdown]
# Now live: the catalogue is registered once, and `allowed` lists the products in stock.

# %%
rng = np.random.default_rng(0)
catalogue = rng.normal(size=(PRODUCTS, DIM))
catalogue /= np.linalg.norm(catalogue, axis=1, keepdims=True)

with tempfile.TemporaryDirectory() as folder:
    shop = fb.Silo.open(Path(folder) / "shop.db", plan)
    shop.register("catalogue", catalogue)
    in_stock = sorted(rng.choice(PRODUCTS, size=400, replace=False).tolist())
    began = time.perf_counter()
    for customer in range(200):
        decision = shop.decide("catalogue", allowed=in_stock, user=f"customer {customer}")
        shop.reward(decision.id, float(rng.random() < 0.3))
    each = (time.perf_counter() - began) / 200
    shop.close()
assert decision.action in in_stock
print(f"a decision among {len(in_stock)} of {PRODUCTS} products with its durable reward took {1000 * each:.1f} ms here")
