"""The five standard instances: three that come with the library, two that need a file.

The clinic and the shop are made up. Their people become rows in the way of an application: as records, through a
public schema. Mean rewards are linear in the rows and lie in [0, 1], so with Bernoulli rewards the bandit is exactly
linear.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.problem import Category, Number, Schema
from fedbandit.problem.records import Records
from fedbandit.simulator.data.table import CONSTANT, ROUND_DOWN, ActionTable, bounded_model, with_constant
from fedbandit.simulator.tasks import Responses, Tabled, Task, chance, letor, synthetic, warfarin

__all__ = ["INSTANCES", "NEEDS", "Instance", "Paths", "instances"]

SEED = 0  # of the made-up people
PEOPLE = 600  # action sets of a made-up instance; each silo draws its users from its share of them


class Instance(NamedTuple):
    """Users for a comparison, and how many of them there are."""

    name: str
    task: Task
    silos: int
    rounds: int

    def chance(self, seed: int) -> float:
        """Expected regret of one user who is given an action at random."""
        return chance(self.task, self.silos, seed) / self.silos


class Paths(NamedTuple):
    """Where to find the data that do not come with the library."""

    letor: Path | None = None
    warfarin: Path | None = None


class _Standard(NamedTuple):
    silos: int
    rounds: int
    task: Callable[[Paths], Task]


CLINIC = Schema(
    context={"age": Number(18, 100), "kidneys": Category(["normal", "impaired"], other=False)},
    actions=["low", "medium", "high"],
)
SHOP = Schema(
    context={"segment": Category(["new", "regular"], other=False)},
    features={"price": Number(0, 500), "rating": Number(0, 5), "kind": Category(list("abcd"), other=False)},
    interactions=[("segment", "kind")],
)
PRODUCTS = 20  # offered to every visitor


def _clinic() -> Task:
    """Patients and three doses. Old patients and those with impaired kidneys need less; few need the medium dose."""
    rng, records = np.random.default_rng(SEED), Records(CLINIC, strict=True)
    rows, wanted = [], []
    for _ in range(PEOPLE):
        age, impaired = float(rng.uniform(18, 100)), bool(rng.random() < 0.4)
        rows.append(records.one({"age": age, "kidneys": "impaired" if impaired else "normal"}).rows)
        need = (59 - age) / 82 + (-0.35 if impaired else 0.35)  # negative: less
        wanted.append([0.45 - 0.6 * need, 0.5, 0.45 + 0.6 * need])
    return _tabled(np.array(rows), np.array(wanted), "Patients of a made-up clinic, three doses each.")


def _shop() -> Task:
    """Visitors and products. Cheap and well-rated products sell, and each segment likes some kinds better."""
    rng, records = np.random.default_rng(SEED), Records(SHOP, strict=True)
    likes = {segment: dict(zip("abcd", rng.uniform(-0.3, 0.3, 4), strict=True)) for segment in ("new", "regular")}
    rows, wanted = [], []
    for _ in range(PEOPLE):
        segment = ("new", "regular")[rng.integers(2)]
        offered = [
            {
                "id": str(number),
                "features": {
                    "price": float(rng.uniform(0, 500)),
                    "rating": float(rng.uniform(0, 5)),
                    "kind": "abcd"[rng.integers(4)],
                },
            }
            for number in range(PRODUCTS)
        ]
        rows.append(records.one({"segment": segment}, offered).rows)
        sold = [one["features"] for one in offered]
        wanted.append([f["rating"] / 10 - f["price"] / 1000 + likes[segment][f["kind"]] for f in sold])  # type: ignore[index]
    return _tabled(np.array(rows), np.array(wanted), f"Visitors of a made-up shop, {PRODUCTS} products each.")


def _tabled(rows: Floats, wanted: Floats, description: str) -> Tabled:
    """The task with action sets `rows` (people, arms, dim) whose means are the best linear fit to `wanted`."""
    people, arms, dim = rows.shape
    features = with_constant(rows.reshape(-1, dim))
    weights = np.linalg.lstsq(features.astype(np.float64), wanted.ravel(), rcond=None)[0]
    ones = np.eye(dim + 1)[0] / (CONSTANT * ROUND_DOWN)
    model = bounded_model(features, np.asarray(weights), ones)
    offsets = np.arange(people + 1, dtype=np.int64) * arms
    return Tabled(ActionTable(features, offsets, model.means, model.theta, description), Responses())


INSTANCES = {
    "synthetic": _Standard(20, 500, lambda paths: synthetic(dim=5, arms=20)),
    "clinic": _Standard(12, 600, lambda paths: _clinic()),
    "shop": _Standard(10, 1_000, lambda paths: _shop()),
    "letor": _Standard(10, 500, lambda paths: letor(_given(paths.letor))),
    "warfarin": _Standard(10, 1_000, lambda paths: warfarin(_given(paths.warfarin))),
}
NEEDS = {"letor": "--letor PATH (a LETOR file or folder)", "warfarin": "--warfarin PATH (its CSV)"}


def instances(paths: Paths, share: float = 1.0) -> list[Instance]:
    """The instances whose data are available, each with this share of its rounds."""
    return [
        Instance(name, standard.task(paths), standard.silos, max(1, round(share * standard.rounds)))
        for name, standard in INSTANCES.items()
        if name not in NEEDS or getattr(paths, name) is not None
    ]


def _given(path: Path | None) -> Path:
    assert path is not None, "`instances` leaves out an instance whose path is not given"
    return path
