"""`fedbandit bench` as docs/performance.md shows it, in small: how fast this machine is, is not tested."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest
from typer.testing import CliRunner

from fedbandit.bench import engine_speed, http_speed, in_process, page_speed, sync_speed, worker_speed
from fedbandit.cli.main import app
from tests.docs.pages import DOCS, blocks, shell_lines

(SHOWN,) = (block for block in blocks(DOCS / "performance.md") if "test_bench_command" in block.mark)
ENGINE, LIVE = (shlex.split(line, comments=True)[1:] for line in shell_lines(SHOWN))


def figures(command: list[str]) -> dict[str, object]:
    said = CliRunner().invoke(app, [*command, "--json"])
    assert said.exit_code == 0, (said.output, said.exception)
    found: dict[str, object] = json.loads(said.stdout)
    return found


def few_silos() -> dict[str, float | None]:
    """A sync of two silos in the place of those of 100 and of 1,000, whose clocks alone take minutes."""
    return {"round_s_1000_silos": sync_speed.sync_cost(silos=2, dim=3, period=6.0).seconds}


def test_all_live_figures_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "http_figures": http_speed,
        "worker_figures": worker_speed,
        "in_process_figures": in_process,
        "sync_figures": sync_speed,
        "page_figures": page_speed,
    }
    for name, module in parts.items():
        monkeypatch.setattr(module, name, lambda name=name: {name: 1.0})
    assert set(figures(LIVE)) == set(parts)


@pytest.mark.torture
def test_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_speed, "PAIRS", 1)
    monkeypatch.setattr(engine_speed, "ROUNDS", 50)
    monkeypatch.setattr(engine_speed, "exponents", lambda: {"silos": 1.0})  # of sizes that take minutes
    found = figures(ENGINE)
    assert {"lazy_ratio", "lazy4_ratio", "eager_ratio", "fixed_ratio", "vector_sum_ratio", "exponents"} <= set(found)


@pytest.mark.torture
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_live(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (http_speed, worker_speed):
        monkeypatch.setattr(module, "SECONDS", 1.0)
        monkeypatch.setattr(module, "REPEATS", 1)
    monkeypatch.setattr(worker_speed, "WORKERS", (1, 2))
    for name, size in {"TURNS": 1, "GROUPS": 2, "GROUP": 20, "ALONE": 3, "PEOPLE": 2}.items():
        monkeypatch.setattr(in_process, name, size)
    monkeypatch.setattr(sync_speed, "sync_figures", few_silos)
    for name, value in {"PACE": 0.1, "IDLE": 0.5, "LOOKS": 5, "EVENTS": 3}.items():
        monkeypatch.setattr(page_speed, name, value)
    found = figures(LIVE)
    assert {"decide_ratio", "pair_ratio", "workers_2_ratio", "round_s_1000_silos", "page_update_ms"} <= set(found)
