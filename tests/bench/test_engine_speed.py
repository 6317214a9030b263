"""The benchmark of the engine measures what it says; how fast this machine is, is not tested."""

from __future__ import annotations

import pytest

from fedbandit.bench import engine_speed
from fedbandit.paper import reference


@pytest.mark.parametrize("algorithm", [reference.private_fedlinucb, reference.private_fedlinucb_lazy])
def test_the_reference_is_played_for_as_many_agent_rounds_as_it_says(algorithm) -> None:
    assert engine_speed._slow(algorithm, rounds=2)() == 100 * 2


def test_a_ratio_is_of_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(now)))  # every play takes a second
    assert engine_speed._ratio(lambda: 600, lambda: 20) == 30


@pytest.mark.torture
def test_all_figures_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_speed, "PAIRS", 1)
    monkeypatch.setattr(engine_speed, "ROUNDS", 50)
    monkeypatch.setattr(engine_speed, "exponents", lambda: {"silos": 1.0})
    shares: list[float] = []
    figures = engine_speed.engine_figures(shares.append)
    ratios = [figures[name] for name in figures if name.endswith("_ratio")]
    assert len(ratios) == 5
    assert all(ratio > 0 for ratio in ratios)
    assert figures["agent_rounds_per_s"] > 0
    assert figures["scoring_share_of_sgemm"] == pytest.approx(figures["scoring_gflops"] / figures["sgemm_gflops"])
    assert shares == sorted(shares)
