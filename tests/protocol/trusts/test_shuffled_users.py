"""Where users send for themselves: what hides them among each other, and what their promise may assume of a silo."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy, at_most
from fedbandit.privacy.clones import amplified_epsilon
from fedbandit.privacy.grid import SPARE, eta, slack
from fedbandit.privacy.sensitivity import ADJACENCIES, Adjacency
from fedbandit.protocol.trusts.shuffle import TOGETHER, SeesShuffled
from fedbandit.protocol.trusts.shuffled_users import Crowd
from fedbandit.schedule import At, clock, every


def made(adjacency: Adjacency, trust: str = "shuffled-users", ratio: float = 1.0, centre: float = 0.0) -> Plan:
    privacy = Privacy(1.0, 1e-5, adjacency=adjacency)
    shared = {"mechanism": "batches", "schedule": every(100), "ratio": ratio, "centre": centre}
    return Plan(1000, 1000, 2, privacy, trust=trust, **shared)  # type: ignore[arg-type]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("ratio", "centre"), [(1.0, 0.0), (3.0, 0.0), (1.0, 0.5)])
def test_clones_count_on_no_user_being_nearer_than_users_are(adjacency: Adjacency, ratio: float, centre: float) -> None:
    """The largest distance of two messages in their own noise, searched for; that of somebody who stays away is less,
    but they hide among people who do not."""
    plan = made(adjacency, ratio=ratio, centre=centre)
    angles = np.linspace(0, math.pi, 721)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    first, second = (contributions(x, np.full(len(x), reward), plan.bits, plan.centre) for reward in (0.0, 1.0))
    messages = np.concatenate([first, second]) / plan.protocol.drawn_scales  # drawn noise: of each number, packed
    spread = max(float(np.linalg.norm(messages - one, axis=1).max()) for one in messages)
    shift = spread if adjacency == "replace-one" else float(np.linalg.norm(messages, axis=1).max())
    epsilon = amplified_epsilon(shift, spread, 99_999, 1, 1e-5)
    assert 0.97 < epsilon <= 1
    printed = [float(number) for number in re.findall(r"at most ([\d.]+) ", plan.guarantee.steps[0])]
    assert printed == pytest.approx([shift, spread], rel=1e-3)
    assert amplified_epsilon(shift, spread * 1.3, 99_999, 1, 1e-5) > 1  # what is certified hangs on it


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_crowd_is_the_smallest_batch_but_for_one_who_may_tell(adjacency: Adjacency) -> None:
    plan = made(adjacency).changed(silos=7, rounds=100, schedule=At((20, 50, 100)), bits=9, ratio=2.0)
    crowd, half = Crowd.of(plan.request), math.sqrt(2 * 2 + 4) * 2.0**-10
    added, replaced = math.sqrt(3) + half, math.sqrt(8) + 2 * half  # s = 2 for both of sensitivity's formulas
    assert crowd == pytest.approx((replaced if adjacency == "replace-one" else added, replaced, 139), rel=1e-12)
    alone = made(adjacency).changed(silos=1, rounds=4, schedule=every(1))
    assert Crowd.of(alone.request).users == 1
    assert [one.name for one in alone.protocol.adversaries()] == [SeesShuffled().name, TOGETHER]


def test_what_clones_certify_is_printed_and_the_noise_is_what_they_ask_for() -> None:
    plan = made("replace-one")
    crowd, sigma = Crowd.of(plan.request), plan.protocol.scales.diagonal
    certified = amplified_epsilon(crowd.shift / sigma, crowd.spread / sigma, crowd.users, 1, 1e-5)
    assert [one.name for one in plan.protocol.adversaries()] == [SeesShuffled().name]
    assert crowd.epsilon(plan.request, sigma) == pytest.approx(certified)
    assert f"a message is ({at_most(certified)}, 1e-05)-DP once it is shuffled" in plan.guarantee.steps[1]
    assert plan.request.exact_sigma(joint_silos=False) > 3 * sigma


@pytest.mark.parametrize("twice", [{"participations": 2}, {"silos_per_user": 2}])
def test_a_user_sends_one_message(twice: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=r"^participations must be 1 for trust 'shuffled-users'"):
        made("replace-one").changed(privacy=replace(Privacy(1.0, 1e-5), **twice))  # type: ignore[arg-type]


@pytest.mark.parametrize("trust", ["shuffle", "shuffled-users"])
def test_the_mixer_that_permutes_messages_cannot_read_them(trust: str) -> None:
    mechanism = "batches" if trust == "shuffled-users" else "tree"
    (part,) = made("replace-one").changed(trust=trust, mechanism=mechanism).protocol.parts
    assert part.blind
    assert part.reader == "analyzer"


@pytest.mark.parametrize(("trust", "said"), [("local", "'exact' or 'literature'"), ("shuffled-users", "'exact'")])
def test_a_mechanism_that_composes_is_refused_with_what_there_is(trust: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=f"must have mechanism 'batches' and calibration {said}: users add"):
        made("replace-one", trust).changed(mechanism="tree")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("trust", ["local", "shuffled-users"])
def test_nothing_is_left_to_a_silo_that_is_not_trusted(trust: str, adjacency: Adjacency) -> None:
    guarantee = made(adjacency, trust).guarantee
    said = dict(guarantee.answers)["Who does not count"]
    assert said == "anybody who sends nothing; they are served by the public model, like everybody else"
    assert "raw data" not in str(guarantee)
    assert "a silo refuses" not in str(guarantee)
    assert any("users make sure of it before they add noise" in one for one in guarantee.assumes)


@pytest.mark.parametrize("schedule", [every(10), clock(60)])
def test_a_message_that_is_missing_shows(schedule: object) -> None:
    """Who stays away under add-remove must send noise: with users' own messages an empty round is no message."""
    plan = made("add-remove", "local").changed(schedule=schedule)
    assert "a person who stays away sends noise alone instead" in " ".join(plan.guarantee.assumes)
    assert "leaves their round empty" not in str(plan.guarantee)
    assert "noise alone" not in str(plan.changed(privacy=Privacy(1.0, 1e-5)).guarantee)


def test_the_promise_without_the_mixer_is_the_noise_alone() -> None:
    plan = made("add-remove")
    alone = plan.request.exact_epsilon(plan.protocol.scales.diagonal, joint_silos=False)
    assert f"Without the mixer each user's own data is ({at_most(alone)}, 1e-05)" in plan.guarantee.statement


def test_every_message_among_which_a_user_hides_is_noise_on_a_grid() -> None:
    """One factor per number and message: of all users in the batch, in either world."""
    plan = made("replace-one")
    printed = re.search(r"adds at most (\S+) to epsilon", plan.guarantee.steps[-1])
    assert printed is not None
    users, numbers = 100 * 1000, plan.protocol.width
    assert float(printed[1]) >= 2 * 3 * eta(math.sqrt(SPARE)) * numbers * users
    assert printed[1] == at_most(slack(plan.encoder.size * 100 * numbers, plan.silos), 1)
