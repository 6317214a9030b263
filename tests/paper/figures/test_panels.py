"""The panels: the paper's settings, users shared between panels, pictures, summaries and their index."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from fedbandit.look.colours import PROTOCOLS
from fedbandit.paper import regret_bounds
from fedbandit.paper.figures import PANELS, PAPER_PANELS, gallery, running
from fedbandit.paper.figures import panel_plot as drawing
from fedbandit.paper.figures.panel import Sources
from fedbandit.paper.figures.summary import summarise
from fedbandit.schedule import every
from fedbandit.simulator import tasks

SYNTHETIC = ("fig1a", "fig1b", "figA-a", "figA-b")
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
GALLERY = Path(__file__).resolve().parents[3] / "docs" / "gallery"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def judged(path: Path, features: int, queries: int = 12) -> Path:
    """A small LETOR file whose labels lean on the first two features."""
    rng = np.random.default_rng(0)
    rows = []
    for query in range(queries):
        for _ in range(6):
            values = rng.uniform(0, 10, features)  # large enough for the published lasso with penalty 1
            label = int(np.clip(round(values[:2].sum() / 5 + rng.normal(0, 0.3)), 0, 4))
            rows.append(f"{label} qid:{query} " + " ".join(f"{i}:{v:.5f}" for i, v in enumerate(values, 1)))
    path.write_text("\n".join(rows) + "\n")
    return path


def tiny(name: str, **changes):
    return replace(PANELS[name], **{"silos": 6, "quick_rounds": 50, **changes})


def run(panels, sources=Sources(), runs: int = 2):  # noqa: B008 (a frozen value)
    size = running.PanelSize(quick=True, runs=runs)
    return {panel.name: (panel, drawn) for panel, drawn in running.run(panels, sources, size, 0, lambda share: None)}


def test_there_are_the_papers_seven_panels_and_warfarin():
    assert [panel.name for panel in PAPER_PANELS] == ["fig1a", "fig1b", "fig1c", "figA-a", "figA-b", "figA-c", "figA-d"]
    assert set(PANELS) == {*(panel.name for panel in PAPER_PANELS), "warfarin"}


@pytest.mark.parametrize("panel", PAPER_PANELS, ids=lambda panel: panel.name)
def test_every_curve_of_the_paper_is_a_plan_with_its_settings(panel):
    dim = {"synthetic": 10, "real-title": 57, "real-body": 78}[panel.settings[0].instance]
    assert panel.rounds == (10_000 if dim == 10 else 25_000)
    for setting in panel.settings:
        for curve in panel.curves:
            plan = curve.plan(panel.silos, panel.rounds, dim, setting)
            assert (plan.schedule, plan.mechanism, plan.alpha) == (every(25), "tree", 0.01)
            assert plan.acting == ("lazy" if setting.name == "as_proven" else "eager")
            assert plan.guarantee.promised == (setting.name == "as_proven" and curve.private)
            if curve.private:
                assert (plan.privacy.epsilon, plan.privacy.delta) == (curve.epsilon, curve.delta)


def test_the_published_simulations_users_are_one_fixed_instance_whose_regret_counts_rewards():
    for name in SYNTHETIC:
        task = PANELS[name].settings[1].task(Sources())
        assert isinstance(task, tasks.Synthetic)
        assert (task.contexts, task.basis) == ("fixed", True)
        assert (task.responses.kind, task.responses.std, task.responses.realised) == ("gaussian", 0.5, True)


def test_observations_speak_of_curves_that_are_drawn():
    for panel in PANELS.values():
        labels = {curve.label for curve in panel.curves}
        assert len(labels) == len(panel.curves)
        for observation in panel.observations:
            assert set(observation.labels) <= labels


def test_every_panel_has_the_papers_runs():
    assert {panel.runs for panel in PANELS.values()} == {25}


@pytest.mark.parametrize("panel", PANELS.values(), ids=lambda panel: panel.name)
def test_every_curve_has_the_colour_of_its_protocol(panel):
    assert {curve.protocol for curve in panel.curves} <= set(PROTOCOLS)


def test_panels_on_the_same_users_are_simulated_once_and_a_curve_is_the_same_in_each():
    panels = [tiny("figA-a"), tiny("figA-b")]
    jobs = running._jobs(panels, Sources(), running.PanelSize(quick=True, runs=2))
    assert [len(job.plans) for job in jobs.values()] == [6, 6]  # 4 + 4, two of them shared
    together, alone = run(panels), run(panels[:1])
    label = panels[0].curves[1].label
    for version in (0, 1):
        first = together["figA-a"][1][version].result.final(label)
        assert (first == together["figA-b"][1][version].result.final(label)).all()
        assert (first == alone["figA-a"][1][version].result.final(label)).all()


def test_a_protocol_outside_its_theorem_is_left_out_and_the_caption_says_why(tmp_path):
    panel = tiny("fig1a")  # 6 silos are too few for amplification
    _, drawn = run([panel])["fig1a"]
    summary = summarise(panel, drawn, quick=True)
    proven, simulated = summary["versions"]["as_proven"], summary["versions"]["as_simulated"]
    assert list(proven["left_out"]) == [panel.curves[1].label, panel.curves[3].label]
    assert all("no epsilon is in reach" in why for why in proven["left_out"].values())
    assert proven["holds"] is None
    assert not proven["findings"]
    assert not simulated["left_out"]
    assert len(simulated["findings"]) == 2


def test_pictures_summaries_and_index(tmp_path):
    panel = tiny("figA-a")
    _, drawn = run([panel])["figA-a"]
    summary = summarise(panel, drawn, quick=True)
    for one in ("a.svg", "b.svg"):
        drawing.draw(panel, drawn, summary, tmp_path / one)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.svg").stat().st_size < 500_000
    gallery.write_summary(tmp_path, summary, "a.svg")
    text = gallery.write_index(tmp_path).read_text()
    assert f"![{panel.title}](a.svg)" in text
    assert text.count("nobody can lose more than 6.") == 1  # as_proven; Gaussian rewards have no such limit
    assert text.count("rewards are not bounded by 1 here") == 1
    assert summary["conclusion"] in text
    assert "A quick run" in text
    for version in json.loads((tmp_path / "figA-a.json").read_text())["versions"].values():
        for finding in version["findings"]:
            assert finding["text"] in text
        for label, curve in version["curves"].items():
            assert f"| {label} | {curve['regret']['mean']:.4g} " in text


@pytest.mark.parametrize(("most", "drawn"), [(2.9, True), (3.1, False), (None, False)])
def test_a_limit_that_would_press_the_curves_together_is_not_drawn(most: float | None, drawn: bool) -> None:
    figure, axis = plt.subplots()
    axis.plot([0, 1], [1.0, 0.5])
    drawing._draw_limits(axis, 0.8, most)
    assert any("MT" in label for label in axis.get_legend_handles_labels()[1]) == drawn
    plt.close(figure)


def test_judged_documents_with_another_number_of_features(tmp_path):
    sources = Sources(letor=judged(tmp_path / "judged.txt", features=46))
    panel = tiny("fig1c", silos=3)
    _, drawn = run([panel], sources)["fig1c"]
    for version in summarise(panel, drawn, quick=True)["versions"].values():
        assert version["dim"] == 47  # and a constant
        assert "all 46 features and a constant" in version["data"]
        assert len(version["curves"]) == 4


def test_real_data_are_scored_in_float64(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(running, "simulate", lambda *plans, precision, progress: asked.append(precision))
    sources, size = Sources(letor=judged(tmp_path / "judged.txt", features=46)), running.PanelSize(quick=True)
    for job in running._jobs([tiny("fig1c", silos=3), tiny("figA-a")], sources, size).values():
        job.play(0, lambda share: None)
    assert asked == ["float64", "float64", "float32", "float32"]


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/data is not there")
def test_the_real_data_make_the_papers_dimensions_and_warfarin_runs():
    letor = SHARED / "mslr" / "mslr_sample.letor.txt.gz"
    warfarin = SHARED / "warfarin" / "warfarin.csv.gz"
    sources = Sources(letor, warfarin)
    for name, dim in (("fig1c", 57), ("figA-c", 78)):
        assert [setting.task(sources).dim for setting in PANELS[name].settings] == [dim, dim]
    _, drawn = run([tiny("warfarin", silos=10)], sources)["warfarin"]
    assert [len(one.result.plans) for one in drawn] == [5, 5]


def printed_summary(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GALLERY / f"{name}.json").read_text())
    return found


def test_the_gallerys_page_is_written_from_its_summaries(tmp_path: Path) -> None:
    """So every number of the page is one of a summary; a digit changed in either is told."""
    for name in PANELS:
        shutil.copy(GALLERY / f"{name}.json", tmp_path)
    page = (GALLERY / "README.md").read_text()
    assert gallery.write_index(tmp_path).read_text() == page
    summary = printed_summary("fig1b")
    summary["versions"]["as_proven"]["curves"]["LDP, ε = 0.2, δ = 0.1"]["regret"]["mean"] += 0.01
    gallery.write_summary(tmp_path, summary, summary["picture"])
    assert gallery.write_index(tmp_path).read_text() != page


def test_a_curve_of_the_gallery_lies_below_its_bound() -> None:
    bounded = 0
    for name in PANELS:
        for version in printed_summary(name)["versions"].values():
            for label, curve in version["curves"].items():
                if curve["bound"] is not None:
                    assert curve["regret"]["mean"] < curve["bound"]["per_round"], (name, label)
                    bounded += 1
    assert bounded > 30


def check_panel(name: str, sources: Sources, folder: Path) -> None:
    """The panel as the command makes it, and as the gallery has it."""
    ((panel, drawn),) = running.run([PANELS[name]], sources, running.PanelSize(), 0, lambda share: None)
    gallery.write_summary(folder, summarise(panel, drawn, quick=False), f"{name}.svg")
    for file in GALLERY.glob("*.json"):
        if file.stem in PANELS and file.stem != name:
            shutil.copy(file, folder)
    assert gallery.write_index(folder).read_text() == (GALLERY / "README.md").read_text()


@pytest.mark.gallery
@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_synthetic_panel_of_the_gallery_is_drawn_again_to_the_digit(name: str, tmp_path: Path) -> None:
    check_panel(name, Sources(), tmp_path)


@pytest.mark.gallery
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder ../shared/data is not there")
@pytest.mark.parametrize("name", [name for name in PANELS if name not in SYNTHETIC])
def test_a_panel_on_real_data_is_drawn_again_to_the_digit(name: str, tmp_path: Path) -> None:
    letor, warfarin = SHARED / "mslr" / "mslr_sample.letor.txt.gz", SHARED / "warfarin" / "warfarin.csv.gz"
    check_panel(name, Sources(letor, warfarin), tmp_path)


def test_figure_1b_as_simulated_ends_where_the_published_one_does():
    """What the gallery shows, which `fedbandit paper run` makes. Rerun once, the published scripts end at 10.8 and 8.0;
    four other instances ended at 10.6..11.9 and 8.1..8.6: the tolerance is that spread, not a standard error."""
    version = printed_summary("fig1b")["versions"]["as_simulated"]
    ldp, sdp = (curve["regret"]["mean"] for curve in version["curves"].values())
    assert ldp == pytest.approx(10.8, abs=0.9)
    assert sdp == pytest.approx(8.0, abs=0.9)
    assert sdp < ldp


def test_the_gallerys_noise_bounds_and_chance_are_those_of_its_plans():
    for name in SYNTHETIC:
        panel = PANELS[name]
        versions = printed_summary(name)["versions"]
        for setting in panel.settings:
            version = versions[setting.name]
            assert version["chance"] == pytest.approx(
                tasks.chance(setting.task(Sources()), panel.silos, version["seed"])
            )
            for curve in panel.curves:
                plan, printed = curve.plan(panel.silos, panel.rounds, 10, setting), version["curves"][curve.label]
                assert printed["noise_std"] == pytest.approx(plan.noise_std)
                assert printed["regulariser"] == pytest.approx(plan.regulariser)
                found = printed["bound"]
                if setting.name == "as_simulated":
                    assert found is None
                else:
                    bound = regret_bounds.bound(plan)
                    assert found["per_round"] == pytest.approx(bound.per_round)
                    assert found["says"] == bound.says(version["chance"])
