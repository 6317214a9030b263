"""Policies to judge. Each maps a log to the probability of every action, (actions of all decisions,)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.policies import Policy, as_policy
from fedbandit.evaluation.decisions import Decisions

__all__ = ["Target", "always", "by_model", "given", "logged_model", "suggested", "uniform"]

Target = Callable[[Decisions], Floats]


def uniform(decisions: Decisions) -> Floats:
    """Every allowed action with the same probability."""
    possible = decisions.open.astype(np.float64)
    return possible / decisions.totals(possible)[decisions.decision]


def always(action: int | str) -> Target:
    """Always the same action, by its name or its index; refused if some decision does not offer it."""

    def target(decisions: Decisions) -> Floats:
        index = np.arange(len(decisions.rows)) - decisions.offsets[:-1][decisions.decision]
        named = decisions.names is not None and isinstance(action, str)
        chosen = (np.asarray(decisions.names) == action) if named else (index == _index(action))
        chosen = chosen & decisions.open
        lacking = int((decisions.totals(chosen.astype(np.float64)) == 0).sum())
        if lacking:
            raise ArgumentError("policy", f"'always {action}' cannot be played: {lacking:,} decisions do not offer it")
        return np.asarray(chosen, dtype=np.float64)

    return target


def by_model(model: Model, policy: Policy) -> Target:
    """What a policy does with a model."""

    def target(decisions: Decisions) -> Floats:
        if decisions.rows.shape[1] != model.theta.shape[-1]:
            raise ArgumentError(
                "model", f"must have dimension {decisions.rows.shape[1]}, the log's, got {model.theta.shape[-1]}"
            )
        means, spreads = linucb.scores(decisions.rows, model)
        likely = np.zeros(len(decisions.rows))
        if decisions.allowed is None:
            for size in np.unique(decisions.sizes):  # all sets of one size together
                at = decisions.offsets[:-1][decisions.sizes == size][:, None] + np.arange(size)
                likely[at] = policy.probabilities(means[at], spreads[at])
            return likely
        for first, last in zip(decisions.offsets[:-1], decisions.offsets[1:], strict=True):
            at = first + np.flatnonzero(decisions.open[first:last])
            likely[at] = policy.probabilities(means[at], spreads[at])
        return likely

    return target


def logged_model(models: pl.DataFrame, version: int | None = None, policy: Policy | None = None) -> Target:
    """What a model in a silo's log does under its own policy or another one.

    Without `version` it is the newest model. If several terms have the same version, it is the last term's.
    """
    known = models if version is None else models.filter(pl.col("version") == version)
    if not len(known):
        versions = ", ".join(map(str, sorted(models["version"].unique())))
        raise ArgumentError(
            "policy", f"must name a version of the model that the log holds ({versions}), got {version}"
        )
    row = known.row(len(known) - 1, named=True)
    dim = len(row["theta"])
    model = Model(np.array(row["theta"]), np.array(row["root"]).reshape(dim, dim), np.asarray(row["radius"]))
    return by_model(model, as_policy(json.loads(row["policy"])) if policy is None else policy)


def suggested(decisions: Decisions) -> Floats:
    """What the model in use at each decision would have done, as the log says."""
    if decisions.suggested is None:
        raise ArgumentError("policy", "'model' is not in the log: it does not say what the model would have done")
    return decisions.suggested


def given(probabilities: Floats) -> Target:
    """A policy with these probabilities, (actions of all decisions,)."""

    def target(decisions: Decisions) -> Floats:
        likely = np.asarray(probabilities, dtype=np.float64)
        if likely.shape != (len(decisions.rows),):
            raise ArgumentError("probabilities", f"must be {len(decisions.rows):,}, one per action, got {likely.shape}")
        return likely

    return target


def _index(action: Any) -> int:
    try:
        return int(action)
    except ValueError:
        raise ArgumentError(
            "policy", f"'always {action}' must name an action by its index: the log has no names"
        ) from None
