"""The live benchmark measures what it says; how fast this machine is, is not tested."""

import pytest

from fedbandit.federation import bench
from fedbandit.federation.bench import http, in_process, rounds


def test_in_process(monkeypatch):
    monkeypatch.setattr(in_process, "GROUPS", 2)
    figures = in_process.in_process_figures()
    assert figures["decide_per_s"] > 0


def test_a_round():
    assert 0 < rounds.round_seconds(silos=2, dim=3) < 60


@pytest.mark.torture
def test_http(monkeypatch):
    monkeypatch.setattr(http, "SECONDS", 1.0)
    monkeypatch.setattr(http, "REPEATS", 1)
    figures = http.http_figures()
    assert figures["http_ratio"] == pytest.approx(2 * figures["pairs_per_s"] / figures["empty_per_s"])
    assert figures["p50_ms"] <= figures["p99_ms"]


def test_all_figures_are_there(monkeypatch):
    for name in ("http_figures", "in_process_figures", "round_figures"):
        monkeypatch.setattr(bench, name, lambda name=name: {name: 1.0})
    shares = []
    assert set(bench.measured(shares.append)) == {"http_figures", "in_process_figures", "round_figures"}
    assert shares[-1] == 1
