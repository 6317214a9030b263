"""What parties say of themselves: rewards by what became of them, whether it is learning, syncs and who is missing."""

import asyncio
import math
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from fedbandit.federation import http
from fedbandit.federation.http.families import Dates
from fedbandit.federation.http.keeper_service import KeeperService, create_keeper_app
from fedbandit.federation.http.metrics import became
from fedbandit.federation.membership import Membership
from fedbandit.federation.setup.party import PlanMismatch
from fedbandit.federation.silo.earnings import FEWEST, WEEK, Learning, RewardTrend
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Reward, Verdict
from fedbandit.federation.store.rewards import NOWHERE, OPEN_BATCH, UNSHARED, RewardColumns
from fedbandit.federation.telemetry.troubles import KINDS
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.link import BrokerRefusal
from fedbandit.federation.wire.refused import Refused
from fedbandit.schedule import clock
from tests.federation.http.client import ACTIONS, TOKEN, Client
from tests.federation.small import small_plan
from tests.federation.syncs.post import Post

PAGE = (Path(__file__).parents[3] / "docs" / "operating.md").read_text()
COUNTED = Verdict(DecisionState.COUNTED, 3, repeated=False, conflict=False)


def values(page):
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


@pytest.mark.parametrize(
    "verdict, place, word",
    [
        (COUNTED, OPEN_BATCH, "new"),
        (COUNTED, 3, "new"),
        (COUNTED._replace(state=DecisionState.RELEASED, repeated=True), OPEN_BATCH, "repeated"),
        (COUNTED._replace(conflict=True), OPEN_BATCH, "conflict"),
        (COUNTED._replace(state=DecisionState.LEFT_OUT), OPEN_BATCH, "capped"),
        (COUNTED._replace(state=DecisionState.LEFT_OUT), NOWHERE, "capped"),
        (COUNTED._replace(state=DecisionState.LEFT_OUT), 2, "late"),
        (COUNTED._replace(state=DecisionState.LEFT_OUT), 3, "capped"),
        (COUNTED._replace(state=DecisionState.KEPT), UNSHARED, "opted_out"),
        (COUNTED._replace(state=DecisionState.EXPIRED), OPEN_BATCH, "expired"),
    ],
)
def test_what_became_of_a_reward(verdict, place, word):
    assert became(verdict, place) == word


def test_rewards_and_refusals_are_counted_by_what_became_of_them(http, silo):
    def decide(**more):
        return http.post("/v1/decisions", json={"actions": ACTIONS, **more}).json()["id"]

    def reward(decision, value=0.5):
        return http.post(f"/v1/decisions/{decision}/reward", json={"reward": value}).status_code

    first, again = decide(user="x"), decide(user="x")
    assert [reward(first), reward(first), reward(first, 0.6), reward(again)] == [200, 200, 409, 200]
    assert reward(decide(user="y", shared=False)) == 200
    assert reward("nonsense") == 404
    page = values(http.get("/metrics").text)
    found = {word: page[f'fedbandit_rewards_total{{became="{word}"}}'] for word in ("new", "repeated", "conflict")}
    assert found == {"new": 1, "repeated": 1, "conflict": 1}
    assert page['fedbandit_rewards_total{became="capped"}'] == 1
    assert page['fedbandit_rewards_total{became="opted_out"}'] == 1
    assert page['fedbandit_refused_requests_total{status="409"}'] == 1
    assert page['fedbandit_refused_requests_total{status="404"}'] == 1
    assert page["fedbandit_epsilon_left"] + page["fedbandit_epsilon_spent"] == pytest.approx(1.0)


def test_a_store_that_takes_nothing_is_noticed_before_a_reward_comes(http, silo, monkeypatch):
    """Nothing was written while nobody came: a full disk looked well."""

    def full(*arguments):
        raise OSError("disk full")

    assert http.get("/readyz").status_code == 200
    monkeypatch.setattr("fedbandit.federation.http.service.probe", full)
    monkeypatch.setattr("fedbandit.federation.http.service.PROBE_AGAIN", 0.0)
    answer = http.get("/readyz")
    assert (answer.status_code, "disk full" in answer.json()["problems"]["store"]) == (503, True)
    assert http.post("/v1/decisions", json={"actions": ACTIONS}).status_code == 200


# -- is it learning? --------------------------------------------------------------------------------------------------


def earned(earnings, rewards, week):
    verdicts = [COUNTED] * len(rewards)
    came = [Reward(bytes([n % 256]), None, b"", float(r), b"") for n, r in enumerate(rewards)]
    earnings.note(RewardColumns.of(came), verdicts)
    earnings.flush((week + 0.5) * WEEK)


