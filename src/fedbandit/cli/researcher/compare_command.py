"""`fedbandit compare`: the paper's protocols, ours and the literature's, and one of your own if you give it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbandit import _validate
from fedbandit._words import counted
from fedbandit.cli import options, output
from fedbandit.privacy.budget import Privacy

if TYPE_CHECKING:
    from fedbandit.comparison.contest import Standing
    from fedbandit.comparison.instances import Instance

__all__ = ["compare"]

QUICK = 0.1  # of the rounds
FIGURE, NUMBERS = "comparison.svg", "comparison.json"


def compare(
    protocol: Annotated[
        Path | None, typer.Argument(help="A Python file that defines plan(asked); its code is executed.")
    ] = None,
    letor: Annotated[Path | None, typer.Option(help="Judged documents: a LETOR file or folder.")] = None,
    warfarin: Annotated[Path | None, typer.Option(help="The warfarin CSV.")] = None,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    runs: Annotated[int, typer.Option(min=1, help="Independent runs.")] = 3,
    seed: options.Seed = 0,
    trials: Annotated[int, typer.Option(min=1, help="Runs of each world in an audit.")] = 1_000,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the rounds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the picture and its numbers.")] = Path("out/compare"),
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Compare protocols on five standard instances: promise, audit, and regret in units of chance."""
    from fedbandit.comparison.contest import contest
    from fedbandit.comparison.contest_plot import draw_contest
    from fedbandit.comparison.entrants import ENTRANTS, yours
    from fedbandit.comparison.instances import INSTANCES, NEEDS, Paths, instances
    from fedbandit.comparison.own_file import plugged_in

    _validate.count("seed", seed, least=0)
    privacy, folder = Privacy(epsilon, delta), output.writable_folder(out)
    played = instances(Paths(letor, warfarin), QUICK if quick else 1.0)
    for name in INSTANCES:
        if name not in {instance.name for instance in played}:
            output.remark(f"skipped {name}: it needs {NEEDS[name]}")
    with nullcontext() if protocol is None else plugged_in(protocol) as planned:
        entrants = ENTRANTS if planned is None else (yours(planned), *ENTRANTS)
        with output.progress_bar("comparing") as progress:
            outcomes = contest(entrants, played, privacy, runs, seed, trials, progress)
    title = f"{privacy.pair}, {counted(runs, 'run')}, seed {seed}: regret per user, 1 is chance"
    draw_contest(outcomes, [instance.name for instance in played], folder / FIGURE, title)
    found = {
        "budget": {"epsilon": epsilon, "delta": delta},
        "runs": runs,
        "seed": seed,
        "instances": [_size(instance) for instance in played],
        "outcomes": [outcome.as_dict() for outcome in outcomes],
    }
    (folder / NUMBERS).write_text(output.as_json(found) + "\n")
    output.remark(f"written: {folder}/{FIGURE}, {NUMBERS}")
    if json:
        output.print_json(found)
    else:
        _show(outcomes, played, title)


def _size(instance: Instance) -> dict[str, Any]:
    size = {"silos": instance.silos, "rounds": instance.rounds, "dim": instance.task.dim}
    return {"name": instance.name, **size}


def _show(outcomes: list[Standing], played: list[Instance], title: str) -> None:
    """A row per protocol, a column per instance."""
    from fedbandit.comparison.contest import NO_PROMISE

    rows = [
        [
            outcome.name,
            outcome.trusts,
            "no" if outcome.promise == NO_PROMISE else "yes",
            outcome.verdict,
            *(_cell(outcome, instance.name) for instance in played),
        ]
        for outcome in outcomes
    ]
    columns = ["protocol", "trusts", "DP", "audit", *(instance.name for instance in played)]
    output.print_table(title, columns, rows, narrow=True, wide=("trusts", "DP"))
    for outcome in outcomes:
        for instance, why in outcome.left_out.items():
            output.remark(f"{outcome.name} is left out of {instance}: {why}")


def _cell(outcome: Standing, instance: str) -> str:
    return f"{outcome.regret[instance].mean:.3f}" if instance in outcome.regret else "-"
