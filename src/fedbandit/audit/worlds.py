"""Neighbouring worlds: two federations that differ in one user, chosen to be the worst case that the promise allows.

The user comes as often, and to as many silos, as the promise allows, at the times that move the releases most. All
visits are in one batch if it has room (on a clock it always has), otherwise in several. If visits count only when they
are some number of syncs apart, they are in the batches that move the releases most at such distances.

A world has one batch per sync. Nearly all users have a single action, so what they add is fixed and the same in both
worlds. Some have two actions: those who share a batch with the user, whose actions the user could flip if the silo acts
on raw sums, and one witness in each of the next batches, who is served by the noisy model, so that acting on the model
is audited too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.schedule import Clock

__all__ = [
    "Batch",
    "User",
    "World",
    "background_users",
    "neighbours",
    "people",
    "placement",
    "telling_pair",
    "visits",
    "worst_pair",
    "worst_pairs",
]

WITNESSES = 2  # number of batches after the user's last that have a witness
TIES = 1e-12  # relative: if batches differ by less, the first of them is taken
BACKGROUND_SEED = 0  # of everybody else: the same people in every audit
TURN_SEED, TURNS = 0, 500
POSITION = 1e-3  # how much less, relatively, the pair in general position may move the releases


class User(NamedTuple):
    """A feature vector and a reward. The zero vector stands for nobody."""

    x: Floats
    y: float


@dataclass(frozen=True)
class Batch:
    """The users of one batch, one row per silo: first those with one action, then those with a choice."""

    fixed: Integers  # (silos, users, width): contributions
    actions: Floats  # (silos, choosers, arms, dim)
    rewards: Floats  # (silos, choosers, arms)
    rounds: tuple[int, ...]  # (choosers,): the number of rounds behind the model that serves each of them

    @property
    def choosers(self) -> int:
        """The number of users of one silo who have a choice."""
        return int(self.actions.shape[1])


World = tuple[Batch, ...]


def worst_pair(
    dim: int, adjacency: Adjacency, centre: float, ratio: float, *, turned: bool = False
) -> tuple[User, User]:
    """The user and the neighbour whose contributions are furthest apart (see `privacy.sensitivity`).

    By default the difference of the two x x^T is diagonal. There the paper's layout of the noise (the same on every
    number) hides least. If `turned`, the pair is in general position, and every number of their contributions differs:
    the Frobenius-exact layout hides exactly as much, and a number without noise shows.
    """
    reward = 1.0 if 1 - centre >= centre else 0.0
    plane = _general_plane(dim) if turned and dim > 1 else np.eye(dim, min(dim, 2))
    nobody = User(np.zeros(dim), reward)
    if adjacency == "add-remove":
        return User(_unit(plane, math.pi / 4 if turned else 0.0), reward), nobody
    spread = ratio * max(1 - centre, centre) ** 2
    angle = math.acos(-min(1.0, spread / 2)) if dim > 1 else math.pi
    first = (math.pi / 2 - angle) / 2 if dim > 1 else 0.0
    return User(_unit(plane, first), reward), User(_unit(plane, first + angle), reward)


def worst_pairs(plan: Plan) -> tuple[tuple[User, User], tuple[User, User]]:
    """The worst pair of a plan in both positions: first in general position, then with a diagonal difference."""
    assert plan.privacy is not None
    adjacency, centre, ratio = plan.privacy.adjacency, plan.centre, plan.ratio
    turned, standing = (worst_pair(plan.dim, adjacency, centre, ratio, turned=turned) for turned in (True, False))
    return turned, standing


def telling_pair(plan: Plan) -> tuple[User, User]:
    """The worst pair in the position where the plan's noise hides least; in general position if nearly as bad."""
    pairs = worst_pairs(plan)
    claimed = plan.protocol.scales.packed(plan.dim)
    scales = np.where(claimed > 0, claimed, 1.0)
    turned, diagonal = (np.linalg.norm(_gap(plan, pair) / scales) for pair in pairs)
    return pairs[0] if turned >= (1 - POSITION) * diagonal else pairs[1]


def _gap(plan: Plan, pair: tuple[User, User]) -> Floats:
    one, other = (contributions(user.x, user.y, plan.bits, plan.centre) * 2.0**-plan.bits for user in pair)
    return np.asarray(one - other)


@lru_cache(maxsize=16)
def _general_plane(dim: int) -> Floats:
    """Two orthonormal vectors (dim, 2), such that a pair in their plane differs clearly in every number.

    From a fixed set of random planes, this is the one whose smallest difference is largest.
    """
    if dim == 2:
        turn = math.pi / 8
        return np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    drawn = np.random.default_rng(TURN_SEED).standard_normal((TURNS, dim, 2))
    planes = [np.linalg.qr(columns)[0] for columns in drawn]
    return max(planes, key=lambda plane: float(np.abs(plane @ np.diag([1.0, -1.0]) @ plane.T).min()))


