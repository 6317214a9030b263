"""Metrics that every party has: whether it works, what is wrong if not, and when the next tick is."""

from __future__ import annotations

import shutil
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from fedbandit import __version__
from fedbandit.federation.setup.certificates import expires
from fedbandit.federation.setup.home import KEY_FILES, Home
from fedbandit.federation.telemetry.troubles import KINDS, Troubles
from fedbandit.federation.timing import Timing, calendar
from fedbandit.federation.wire.keys import Role, read_secret
from fedbandit.plan import Plan

__all__ = ["METRICS_MEDIA", "Dates", "Machine", "PartyView", "gauge", "page", "party_families"]

METRICS_MEDIA = "text/plain; version=0.0.4"


class Dates:
    """The public times of a plan's syncs, if it has any: a calendar that counts decisions has none."""

    def __init__(self, plan: Plan, timing: Timing) -> None:
        self._calendar = calendar(plan, timing.start or 0.0, timing)
        timed = timing.start is not None and self._calendar.moment(0) is not None
        self._syncs = range(len(plan.ticks) if timed else 0)
        self.deadline = timing.deadline

    def of(self, sync: int) -> float | None:
        """The public time of a sync; None if it is unknown or there is no such sync."""
        return self._moment(sync) if sync in self._syncs else None

    def until_next(self, now: float | None = None) -> float | None:
        """Seconds until the next tick; None if it is unknown or there is none."""
        moment = time.time() if now is None else now
        following = self.next(moment)
        return None if following is None else following - moment

    def next(self, now: float) -> float | None:
        """The time of the next tick; None if it is unknown or there is none."""
        after = bisect_right(self._syncs, now, key=self._moment)
        return self._moment(after) if after < len(self._syncs) else None

    def since(self, sync: int, now: float | None = None) -> float | None:
        """Seconds since the tick of a sync, 0 if it is in the future; None if it is unknown or there is none."""
        if sync not in self._syncs:
            return None
        return max(0.0, (time.time() if now is None else now) - self._moment(sync))

    def _moment(self, sync: int) -> float:
        moment = self._calendar.moment(sync)
        assert moment is not None, "only syncs with a public time are looked up"
        return moment


class Machine(NamedTuple):
    """The parts of the machine that a party depends on."""

    folder: Path | None = None  # where the store is
    certificate: str = ""  # of the party's own service
    certificate_key: str = ""
    keys: tuple[Path, ...] = ()  # the key files that the party was started with

    @classmethod
    def of(cls, home: Home) -> Machine:
        settings = home.settings
        return cls(home.path, settings.tls_certificate, settings.tls_key, tuple(home.key_files()))

    @property
    def _keys_readable(self) -> bool:
        """Whether all keys that the next start needs can be read: the party's keys, including newer ones, by their
        owner only, and the certificate's key."""
        try:
            for file in {*self.keys, *(self.folder.glob(KEY_FILES) if self.folder is not None else ())}:
                read_secret(file)
            if self.certificate_key:
                Path(self.certificate_key).read_bytes()
        except (OSError, ValueError):
            return False
        return True

    def families(self) -> Iterator[Metric]:
        if self.folder is not None:
            text = "Whether all keys of the party can be read, those in its directory by their owner only"
            yield gauge("keys_readable", text, self._keys_readable)
            yield gauge(
                "disk_free_bytes", "Room on the disk of the party's directory", shutil.disk_usage(self.folder).free
            )
        if self.certificate:
            try:
                left = expires(Path(self.certificate).read_bytes()) - time.time()
            except (OSError, ValueError):
                left = 0.0  # it cannot be read, so the next start will fail
            yield gauge("certificate_seconds", "Seconds until the certificate of the party's own service expires", left)

    def values(self) -> dict[str, float]:
        """The values of the same metrics, by name."""
        return {metric.name: metric.samples[0].value for metric in self.families()}


class PartyView(NamedTuple):
    """A party as it is now."""

    party: str
    role: Role
    plan: Plan
    connected: bool
    store_works: bool
    troubles: Troubles
    refusals: Mapping[str, int]
    dates: Dates
    next_sync: int | None  # the first sync without a result here; None if the store cannot be read
    machine: Machine = Machine()


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    """A gauge: a number that goes up and down."""
    return GaugeMetricFamily(f"fedbandit_{name}", text, value=value)


def party_families(view: PartyView) -> Iterator[Metric]:
    """The metrics that every party has."""
    info = GaugeMetricFamily("fedbandit_party_info", "Who this is: 1", labels=["party", "role", "plan", "version"])
    info.add_metric([view.party, view.role, view.plan.hash[:16], __version__], 1)
    yield info
    yield gauge("ready", "Whether nothing keeps the party from working", not view.troubles and view.store_works)
    yield gauge("broker_connected", "Whether the broker can be reached", view.connected)
    yield gauge("store_works", "Whether the store accepts writes", view.store_works)
    problems = GaugeMetricFamily("fedbandit_problem", "1 for what is wrong with the party now", labels=["kind"])
    for kind in KINDS:
        problems.add_metric([kind], kind in view.troubles)
    yield problems
    refused = CounterMetricFamily("fedbandit_refused_messages", "Messages that were refused", labels=["reason"])
    for reason, count in sorted(view.refusals.items()):
        refused.add_metric([reason], count)
    yield refused
    if not view.plan.endless:
        yield gauge("syncs", "Syncs of the whole term, if it has an end", len(view.plan.times))
    yield gauge("deadline_seconds", "Seconds that a sync stays open after its first release", view.dates.deadline)
    if (wait := view.dates.until_next()) is not None:
        yield gauge("next_tick_seconds", "Seconds until the next tick", wait)
    if view.next_sync is not None:
        overdue = view.dates.since(view.next_sync)
        text = "Seconds since the tick of the oldest sync without a result here, 0 if its tick is in the future"
        yield gauge("sync_overdue_seconds", text, overdue or 0.0)
    yield from view.machine.families()


def page(families: Iterable[Metric]) -> bytes:
    """The page in the format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families