def shown(earnings: RewardTrend) -> Learning:
    """What there is to show, which must be something."""
    learning = earnings.learning()
    assert learning is not None
    return learning


def test_the_gain_and_its_interval_are_those_of_two_samples(silo):
    earnings, random = RewardTrend(silo.store, 1, 0.0), np.random.default_rng(3)
    first, second = random.random(400), random.random(300)
    later, last = np.clip(random.random(500) + 0.1, 0, 1), np.clip(random.random(200) + 0.1, 0, 1)
    for week, rewards in ((0, first), (1, second), (5, later), (6, last)):
        earned(earnings, rewards, week)
    early, recent = np.concatenate([first, second]), np.concatenate([later, last])
    wide = 1.959963984540054 * math.sqrt(early.var(ddof=1) / len(early) + recent.var(ddof=1) / len(recent))
    learning = shown(earnings)
    gain = recent.mean() - early.mean()
    assert (learning.first, learning.recent) == pytest.approx((early.mean(), recent.mean()))
    assert learning.gain == pytest.approx((gain - wide, gain, gain + wide))
    assert learning.gain[0] > 0  # the rewards did grow
    earned(earnings, first, 9)  # what was long ago is forgotten
    assert shown(earnings).recent == pytest.approx(first.mean())


def test_nothing_is_shown_of_few_people_or_in_the_first_weeks(silo):
    earnings = RewardTrend(silo.store, 1, 0.0)
    earned(earnings, [0.5] * FEWEST, 0)
    earned(earnings, [0.5] * FEWEST, 1)
    assert earnings.learning() is None
    earned(earnings, [0.5] * (FEWEST - 1), 2)
    assert earnings.learning() is None
    earned(earnings, [0.5], 2)
    assert shown(earnings).gain == (0, 0, 0)


def test_workers_add_to_each_other_and_only_what_counts_first_is_added(silo):
    one = RewardColumns.of([Reward(b"", None, b"", 1.0, b"")])
    workers = [RewardTrend(silo.store, 1, 0.0) for _ in range(2)]
    for worker in workers:
        earned(worker, [0.25, 0.75] * FEWEST, 0)
        worker.note(one, [COUNTED._replace(repeated=True)])
        worker.note(one, [COUNTED._replace(state=DecisionState.KEPT)])
        worker.flush(0.0)
    earned(workers[1], [1.0] * FEWEST, 4)
    assert shown(workers[0])[:2] == (0.5, 1.0)


# -- mixer and analyzer -----------------------------------------------------------------------------------------------


class Keeps:
    connected = True
    refusals: ClassVar[dict[str, int]] = {}

    def __init__(self, keeper):
        self.keeper = keeper

    @property
    def troubles(self):
        return self.keeper.troubles


def test_a_keeper_says_who_is_missing_and_how_far_it_has_come(tmp_path):
    plan = small_plan(schedule=clock(100.0), visits="private", cohort=2)

    async def scenario():
        post = Post(tmp_path, plan)
        keeper = post.keepers["analyzer"]
        service = KeeperService(Keeps(keeper), post.parties["analyzer"], keeper.store, Keeps(keeper))
        answer = await service.readiness()
        assert (answer.STATUS, list(answer.problems)) == (503, ["others"])
        await post.greet()
        assert (await service.readiness()).STATUS == 200
        post.now = 100 * plan.times[0] + 2.0
        for silo in post.silos[:2]:
            post.release(silo, 0)
        await post.deliver()
        assert keeper.waiting_for == (post.silos[2],)
        await post.pass_time(11.0)
        page = values((await service.metrics()).decode())
        assert page[f'fedbandit_silo_missed_in_a_row{{silo="{post.silos[2]}"}}'] == 1
        assert page[f'fedbandit_silo_missed_in_a_row{{silo="{post.silos[0]}"}}'] == 0
        assert (page["fedbandit_syncs_closed_total"], page["fedbandit_syncs_skipped_total"]) == (1, 0)
        assert (page["fedbandit_silos_present"], page["fedbandit_silos"], page["fedbandit_cohort"]) == (2, 3, 2)
        post.begin("analyzer")  # the same numbers after a restart
        again = post.keepers["analyzer"].progress
        assert (again.closed, again.present, again.missed[post.silos[2]]) == (1, 2, 1)

    asyncio.run(scenario())


