"""Neighbouring worlds: two federations that differ in one user, chosen as badly as the promise allows.

A world is one batch per sync. Nearly all users have a single action, so what they add is fixed and the same in both
worlds. Some have two: those who share a batch with the user, whom the user could flip if the silo acts on raw sums,
and one witness in each of the next batches, who decides by the noisy model, so that acting on it is audited too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.protocol.encoder import Encoder

__all__ = ["Batch", "User", "World", "neighbours", "placement", "worst_pair"]

WITNESSES = 2  # batches after the user's in which somebody decides by the model
BACKGROUND_SEED = 0  # everybody else: the same people in every audit


class User(NamedTuple):
    """A feature vector and a reward. Nobody at all is the zero vector."""

    x: Floats
    y: float


@dataclass(frozen=True)
class Batch:
    """The users of one batch, one row per silo: first those with one action, then those who have to choose."""

    fixed: Integers  # (silos, users, width): contributions
    actions: Floats  # (silos, choosers, arms, dim)
    rewards: Floats  # (silos, choosers, arms)
    rounds: tuple[int, ...]  # (choosers,): how many rounds the model counts that each of them is served by

    @property
    def users(self) -> int:
        """Users of one silo."""
        return int(self.fixed.shape[1]) + self.choosers

    @property
    def choosers(self) -> int:
        """Users of one silo who have to choose."""
        return int(self.actions.shape[1])


World = tuple[Batch, ...]


def worst_pair(dim: int, adjacency: Adjacency, centre: float, ratio: float) -> tuple[User, User]:
    """The user and the neighbour whose contributions are furthest apart (see `privacy.sensitivity`).

    The pair is turned so that the difference of the two x x^T is diagonal: there the paper's layout of the noise (the
    same on every number) hides no more than the Frobenius-exact one.
    """
    reward = 1.0 if 1 - centre >= centre else 0.0
    nobody = User(np.zeros(dim), reward)
    if adjacency == "add-remove":
        return User(_unit(dim, 0.0), reward), nobody
    spread = ratio * max(1 - centre, centre) ** 2
    angle = math.acos(-min(1.0, spread / 2)) if dim > 1 else math.pi
    first = (math.pi / 2 - angle) / 2 if dim > 1 else 0.0
    return User(_unit(dim, first), reward), User(_unit(dim, first + angle), reward)


def placement(encoder: Encoder, users: Sequence[int], participations: int) -> int:
    """The batch (from 0) where a user moves the releases most: column norm times rounds that fit into the batch."""
    squares = np.zeros(encoder.size)
    for k in range(encoder.size):
        row = encoder.row(k)
        squares[: len(row)] += row**2
    weights = np.sqrt(squares) * np.minimum(participations, np.array(users))
    return int(np.argmax(weights > weights.max() * (1 - 1e-12)))


def neighbours(plan: Plan, silos: int, pair: tuple[User, User] | None = None) -> tuple[World, World]:
    """The two worlds for a plan with a calendar, of whose silos the first `silos` are played.

    The user is in silo 0, and in the next ones if the plan lets one user visit several.
    """
    assert plan.privacy is not None
    privacy, times = plan.privacy, plan.times
    users = np.diff((0, *times)).tolist()
    pair = pair or worst_pair(plan.dim, privacy.adjacency, plan.centre, plan.ratio)
    home = placement(plan.encoder, users, privacy.participations)
    visits = min(privacy.participations, users[home])
    base = [_background(plan, silos, count) for count in users]
    for sync in range(home + 1, min(home + 1 + WITNESSES, len(users))):
        base[sync] = _with_witness(plan, base[sync], rounds=times[sync - 1])
    bait = _with_bait(plan, base[home], pair, visits, start=times[home] - users[home])
    worlds = []
    for user in pair:
        own = contributions(user.x, user.y, plan.bits, plan.centre)
        fixed = bait.fixed.copy()
        fixed[: privacy.silos_per_user, :visits] = own
        worlds.append((*base[:home], replace(bait, fixed=fixed), *base[home + 1 :]))
    return worlds[0], worlds[1]


def _background(plan: Plan, silos: int, users: int) -> Batch:
    """Users with one action each, the same people at every silo: nothing but the user tells silos apart."""
    rng = np.random.default_rng(BACKGROUND_SEED)
    x = rng.standard_normal((users, plan.dim))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    points = contributions(x, rng.random(users), plan.bits, plan.centre)
    nobody = np.zeros((silos, 0, 1, plan.dim))
    return Batch(np.broadcast_to(points, (silos, *points.shape)).copy(), nobody, np.zeros((silos, 0, 1)), ())


def _with_witness(plan: Plan, batch: Batch, rounds: int) -> Batch:
    """The last user of the batch gets a choice, and rewards that tell how they chose."""
    silos = batch.fixed.shape[0]
    pair = np.stack([_unit(plan.dim, 0.0), -_unit(plan.dim, 0.0)])
    actions = np.broadcast_to(pair, (silos, 1, *pair.shape)).copy()
    rewards = np.broadcast_to([1.0, 0.0], (silos, 1, 2)).copy()
    return Batch(batch.fixed[:, :-1], actions, rewards, (rounds,))


def _with_bait(plan: Plan, batch: Batch, pair: tuple[User, User], visits: int, start: int) -> Batch:
    """The user's own batch, after `start` rounds: everybody after the user chooses between the neighbours' actions.

    A silo that has seen the user's action rewarded thinks better of that action, so a silo that acts on raw sums gives
    it to everybody. The neighbour's action comes first, so that it is what they get without the user.
    """
    silos, users, _ = batch.fixed.shape
    followers = users - visits
    options = np.stack([pair[1].x, pair[0].x])
    if not options.any(axis=-1).all():
        options[~options.any(axis=-1)] = -options[options.any(axis=-1)][0]
    actions = np.broadcast_to(options, (silos, followers, *options.shape)).copy()
    rewards = np.broadcast_to([pair[1].y, pair[0].y], (silos, followers, 2)).copy()
    lazy = plan.acting == "lazy"
    rounds = tuple(start if lazy else start + visits + 1 + follower for follower in range(followers))
    return Batch(batch.fixed[:, :visits], actions, rewards, rounds)


def _unit(dim: int, angle: float) -> Floats:
    """The unit vector at this angle in the plane of the first two coordinates."""
    x = np.zeros(dim)
    x[0] = math.cos(angle)
    if dim > 1:
        x[1] = math.sin(angle)
    return x
