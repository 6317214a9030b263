"""Metrics: counted by each worker, shown for the silo as a whole."""

import multiprocessing

import pytest

from fedbandit.federation.http.families import Dates, Machine, PartyView
from fedbandit.federation.http.metrics import TALLY, Metrics, WorkerTally
from fedbandit.federation.http.schemas import SiloStatus
from fedbandit.federation.setup.home import Home
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Verdict
from fedbandit.federation.store.rewards import OPEN_BATCH
from fedbandit.federation.timing import Timing

NEW = Verdict(DecisionState.COUNTED, 0, repeated=False, conflict=False)


def lines(metrics, silo):
    view = PartyView("a", "silo", silo.plan, True, True, {}, {}, Dates(silo.plan, Timing()), 0)
    page = metrics.page(view, SiloStatus(**silo.status()), None, {}).decode()
    return dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))


def test_any_worker_answers_for_all_of_them(silo):
    numbers = multiprocessing.get_context("spawn").RawArray("d", 3 * TALLY)
    workers = [Metrics(WorkerTally(numbers, at)) for at in range(3)]
    for at, metrics in enumerate(workers):
        metrics.decided(at + 1)
        metrics.rewarded(NEW, OPEN_BATCH)
        metrics.committed(0.003)
    workers[0].rewarded(NEW._replace(repeated=True), OPEN_BATCH)
    workers[1].rewarded(NEW._replace(conflict=True), OPEN_BATCH)
    pages = [lines(metrics, silo) for metrics in workers]
    assert pages[0] == pages[1] == pages[2]
    assert pages[0]["fedbandit_decisions_total"] == "6.0"
    became = [pages[0][f'fedbandit_rewards_total{{became="{name}"}}'] for name in ("new", "repeated", "conflict")]
    assert became == ["3.0", "1.0", "1.0"]


def test_one_that_takes_a_workers_place_goes_on_with_its_numbers(silo):
    numbers = [0.0] * TALLY * 2
    Metrics(WorkerTally(numbers, 1)).decided(5)
    later = Metrics(WorkerTally(numbers, 1))
    later.decided()
    assert lines(later, silo)["fedbandit_decisions_total"] == "6.0"


def test_buckets_hold_what_took_at_most_so_long(silo):
    metrics = Metrics(WorkerTally())
    for seconds in (0.0005, 0.0006, 0.02, 7.0):
        metrics.committed(seconds)
    page = lines(metrics, silo)
    assert page['fedbandit_reward_seconds_bucket{le="0.0005"}'] == "1.0"
    assert page['fedbandit_reward_seconds_bucket{le="0.001"}'] == "2.0"
    assert page['fedbandit_reward_seconds_bucket{le="0.025"}'] == "3.0"
    assert page['fedbandit_reward_seconds_bucket{le="+Inf"}'] == page["fedbandit_reward_seconds_count"] == "4.0"
    assert float(page["fedbandit_reward_seconds_sum"]) == 0.0005 + 0.0006 + 0.02 + 7.0


@pytest.mark.parametrize("which", ["party.key", "party-2.key", "party-3.key", "service.key"])
@pytest.mark.parametrize("how", ["others may read it", "it is gone"])
def test_every_key_that_the_next_start_needs_is_looked_at(which, how, tmp_path):
    """Those that were made after the first, before and after the party was started; and that of its certificate."""
    (tmp_path / "service.key").write_text("a key")
    tls = {"tls_certificate": str(tmp_path / "service.crt"), "tls_key": str(tmp_path / "service.key")}
    home = Home.create(tmp_path / "a", name="a", role="silo", **tls)
    home.new_keys()
    machine = Machine.of(home)
    home.new_keys()
    assert machine.values()["fedbandit_keys_readable"] == 1
    file = tmp_path / which if which == "service.key" else home.path / which
    if how == "it is gone":
        file.unlink()
    else:
        file.chmod(0o644)
    # A key that was made while it runs may be taken away again; who may read a certificate's is not its affair.
    noticed = (which, how) not in {("party-3.key", "it is gone"), ("service.key", "others may read it")}
    assert machine.values()["fedbandit_keys_readable"] == (not noticed)
