"""What a silo counts: decisions, rewards by their fate, refused requests. Nothing is about a single user."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, MutableSequence, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from fedbandit.federation.http.families import PartyView, gauge, page, party_families
from fedbandit.federation.http.schemas import SiloStatus
from fedbandit.federation.silo.earnings import Learning
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Verdict

__all__ = ["TALLY", "Metrics", "WorkerTally", "became"]

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
Odd = Mapping[str, Mapping[str, int]]  # counts by field, and by what was odd about the value: missing, clamped, unknown
BECAME = ("new", "repeated", "capped", "opted_out", "late", "expired", "conflict")
STATUSES = (400, 401, 404, 405, 408, 409, 410, 413, 422, 500, 503)  # of refused requests
_DECISIONS, _REWARDS = 0, 1
_REFUSED = _REWARDS + len(BECAME)
_SECONDS = _REFUSED + len(STATUSES)
_TIMES = _SECONDS + 1
# How long after their decisions rewards come; decisions have times to the minute.
DELAYS = {"a minute": 120.0, "an hour": 3_600.0, "a day": 86_400.0, "a week": 604_800.0, "more": float("inf")}
_DELAYS = _TIMES + len(BUCKETS) + 1
TALLY = _DELAYS + len(DELAYS)  # how many numbers a worker counts
_LIMITS = tuple(DELAYS.values())


def became(verdict: Verdict, place: int) -> str:
    """The fate of a reward in one word; `place` is the batch that its decision belongs to."""
    if verdict.conflict or verdict.repeated:
        return "conflict" if verdict.conflict else "repeated"
    if verdict.state is DecisionState.LEFT_OUT:  # over the cap, or its own batch was closed before it came
        return "late" if 0 <= place < verdict.sync else "capped"
    return {DecisionState.KEPT: "opted_out", DecisionState.EXPIRED: "expired"}.get(verdict.state, "new")


class WorkerTally:
    """The counts of a silo's workers: `TALLY` numbers each, in shared memory.

    Each worker writes its own numbers and reads all, so any of them can answer for the silo. A worker that replaces
    another goes on with its numbers.
    """

    def __init__(self, numbers: MutableSequence[float] | None = None, worker: int = 0) -> None:
        self._numbers = [0.0] * TALLY if numbers is None else numbers
        self._start = worker * TALLY

    def add(self, place: int, amount: float) -> None:
        self._numbers[self._start + place] += amount

    def total(self) -> list[float]:
        """The numbers of all workers together."""
        numbers = list(self._numbers)
        return [sum(numbers[place::TALLY]) for place in range(TALLY)]


class Metrics:
    """Counts what happens, and makes the page that shows it."""

    def __init__(self, tally: WorkerTally) -> None:
        self._tally = tally

    def decided(self, decisions: int = 1) -> None:
        """Count answered decisions."""
        self._tally.add(_DECISIONS, decisions)

    def rewarded(self, verdict: Verdict, place: int) -> None:
        """Count a reward by its fate."""
        self.reward_was(became(verdict, place))

    def reward_was(self, word: str) -> None:
        """Count a reward that was new, repeated, capped, opted_out, late, expired or a conflict."""
        self._tally.add(_REWARDS + BECAME.index(word), 1)

    def refused(self, status: int) -> None:
        """Count a refused request, by its status."""
        if status in STATUSES:
            self._tally.add(_REFUSED + STATUSES.index(status), 1)

    def waited(self, seconds: float) -> None:
        """Count a reward that came this long after its decision."""
        self._tally.add(_DELAYS + bisect_left(_LIMITS, seconds), 1)

    def counts(self) -> dict[str, dict[str, float]]:
        """The counts on a silo's own page: rewards by their fate and by their delay, and refusals."""
        total = self._tally.total()
        return {
            "became": dict(zip(BECAME, total[_REWARDS:], strict=False)),
            "delays": dict(zip(DELAYS, total[_DELAYS:], strict=True)),
            "refused": {str(status): count for status, count in zip(STATUSES, total[_REFUSED:], strict=False) if count},
        }

    def committed(self, seconds: float) -> None:
        """Count a reward that was on disk after this many seconds."""
        self._tally.add(_SECONDS, seconds)
        self._tally.add(_TIMES + bisect_left(BUCKETS, seconds), 1)

    def page(self, view: PartyView, status: SiloStatus | None, learning: Learning | None, odd: Odd) -> bytes:
        """All metrics in the format of Prometheus; `status` is None if the store fails. `odd` counts odd values of
        records that this worker has met."""
        known = [] if status is None else [*_status_families(status)]
        earned = [] if learning is None else [*_learning_families(learning)]
        age = None if status is None or not status.model else view.dates.since(status.model - 1)
        model = (
            [] if age is None else [gauge("model_age_seconds", "Seconds since the tick of the model's last sync", age)]
        )
        return page([*party_families(view), *_counted(self._tally.total(), odd), *known, *model, *earned])


