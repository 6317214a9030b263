"""Prometheus metrics: counts and times, never anything about a user."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fedbandit.federation.silo import Silo
from fedbandit.federation.store import Verdict

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """One registry a service, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decisions = Counter("fedbandit_decisions", "Decisions answered", registry=self.registry)
        rewards = Counter("fedbandit_rewards", "Rewards by what became of them", ["became"], registry=self.registry)
        self._became = {name: rewards.labels(name) for name in ("new", "repeated", "conflict")}
        self.commit = Histogram(
            "fedbandit_reward_seconds", "Time to a durable reward", buckets=BUCKETS, registry=self.registry
        )
        self._gauges = {
            name: Gauge(f"fedbandit_{name}", text, registry=self.registry)
            for name, text in (
                ("model_version", "Rounds the model has learnt from"),
                ("releases", "Releases drawn this term"),
                ("steps", "Releases of the whole term"),
                ("missed_rounds", "Rounds of this term without this silo"),
            )
        }

    def rewarded(self, verdict: Verdict) -> None:
        became = "conflict" if verdict.conflict else "repeated" if verdict.repeated else "new"
        self._became[became].inc()

    def page(self, silo: Silo) -> bytes:
        status = silo.status()
        self._gauges["model_version"].set(status["model"])
        self._gauges["releases"].set(status["released"])
        self._gauges["steps"].set(status["steps"])
        self._gauges["missed_rounds"].set(len(status["missed"]))
        return generate_latest(self.registry)
