"""Prometheus metrics: counts and times, never anything about a user."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, MutableSequence, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from fedbandit.federation.http.schemas import SiloStatus
from fedbandit.federation.store import Verdict

__all__ = ["METRICS_MEDIA", "TALLY", "Metrics", "WorkerTally"]

METRICS_MEDIA = "text/plain; version=0.0.4"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
Odd = Mapping[str, Mapping[str, int]]  # by field and what a value was: missing, clamped, unknown
BECAME = ("new", "repeated", "conflict")
_DECISIONS, _REWARDS, _SECONDS = 0, 1, 1 + len(BECAME)
_TIMES = _SECONDS + 1
TALLY = _TIMES + len(BUCKETS) + 1  # numbers that a worker counts


class WorkerTally:
    """What the workers of a silo have counted: `TALLY` numbers each, in memory that they share.

    Each writes its own and reads all, so any of them answers for the silo. One that takes the place of a worker that
    died goes on with its numbers.
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
    """What is counted, and the page that shows it."""

    def __init__(self, tally: WorkerTally) -> None:
        self._tally = tally

    def decided(self, decisions: int = 1) -> None:
        """So many more decisions were answered."""
        self._tally.add(_DECISIONS, decisions)

    def rewarded(self, verdict: Verdict) -> None:
        """Count a reward by what became of it."""
        self._tally.add(_REWARDS + (2 if verdict.conflict else 1 if verdict.repeated else 0), 1)

    def committed(self, seconds: float) -> None:
        """A reward was on disk after so many seconds."""
        self._tally.add(_SECONDS, seconds)
        self._tally.add(_TIMES + bisect_left(BUCKETS, seconds), 1)

    def page(self, status: SiloStatus, odd: Odd) -> bytes:
        """All metrics as Prometheus reads them. `odd` are values of records, as this worker has met them."""
        registry = CollectorRegistry()
        registry.register(_Page(self._tally.total(), status, odd))
        return generate_latest(registry)


class _Page(Collector):
    def __init__(self, total: Sequence[float], status: SiloStatus, odd: Odd) -> None:
        self._total, self._status, self._odd = total, status, odd

    def collect(self) -> Iterator[Metric]:
        total, status = self._total, self._status
        yield CounterMetricFamily("fedbandit_decisions", "Decisions answered", value=total[_DECISIONS])
        rewards = CounterMetricFamily("fedbandit_rewards", "Rewards by what became of them", labels=["became"])
        for place, became in enumerate(BECAME):
            rewards.add_metric([became], total[_REWARDS + place])
        yield rewards
        yield HistogramMetricFamily(
            "fedbandit_reward_seconds", "Time until a reward is on disk", _cumulated(total[_TIMES:]), total[_SECONDS]
        )
        values = CounterMetricFamily(
            "fedbandit_odd_values",
            "Values of records that this worker could not use as they were",
            labels=["field", "was"],
        )
        for field, counts in self._odd.items():
            for oddity, count in counts.items():
                values.add_metric([field, oddity], count)
        yield values
        for name, text, value in (
            ("model_version", "Syncs that the model has learnt from", status.model),
            ("releases", "Releases drawn in this term", status.released),
            ("syncs", "Syncs of the whole term", status.syncs),
            ("missed_syncs", "Syncs of this term without this silo", len(status.missed)),
        ):
            yield GaugeMetricFamily(f"fedbandit_{name}", text, value=value)


def _cumulated(times: Sequence[float]) -> list[tuple[str, float]]:
    """Buckets as Prometheus has them: how many took at most so long."""
    limits = [*map(str, BUCKETS), "+Inf"]
    return [(limit, sum(times[: place + 1])) for place, limit in enumerate(limits)]
