"""Prometheus metrics: counts and times, never anything about a user."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fedbandit.federation.http.schemas import SiloStatus
from fedbandit.federation.store import Verdict

__all__ = ["METRICS_MEDIA", "Metrics"]

METRICS_MEDIA = "text/plain; version=0.0.4"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """One registry per service, so that several services can live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.decisions = Counter("fedbandit_decisions", "Decisions answered", registry=self._registry)
        self.commit = Histogram(
            "fedbandit_reward_seconds",
            "Time until a reward is on disk",
            buckets=BUCKETS,
            registry=self._registry,
        )
        rewards = Counter("fedbandit_rewards", "Rewards by what became of them", ["became"], registry=self._registry)
        self._became = {name: rewards.labels(name) for name in ("new", "repeated", "conflict")}
        self._version = self._gauge("model_version", "Syncs that the model has learnt from")
        self._releases = self._gauge("releases", "Releases drawn in this term")
        self._syncs = self._gauge("syncs", "Syncs of the whole term")
        self._missed = self._gauge("missed_syncs", "Syncs of this term without this silo")

    def rewarded(self, verdict: Verdict) -> None:
        """Count a reward by what became of it."""
        became = "conflict" if verdict.conflict else "repeated" if verdict.repeated else "new"
        self._became[became].inc()

    def page(self, status: SiloStatus) -> bytes:
        """All metrics as Prometheus reads them."""
        self._version.set(status.model)
        self._releases.set(status.released)
        self._syncs.set(status.syncs)
        self._missed.set(len(status.missed))
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"fedbandit_{name}", text, registry=self._registry)