def placement(coefficients: Floats, room: Sequence[int], visits: int, moves: Sequence[float]) -> tuple[int, ...]:
    """How often the user comes in each batch, at most `visits` times in all, to move the releases far.

    `coefficients` are those of an encoder, (syncs, syncs). A visit in batch j moves its sum by `moves[j]`, and batch j
    has room for `room[j]` visits. Batches are filled greedily, the one that adds most first. That is optimal if one
    batch has room for all visits, and never worse than using any one batch.
    """
    gram = coefficients.T @ coefficients
    left, coming, slope = np.array(room), np.zeros(len(room), dtype=int), np.zeros(len(room))
    while visits and left.any():
        counts = np.minimum(left, visits)
        moved = counts * np.array(moves, dtype=float)
        gains = np.where(left > 0, moved * (2 * slope + moved * np.diag(gram)), -np.inf)
        best = int(np.argmax(gains >= gains.max() - TIES * abs(gains.max())))
        slope += moved[best] * gram[:, best]
        coming[best] = counts[best]
        left[best], visits = 0, visits - int(counts[best])
    return tuple(coming.tolist())


def visits(plan: Plan) -> tuple[int, ...]:
    """How often the user comes in each batch of a silo: as often as the promise allows, or in all rounds.

    If silos act eagerly, the first visit in a batch already moves everybody in it, so each visit is in a new batch.
    """
    assert plan.privacy is not None
    users, limit = np.diff((0, *plan.times)), plan.privacy.participations
    if plan.privacy.apart:
        chosen = plan.encoder.worst_visits(limit, plan.privacy.apart)
        return tuple(int(sync in chosen) for sync in range(len(users)))
    noise = np.array([float(plan.protocol.release_scales(count).max()) or 1.0 for count in users.tolist()])
    coefficients = plan.encoder.coefficients / noise[:, None]
    if plan.acting == "eager":
        return placement(coefficients, [1] * len(users), limit, users.tolist())
    room = [limit] * len(users) if isinstance(plan.schedule, Clock) else users.tolist()
    return placement(coefficients, room, limit, [1.0] * len(users))


def people(plan: Plan, coming: Sequence[int]) -> tuple[int, ...]:
    """The number of users of one silo in each batch: as the calendar says, or more if the user comes more often."""
    return tuple(np.maximum(np.diff((0, *plan.times)), coming).tolist())


def neighbours(
    plan: Plan, silos: int, pair: tuple[User, User] | None = None, *, alone: bool = False
) -> tuple[World, World]:
    """The two worlds for a plan with a calendar, with this number of silos.

    The user is in silo 0, and in the next ones if the plan lets one user visit several. If `alone`, nobody else comes:
    that is quick to play, and enough to see how far the user moves the releases of silos that act lazily.
    """
    assert plan.privacy is not None
    coming, starts, pair = visits(plan), (0, *plan.times), pair or telling_pair(plan)
    users = coming if alone else people(plan, coming)
    base = [_background(plan, silos, count) for count in users]
    last = max(sync for sync, count in enumerate(coming) if count)
    for sync in range(last + 1, min(last + 1 + WITNESSES, len(users))):
        if users[sync]:
            base[sync] = _with_witness(plan, base[sync], rounds=starts[sync])
    worlds = (list(base), list(base))
    for sync, count in enumerate(coming):
        if count:
            bait = _with_bait(plan, base[sync], pair, count, start=starts[sync])
            for world, user in zip(worlds, pair, strict=True):
                fixed = bait.fixed.copy()
                fixed[: plan.privacy.silos_per_user] = contributions(user.x, user.y, plan.bits, plan.centre)
                world[sync] = replace(bait, fixed=fixed)
    return tuple(worlds[0]), tuple(worlds[1])


def background_users(plan: Plan, users: int) -> tuple[User, ...]:
    """Everybody else: this number of users, the same in every audit."""
    rng = np.random.default_rng(BACKGROUND_SEED)
    x = rng.standard_normal((users, plan.dim))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return tuple(User(features, float(y)) for features, y in zip(x, rng.random(users), strict=True))


def _background(plan: Plan, silos: int, users: int) -> Batch:
    """A batch of users with one action each, the same people at every silo, so that silos differ in the user only."""
    everybody = background_users(plan, users)
    x = np.array([user.x for user in everybody]).reshape(users, plan.dim)
    y = np.array([user.y for user in everybody])
    points = contributions(x, y, plan.bits, plan.centre)
    nobody = np.zeros((silos, 0, 1, plan.dim))
    return Batch(np.broadcast_to(points, (silos, *points.shape)).copy(), nobody, np.zeros((silos, 0, 1)), ())


def _with_witness(plan: Plan, batch: Batch, rounds: int) -> Batch:
    """The batch, with a witness as its last user: two actions, whose rewards differ."""
    silos = batch.fixed.shape[0]
    pair = np.stack([np.eye(plan.dim)[0], -np.eye(plan.dim)[0]])
    actions = np.broadcast_to(pair, (silos, 1, *pair.shape)).copy()
    rewards = np.broadcast_to([1.0, 0.0], (silos, 1, 2)).copy()
    return Batch(batch.fixed[:, :-1], actions, rewards, (rounds,))


def _with_bait(plan: Plan, batch: Batch, pair: tuple[User, User], visits: int, start: int) -> Batch:
    """The user's own batch, after `start` rounds: everybody after the user chooses between the neighbours' actions.

    A silo that has seen the user's action rewarded estimates it higher, so a silo that acts on raw sums gives it to
    everybody. The neighbour's action comes first, so that they get it if the user is not there.
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


def _unit(plane: Floats, angle: float) -> Floats:
    """The unit vector at this angle in a plane (dim, 2), or on the line if there is only one dimension."""
    parts = np.array([math.cos(angle), math.sin(angle)])[: plane.shape[1]]
    return np.asarray(plane @ parts)
