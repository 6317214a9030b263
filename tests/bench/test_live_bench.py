"""The live benchmark measures what it says; how fast this machine is, is not tested."""

import pytest

from fedbandit.bench import http_speed, in_process, live_speed, sync_speed


def test_in_process(monkeypatch):
    monkeypatch.setattr(in_process, "GROUPS", 2)
    assert (in_process.in_process_figures()["decide_per_s"] or 0.0) > 0


def test_a_sync():
    assert 0 < sync_speed.sync_seconds(silos=2, dim=3, period=6.0) < 60


@pytest.mark.torture
def test_http(monkeypatch):
    monkeypatch.setattr(http_speed, "SECONDS", 1.0)
    monkeypatch.setattr(http_speed, "REPEATS", 1)
    figures = {name: value or 0.0 for name, value in http_speed.http_figures().items()}
    assert min(figures.values()) > 0
    assert figures["http_ratio"] == pytest.approx(2 * figures["pairs_per_s"] / figures["empty_per_s"])
    assert figures["http_pair_ratio"] == pytest.approx(figures["http_ratio"] / 2)
    assert figures["p50_ms"] <= figures["p99_ms"]


def test_all_figures_are_there(monkeypatch):
    for name in ("http_figures", "in_process_figures", "sync_figures"):
        monkeypatch.setattr(live_speed, name, lambda name=name: {name: 1.0})
    shares: list[float] = []
    assert set(live_speed.live_figures(shares.append)) == {"http_figures", "in_process_figures", "sync_figures"}
    assert shares[-1] == 1
