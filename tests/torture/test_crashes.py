"""kill -9 at every durable operation of every party: nothing is lost, nothing is counted, drawn or told twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fedbandit.federation.setup.home import Home
from fedbandit.plan import Plan
from tests.torture.conftest import Size, Tally
from tests.torture.crashes.conductor import Conductor, Crash, found
from tests.torture.crashes.invariants import check, check_stores
from tests.torture.crashes.live import LiveFederation
from tests.torture.crashes.plans import PLANS
from tests.torture.crashes.plants import PLANTS
from tests.torture.crashes.points import Stop, Way

pytestmark = pytest.mark.fire


OPERATIONS: dict[str, dict[str, list[str]]] = {}  # by plan, of a run that nobody disturbed


class Stage:
    """Runs of one plan's federation, one after the other."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path, self.plan, self._runs = path, plan, 0
        self.homes: dict[str, Home] = found(path / "homes", plan)

    def played(self, crash: Crash | None = None, planted: str = "") -> Conductor:
        """A run to its end, checked."""
        self._runs += 1
        run = Conductor(self._path / str(self._runs), self.plan, self.homes, crash, planted)
        run.run()
        check(run)
        return run

    def stops(self, how: Way, *, everybody: bool = False) -> list[Crash]:
        """One after the other, every operation of a silo, of the mixer and of the analyzer."""
        if self.plan.hash not in OPERATIONS:
            OPERATIONS[self.plan.hash] = self.played().operations
        operations = OPERATIONS[self.plan.hash]
        parties = [name for name in operations if name not in ("silo-1", "silo-2")]
        return [Crash(name, Stop(at, how), everybody) for name in parties for at in range(1, len(operations[name]) + 1)]


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    return Stage(tmp_path, PLANS[request.param])


def spread(everything: Sequence[Crash], count: int) -> list[Crash]:
    """So many of them, evenly spread."""
    count = min(count, len(everything))
    return [everything[number * len(everything) // count] for number in range(count)]


@pytest.mark.parametrize("stage", PLANS, indirect=True)
def test_kill_9_at_every_durable_operation(stage: Stage, size: Size, tally: Tally) -> None:
    """Of one silo, of the mixer, of the analyzer; the others go on meanwhile."""
    crashes = spread(stage.stops("before"), size(3, 10_000))
    for crash in crashes:
        assert stage.played(crash).deaths == 1, crash
    tally("crash points", len(crashes))


@pytest.mark.parametrize("stage", PLANS, indirect=True)
def test_kill_9_of_all_parties_at_once(stage: Stage, size: Size, tally: Tally) -> None:
    crashes = spread(stage.stops("before", everybody=True), size(1, 40))
    for crash in crashes:
        assert stage.played(crash).deaths == 1, crash
    tally("crash points", len(crashes))


@pytest.mark.parametrize("how", ["torn", "power"])
@pytest.mark.parametrize("stage", PLANS, indirect=True)
def test_a_torn_commit_and_a_power_failure(stage: Stage, how: Way, size: Size, tally: Tally) -> None:
    """Counted only where it makes a difference that the process was not just killed."""
    runs = [stage.played(crash) for crash in spread(stage.stops(how), size(1, 60))]
    assert all(run.deaths == 1 for run in runs)
    tally("crash points", sum(run.met for run in runs))


@pytest.mark.parametrize("stage", ["secure-sum"], indirect=True)
def test_kill_9_while_a_party_recovers_from_kill_9(stage: Stage, size: Size, tally: Tally) -> None:
    for number, crash in enumerate(crashes := spread(stage.stops("before"), size(1, 60))):
        again = Stop(1 + number % 8)
        assert stage.played(crash._replace(again=again)).deaths == 2, crash
    tally("crash points", len(crashes))


LIVE = {  # operations of a party's first process: while it starts, at its ticks, while it sends and learns
    "silo-0": (3, 9, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50),
    "mixer": (3, 8, 12, 16, 20, 24, 28, 32),
    "analyzer": (3, 8, 12, 16, 20, 24, 28, 32, 36, 40),
}


@pytest.mark.parametrize("victim", LIVE)
def test_kill_9_of_real_processes_over_a_real_broker(tmp_path: Path, victim: str, size: Size, tally: Tally) -> None:
    """The parties as they are run, users by HTTP; whoever dies is started again, as a service manager does."""
    points = LIVE[victim][3 :: size(5, 1)][: size(1, 20)]
    for at in points:
        with LiveFederation(tmp_path / str(at), PLANS["secure-sum, counted"], {victim: at}) as running:
            running.play()
        assert running.deaths == 1, f"{victim} did not reach operation {at}"
        check_stores(running)
    tally("crash points", len(points))


@pytest.mark.parametrize("killed", [["broker"], ["broker", "mixer", "analyzer", "silo-0", "silo-1", "silo-2"]])
def test_kill_9_of_the_broker_and_of_everything(tmp_path: Path, killed: list[str], tally: Tally) -> None:
    """At every sync, while releases, totals and models are under way."""
    with LiveFederation(tmp_path / "f", PLANS["secure-sum, counted"], {}) as running:
        running.play(lambda sync: running.kill(*killed))
    check_stores(running)
    tally("crash points", len(PLANS["secure-sum, counted"].times))


@pytest.mark.parametrize("planted", PLANTS)
def test_planted_bugs_are_caught(tmp_path: Path, planted: str, size: Size, tally: Tally) -> None:
    """At the operations near which each of them does harm; in part, every fourth of them."""
    if list(PLANTS).index(planted) % size(4, 1):
        pytest.skip("looked for by `make torture`")
    bug = PLANTS[planted]
    stage = Stage(tmp_path, PLANS[bug.plan])
    try:
        operations = stage.played(planted=planted).operations[bug.party]
        for at in (number for number, name in enumerate(operations, 1) if name in bug.near):
            stage.played(Crash(bug.party, Stop(at, bug.how)), planted)
    except AssertionError as noticed:
        print(f"{planted}: {noticed}")
        tally("planted bugs caught", 1)
    else:
        pytest.fail("nobody noticed")
