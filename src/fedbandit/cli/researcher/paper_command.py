"""`fedbandit paper`: the paper's figures and claims, made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.cli import options, output

if TYPE_CHECKING:
    from fedbandit.paper.figures import Panel
    from fedbandit.paper.figures.panel import Sources

__all__ = ["paper"]

paper = typer.Typer(help="The paper's figures and claims, made again.", add_completion=False, rich_markup_mode=None)
NEEDED = {"letor": "--data PATH (a LETOR file or folder, e.g. of MSLR-WEB10K)", "warfarin": "--warfarin PATH (its CSV)"}
FORMATS = ("svg", "png", "pdf")
SHORT = 7  # characters of a number


@paper.command("list")
def list_(json: options.Json = False, wide: options.Wide = False) -> None:
    """List the panels."""
    from fedbandit.paper.figures import PANELS

    if json:
        output.print_json([{"name": p.name, "title": p.title, "needs": p.needs} for p in PANELS.values()])
        return
    rows = [[p.name, p.title, NEEDED[p.needs].split(" (")[0] if p.needs else ""] for p in PANELS.values()]
    output.print_table("panels", ["name", "what", "needs"], rows)


@paper.command()
def run(
    name: Annotated[str, typer.Argument(help="A panel's name, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Far fewer rounds and runs.")] = False,
    data: Annotated[Path | None, typer.Option(help="Judged documents: a LETOR file or folder.")] = None,
    warfarin: Annotated[Path | None, typer.Option(help="The warfarin CSV.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for pictures, summaries and their index.")] = Path("out/paper"),
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of every panel, instead of its own.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    picture: Annotated[str, typer.Option("--format", help="svg, png or pdf.")] = "svg",
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Simulate and draw a panel of the paper, or all that the given data allow."""
    from fedbandit.paper.figures import PANELS, gallery, running
    from fedbandit.paper.figures.panel import Sources
    from fedbandit.paper.figures.panel_plot import draw
    from fedbandit.paper.figures.summary import summarise

    _validate.one_of("panel", name, (*PANELS, "all"))
    _validate.one_of("format", picture, FORMATS)
    sources, size = Sources(data, warfarin), running.PanelSize(quick, runs)
    panels = _chosen(name, sources)
    folder = output.writable_folder(out)
    summaries = []
    with output.progress_bar(name) as progress:
        for panel, drawn in running.run(panels, sources, size, seed, progress):
            summary = summarise(panel, drawn, quick)
            file = f"{panel.name}.{picture}"
            draw(panel, drawn, summary, folder / file)
            gallery.write_summary(folder, summary, file)
            summaries.append(summary)
    index = gallery.write_index(folder)
    if len(summaries) < len(panels):
        output.remark(f"interrupted: {len(summaries)} of {len(panels)} panels are finished.")
    output.remark(f"written: {index} and {len(summaries)} pictures next to it")
    if json:
        output.print_json(summaries)
    else:
        _show(summaries)


@paper.command()
def claims(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller simulations.")] = False,
    json: options.Json = False,
) -> None:
    """Measure what the paper claims: scalings, sensitivities, ranges and constants."""
    from fedbandit.paper.claims import all_claims

    with output.progress_bar("measuring") as progress:
        found = all_claims(quick, progress)
    if json:
        output.print_json([claim._asdict() for claim in found])
        return
    for claim in found:
        output.say(f"{claim.name} ({claim.outcome}): {claim.paper}")
        for line in claim.measured:
            output.say(f"  - {line}")


@paper.command()
def shuffle(
    out: Annotated[Path, typer.Option(help="Folder for the picture and its numbers.")] = Path("out/paper"),
    picture: Annotated[str, typer.Option("--format", help="svg, png or pdf.")] = "svg",
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """From how many silos on shuffling pays, by epsilon and T: the paper's ways and the best known ones."""
    from fedbandit.planner.studies import shuffle_map

    _validate.one_of("format", picture, FORMATS)
    folder = output.writable_folder(out)
    found = shuffle_map.measured()
    shuffle_map.write(folder, found, picture)
    output.remark(f"written: {folder / shuffle_map.NAME}.{picture}")
    if json:
        output.print_json([one._asdict() for one in found])
        return
    columns = ["way", "T", *(f"ε = {epsilon:g}" for epsilon in shuffle_map.TABLED)]
    rows = [[way, *map(_short, cells)] for way, *cells in shuffle_map.as_table(found)]
    output.print_table("silos from which shuffling adds less noise", columns, rows, narrow=True)


def _short(cell: str) -> str:
    """The number, in powers of ten if it is long: six such columns have to fit."""
    return cell if len(cell) <= SHORT else f"{float(cell.replace(',', '')):.2g}"


def _show(summaries: list[dict[str, Any]]) -> None:
    """One row per panel and version, then each panel's conclusion."""
    from fedbandit.paper.figures.summary import HOLDS

    rows = []
    for summary in summaries:
        for name, version in summary["versions"].items():
            finals = "; ".join(f"{label}: {c['regret']['mean']:.4g}" for label, c in version["curves"].items())
            rows.append([summary["name"], name, HOLDS[version["holds"]], finals])
    output.print_table("the paper's observations", ["panel", "version", "observation", "regret / T"], rows)
    for summary in summaries:
        output.say(f"{summary['name']}: {summary['conclusion']}")


def _chosen(name: str, sources: Sources) -> list[Panel]:
    """The panels to run. `all` means those whose data are given; a remark names each of the others."""
    from fedbandit.paper.figures import PANELS

    if name != "all":
        panel = PANELS[name]
        for kind, path in (("letor", sources.letor), ("warfarin", sources.warfarin)):
            if path is not None and panel.needs != kind:
                raise ArgumentError(NEEDED[kind].split()[0], f"has no effect on panel {name}, which does not need it")
        if not panel.can_run(sources):
            raise ArgumentError("panel", f"{name} needs {NEEDED[panel.needs or '']}")
        return [panel]
    for panel in PANELS.values():
        if not panel.can_run(sources):
            output.remark(f"skipped {panel.name}: it needs {NEEDED[panel.needs or '']}")
    return [panel for panel in PANELS.values() if panel.can_run(sources)]
