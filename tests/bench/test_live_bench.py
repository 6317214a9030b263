"""The live benchmark measures what it says; how fast this machine is, is not tested."""

import re
import shutil

import numpy as np
import pytest
import uvloop

from fedbandit.bench import http_speed, in_process, load, page_speed, sync_speed, worker_speed
from fedbandit.look import page_files

NAMED = {
    "empty_per_s", "decide_ratio", "binary_ratio", "registered_ratio", "pair_ratio", "schema_ratio", "p99_ms",
    "in_process_vw_ratio", "round_s_100_silos", "round_s_1000_silos", "round_pace_s",
    "page_update_ms", "page_update_cpu_ms", "page_core_share",
}  # fmt: skip


def test_in_process(monkeypatch):
    monkeypatch.setattr(in_process, "TURNS", 1)
    monkeypatch.setattr(in_process, "GROUP", 20)
    monkeypatch.setattr(in_process, "ALONE", 3)
    monkeypatch.setattr(in_process, "PEOPLE", 2)
    figures = in_process.in_process_figures()
    rates = ("decide_per_s", "one_by_one_per_s", "durable_one_by_one_per_s")
    assert all((figures[name] or 0.0) > 0 for name in rates)
    if figures["vowpal_wabbit_per_s"] is not None:
        ratio = (figures["decide_per_s"] or 0.0) / figures["vowpal_wabbit_per_s"]
        assert figures["in_process_vw_ratio"] == pytest.approx(ratio)


@pytest.mark.torture
def test_a_sync():
    cost = sync_speed.sync_cost(silos=2, dim=3, period=6.0)
    assert 0.2 == cost.pace < cost.seconds < 60
    assert set(cost.central_ms) == {"broker", "analyzer", "mixer"}


def test_the_page_of_a_hundred_silos_is_light(monkeypatch):
    """By CPU time, of which others take nothing."""
    monkeypatch.setattr(page_speed, "PACE", 0.1)
    monkeypatch.setattr(page_speed, "IDLE", 0.5)
    monkeypatch.setattr(page_speed, "LOOKS", 5)
    monkeypatch.setattr(page_speed, "EVENTS", 3)
    figures = {name: value or 0.0 for name, value in page_speed.page_figures().items()}
    print(figures)
    assert figures["page_update_cpu_ms"] < 100
    assert figures["page_core_share"] * 0.1 / pace_of_the_page() < 0.01


def pace_of_the_page():
    """Seconds between two looks, as the page's script has it."""
    script = page_files.asset("operations.js")
    assert script is not None
    (every,) = re.findall(rb"const EVERY = (\d+)", script.body)
    return int(every) / 1000


def test_the_page_is_measured_at_its_own_pace():
    assert pace_of_the_page() == page_speed.PACE


def test_without_wrk_it_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(load, "WRK", "no such tool")
    with pytest.raises(FileNotFoundError, match="apt install wrk"):
        load.saturated(1, tmp_path, 1, 1.0)


@pytest.mark.parametrize("report, rate", [
    ("  3 requests in 1.0s\nRequests/sec:  35801.20\n", 35801.2),
    ("Requests/sec: 10\nNon-2xx or 3xx responses: 3\n", None),
    ("Requests/sec: 10\n  Socket errors: connect 0, read 5, write 0, timeout 0\n", None),
    ("unable to connect", None),
])  # fmt: skip
def test_a_load_that_was_not_served_is_no_figure(report, rate):
    if rate is not None:
        assert load._rate(report) == rate
        return
    with pytest.raises(RuntimeError, match="not served"):
        load._rate(report)


def test_latencies_are_those_of_every_request(tmp_path):
    posts = load.Posts(http_speed.TOKEN, b'{"actions": [[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]]}')
    with http_speed._server(http_speed._silo, str(tmp_path)) as (port, _):
        found = uvloop.run(load.latencies(port, posts, pairs_per_s=100.0, seconds=0.3, connections=2))
        with pytest.raises(RuntimeError, match="401"):
            uvloop.run(load.latencies(port, posts._replace(token="wrong"), pairs_per_s=100.0, seconds=0.1))
    assert found.decisions.shape == found.rewards.shape == (30,)
    assert np.concatenate(found).min() > 0


@pytest.mark.torture
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_http(monkeypatch):
    monkeypatch.setattr(http_speed, "SECONDS", 1.0)
    monkeypatch.setattr(http_speed, "REPEATS", 1)
    figures = {name: value or 0.0 for name, value in http_speed.http_figures().items()}
    assert min(figures.values()) > 0
    assert figures["pair_ratio"] == pytest.approx(2 * figures["pairs_per_s"] / figures["empty_per_s"])
    assert figures["decide_cpu_us"] > figures["empty_cpu_us"]
    assert figures["p50_ms"] <= figures["p99_ms"] == max(figures["p99_decide_ms"], figures["p99_reward_ms"])


@pytest.mark.torture
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_workers(monkeypatch):
    monkeypatch.setattr(worker_speed, "SECONDS", 1.0)
    monkeypatch.setattr(worker_speed, "WARM", 1.0)
    monkeypatch.setattr(worker_speed, "REPEATS", 1)
    monkeypatch.setattr(worker_speed, "WORKERS", (1, 2))
    figures = worker_speed.worker_figures()
    assert (figures["start_s"] or 0.0) > 0
    assert set(figures) == {"start_s", "workers_1_pairs_per_s", "workers_2_pairs_per_s", "workers_2_ratio"}


def test_figures_have_the_names_that_others_read():
    described = " ".join(part.__doc__ or "" for part in (
        http_speed.http_figures, in_process.in_process_figures, sync_speed.sync_figures, page_speed.page_figures,
    ))  # fmt: skip
    assert all(name in described for name in NAMED - {"empty_per_s"})