def _counted(total: Sequence[float], odd: Odd) -> Iterator[Metric]:
    yield CounterMetricFamily("fedbandit_decisions", "Decisions answered", value=total[_DECISIONS])
    rewards = CounterMetricFamily("fedbandit_rewards", "Rewards by what became of them", labels=["became"])
    for place, word in enumerate(BECAME):
        rewards.add_metric([word], total[_REWARDS + place])
    yield rewards
    refused = CounterMetricFamily("fedbandit_refused_requests", "Requests that were refused", labels=["status"])
    for place, status in enumerate(STATUSES):
        refused.add_metric([str(status)], total[_REFUSED + place])
    yield refused
    yield HistogramMetricFamily(
        "fedbandit_reward_seconds", "Time until a reward is on disk", _cumulated(total[_TIMES:_DELAYS]), total[_SECONDS]
    )
    values = CounterMetricFamily(
        "fedbandit_odd_values", "Values of records that this worker could not use as they were", labels=["field", "was"]
    )
    for field, counts in odd.items():
        for oddity, count in counts.items():
            values.add_metric([field, oddity], count)
    yield values


def _status_families(status: SiloStatus) -> Iterator[Metric]:
    for name, text, value in (
        ("model_version", "Syncs that the model has learnt from", status.model),
        ("releases", "Releases drawn in this term", status.released),
        ("missed_syncs", "Syncs of this term without this silo", len(status.missed)),
        ("given_up_syncs", "Syncs of which a lost store had drawn the release", len(status.given_up)),
        ("epsilon_budget", "The epsilon of this term", status.epsilon),
        ("epsilon_spent", "The epsilon that this term has spent, at most", status.epsilon_spent),
        ("epsilon_left", "The epsilon that this term has left", status.epsilon_left),
    ):
        if value is not None:
            yield gauge(name, text, value)


def _learning_families(learning: Learning) -> Iterator[Metric]:
    """Metrics that show whether the silo is learning. They are for the silo only."""
    means = GaugeMetricFamily("fedbandit_reward_mean", "Mean reward of those who count", labels=["period"])
    for period, mean in (("first", learning.first), ("recent", learning.recent)):
        means.add_metric([period], mean)
    yield means
    gain = GaugeMetricFamily(
        "fedbandit_reward_gain",
        "Mean reward now less that of the first weeks, with its 95 % interval",
        labels=["bound"],
    )
    for bound, value in zip(("low", "middle", "high"), learning.gain, strict=True):
        gain.add_metric([bound], value)
    yield gain


def _cumulated(times: Sequence[float]) -> list[tuple[str, float]]:
    """Buckets in the format of Prometheus: how many took at most this long."""
    limits = [*map(str, BUCKETS), "+Inf"]
    return [(limit, sum(times[: place + 1])) for place, limit in enumerate(limits)]