def test_a_keeper_whose_store_fails_says_so_and_has_metrics_all_the_same(tmp_path, monkeypatch):
    def full(engine):
        raise OSError("disk full")

    async def scenario():
        post = Post(tmp_path, small_plan())
        await post.greet()
        keeper = post.keepers["mixer"]
        service = KeeperService(Keeps(keeper), post.parties["mixer"], keeper.store, Keeps(keeper))
        monkeypatch.setattr("fedbandit.federation.http.service.probe", full)
        assert "disk full" in (await service.readiness()).problems["store"]
        page = values((await service.metrics()).decode())
        assert (page["fedbandit_store_works"], page["fedbandit_ready"]) == (0, 0)
        assert page['fedbandit_problem{kind="store"}'] == 1
        assert sum(page[f'fedbandit_problem{{kind="{kind}"}}'] for kind in KINDS) == 1

    asyncio.run(scenario())


def test_metrics_of_a_keeper_need_its_token(tmp_path):
    post = Post(tmp_path, small_plan())
    keeper = post.keepers["mixer"]
    service = KeeperService(Keeps(keeper), post.parties["mixer"], keeper.store, Keeps(keeper))
    with Client(create_keeper_app(service, TOKEN), "Bearer wrong") as http:
        assert http.get("/metrics").status_code == 401
        assert http.get("/healthz").json() == {"status": "ok", "term": "running"}
    with Client(create_keeper_app(service, TOKEN), f"Bearer {TOKEN}") as http:
        assert http.get("/metrics").status_code == 200
        assert http.get("/v1/decisions").status_code == 404


def test_a_sync_is_overdue_from_its_tick_on():
    plan = small_plan(schedule=clock(100.0), visits="private")
    dates = Dates(plan, Timing(start=1000.0, settle=7.0))
    first = 1000 + 100 * plan.times[0] + 7
    assert dates.since(0, first - 1) == 0
    assert dates.since(0, first + 5) == 5
    assert dates.until_next(first - 1) == 1
    assert dates.since(len(plan.times), 1e9) is None
    assert dates.until_next(1e9) is None
    counted = Dates(small_plan(), Timing(start=1000.0))
    assert (counted.since(0), counted.until_next()) == (None, None)


# -- taking part ------------------------------------------------------------------------------------------------------


class Worker:
    troubles: ClassVar[dict[str, str]] = {}
    refused: ClassVar[Refused] = Refused()

    async def run(self, link):
        raise ExceptionGroup("tasks", [PlanMismatch("analyzer", "a" * 64, "b" * 64)])


class Unlinked:
    trouble = None

    class client:
        is_connected = False

    async def close(self):
        """Nothing was open."""


def membership(connect, **more):
    return Membership(Worker(), connect, "nats://here:4222", **more)


async def _linked():
    return Unlinked()


def test_a_party_under_another_plan_ends_or_stays_and_says_so():
    async def scenario():
        with pytest.raises(PlanMismatch):
            await membership(_linked).run()
        staying = membership(_linked, stay=True)
        task = asyncio.create_task(staying.run())
        await asyncio.sleep(0.05)
        assert not task.done()
        assert "analyzer works under plan" in staying.troubles["plan"]
        task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["certificate", "key"])
def test_why_the_broker_lets_nobody_in_has_a_kind(kind):
    async def refused():
        raise BrokerRefusal(kind, "the broker says no")

    async def scenario():
        member = membership(refused)
        assert list(member.troubles) == ["broker"]
        task = asyncio.create_task(member.run())
        await asyncio.sleep(0.05)
        assert "the broker says no" in member.troubles[kind]
        assert not member.connected
        task.cancel()

    asyncio.run(scenario())


# -- what the page for whoever is on call says ------------------------------------------------------------------------


def table(heading):
    """The first cells of the rows of a table of docs/operating.md."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]


def test_every_metric_of_the_page_is_one_that_parties_have():
    """It named fedbandit_skipped_total, which nobody has."""
    source = "".join(file.read_text() for file in Path(http.__file__).parent.glob("*.py"))
    names = [name.removeprefix("fedbandit") for cell in table("Metrics") for name in re.findall(r"`([a-z_]+)", cell)]
    assert len(names) > 30
    words = set(re.findall(r'"(?:fedbandit_)?([a-z_]+)"', source))
    assert [name for name in names if name.removesuffix("_total").lstrip("_") not in words] == []


def test_every_kind_of_problem_is_on_the_page_and_no_other():
    assert {cell.strip(" `") for cell in table("What each kind of problem means")} == set(KINDS)
