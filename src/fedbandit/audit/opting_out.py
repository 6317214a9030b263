"""Checks that data of people who do not count reach no release, and no decision for somebody who counts.

A live silo is run twice on the same people, except that those who have opted out or are over the cap bring the opposite
data in the second world: enough of them to change every decision that looks at raw sums. Nothing is random until noise
is added, so everything that could tell the two worlds apart must be equal to the bit: the actions of those who count,
the closed batches and what the encoder makes of them, places, and sizes. People who were served by raw data come again
in the next term with data that give them away, and must not count there either.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.audit.auditor import Check
from fedbandit.bandit.statistics import contributions
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.rewards import CountedRow
from fedbandit.federation.timing import Reading, Timing
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.plan import Plan
from fedbandit.schedule import Clock

__all__ = ["served_apart"]

WHAT = "who is served by what"
OTHERS = 400  # people per sync who opt out and come without a key
KEYED = 4  # people per sync who opt out and come with a key
KNOWN = 40  # visits by which the public sums grow per sync and action
AGAIN = "again"  # the key of somebody who comes more often than the cap
DEPENDS = {
    "actions": "decisions for those who count depend on the data of those who do not",
    "batch": "a batch contains data of those who do not count",
    "encoded": "releases depend on the data of those who do not count",
    "envelope": "places in batches, or sizes of releases, depend on the data of those who do not count",
}


class _Seen(NamedTuple):
    """What is seen of one sync before noise is added."""

    actions: tuple[int, ...]
    batch: list[CountedRow]
    encoded: bytes | None
    envelope: tuple[int, int, int]


def served_apart(plan: Plan) -> Check:
    """Run a live silo of the plan in both worlds; the check says in words what differs."""
    with tempfile.TemporaryDirectory(prefix="fedbandit-audit-") as folder:
        low, high = (_played(Path(folder) / f"{world}.db", plan, world) for world in (0, 1))
    failed = [
        name
        for name in _Seen._fields
        if any(getattr(one, name) != getattr(other, name) for one, other in zip(low, high, strict=True))
    ]
    return Check("served apart", WHAT, len(low) * len(_Seen._fields), tuple(DEPENDS[name] for name in failed))


class _Hand:
    """A clock that is moved by hand, from tick to tick."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> Reading:
        return Reading(self.now, self.now, "")


def _played(store: Path, plan: Plan, world: int) -> list[_Seen]:
    clock, seen = _Hand(), []
    with Silo.open(store, plan, timing=Timing(start=0.0), clock=clock) as silo:
        for sync in range(len(plan.times)):
            actions = _serve(silo, sync, world)
            batch = sorted(silo.store.batch(silo.term.number, sync))
            if isinstance(plan.schedule, Clock):
                clock.now = plan.times[sync] * plan.schedule.period
            silo.tick()
            seen.append(_Seen(actions, batch, _encoded(silo), _envelope(silo, sync)))
            silo.learn(sync, Outcome(_public(plan, sync), np.ones(plan.silos, dtype=np.int64)), included=False)
    if plan.serves_uncounted == "local":
        seen.append(_next_term(store, plan, clock, world))
    return seen


def _next_term(store: Path, plan: Plan, clock: _Hand, world: int) -> _Seen:
    """The open batch of the next term, in which the people who were served by raw data come again."""
    later = plan.changed(alpha=plan.alpha / 2)  # any other plan
    with Silo.open(store, later, timing=Timing(start=clock.now), clock=clock, new_term=True) as silo:
        both = np.stack(_pair(plan))
        actions = (_come(silo, both, "new", 0.5),)
        for key in (AGAIN, *(f"out 0 {number}" for number in range(KEYED))):
            _come(silo, both[world][None], key, float(world))
        batch = sorted(silo.store.batch(silo.term.number, 0))
        return _Seen(actions, batch, None, _envelope(silo, 0))


def _serve(silo: Silo, sync: int, world: int) -> tuple[int, ...]:
    """Serve everybody who comes in one batch; return the actions of those who count, who choose between two."""
    both = np.stack(_pair(silo.plan))
    rewards = [float(number % 2 == world) for number in range(OTHERS)]
    decisions = silo.decide_many(np.stack([both[number % 2][None] for number in range(OTHERS)]), shared=False)
    silo.reward_all([(decision.id, reward) for decision, reward in zip(decisions, rewards, strict=True)])
    for number in range(KEYED):
        _come(silo, both[number % 2][None], f"out {sync} {number}", rewards[number], shared=False)
    counting = [AGAIN] * _counted_again(silo.plan, sync)
    counting += [f"in {sync} {number}" for number in range(_people(silo.plan, sync) - len(counting))]
    actions = tuple(_come(silo, both, key, 0.5) for key in counting)
    for _ in range(2):
        _come(silo, both[:1], AGAIN, float(world))
    return actions


def _come(silo: Silo, actions: Floats, key: str, reward: float, shared: bool = True) -> int:
    decision = silo.decide(actions, user=key, shared=shared)
    silo.reward(decision.id, reward)
    return decision.action


def _counted_again(plan: Plan, sync: int) -> int:
    """How often the person who keeps coming counts in a batch: all visits at once, or spaced as the plan asks."""
    cap, apart = plan.cap or 1, 0 if plan.privacy is None else plan.privacy.apart
    if not apart:
        return cap if sync == 0 else 0
    return int(sync % apart == 0 and sync // apart < cap)


def _people(plan: Plan, sync: int) -> int:
    """The number of people who count in a batch."""
    if isinstance(plan.schedule, Clock):
        return (plan.cap or 1) + 2
    return int(np.diff((0, *plan.times))[sync])


def _pair(plan: Plan) -> tuple[Floats, Floats]:
    """Two actions in different directions."""
    first = np.eye(plan.dim)[0]
    return first, np.eye(plan.dim)[-1] if plan.dim > 1 else -first


def _public(plan: Plan, sync: int) -> Floats:
    """Public sums, the same in both worlds, which make the two actions about equally good."""
    x = np.stack([action for _ in range(KNOWN * (sync + 1)) for action in _pair(plan)])
    y = np.tile([0.5, 0.45], len(x) // 2)
    return np.asarray(contributions(x, y, plan.bits, plan.centre).sum(axis=0) * 2.0**-plan.bits)


def _encoded(silo: Silo) -> bytes | None:
    """The encoder's state so far; None if that is random itself."""
    return None if silo.plan.protocol.needs_points else silo.store.encoder(silo.term.number)


def _envelope(silo: Silo, sync: int) -> tuple[int, int, int]:
    release, term = silo.store.release(silo.term.number, sync), silo.store.term(silo.term.number)
    return (-1, -1, term.seated) if release is None else (release.users, len(release.drawn or b""), term.seated)
