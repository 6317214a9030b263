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
    from fedbandit.comparison.entrants import Entrant
    from fedbandit.comparison.instances import Instance

__all__ = ["compare"]

QUICK = 0.1  # of the rounds
FIGURE, NUMBERS, TABLES = "comparison.svg", "comparison.json", "comparison.md"


def compare(
    protocol: Annotated[
        Path | None, typer.Argument(help="A Python file that defines plan(asked); its code is executed.")
    ] = None,
    letor: Annotated[Path | None, typer.Option(help="Judged documents: a LETOR file or folder.")] = None,
    warfarin: Annotated[Path | None, typer.Option(help="The warfarin CSV.")] = None,
    against: Annotated[str | None, typer.Option(help="Only these, by name, separated by commas.")] = None,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    runs: Annotated[int, typer.Option(min=1, help="Independent runs.")] = 3,
    seed: options.Seed = 0,
    trials: Annotated[int, typer.Option(min=1, help="Runs of each world in an audit.")] = 1_000,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the rounds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the picture, its numbers and tables.")] = Path("out/compare"),
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Compare protocols on five standard instances: promise, audit, and regret in units of chance."""
    from fedbandit.comparison.contest import contest
    from fedbandit.comparison.entrants import yours
    from fedbandit.comparison.instances import INSTANCES, NEEDS, Paths, instances
    from fedbandit.comparison.own_file import plugged_in
    from fedbandit.comparison.standings import as_markdown, draw_contest

    _validate.count("seed", seed, least=0)
    others = _others(against)
    privacy, folder = Privacy(epsilon, delta), output.writable_folder(out)
    played = instances(Paths(letor, warfarin), QUICK if quick else 1.0)
    for name in INSTANCES:
        if name not in {instance.name for instance in played}:
            output.remark(f"skipped {name}: it needs {NEEDS[name]}")
    with nullcontext() if protocol is None else plugged_in(protocol) as planned:
        entrants = others if planned is None else (yours(planned), *others)
        with output.progress_bar("comparing") as progress:
            outcomes = contest(entrants, played, privacy, runs, seed, trials, progress)
    size = f"{counted(runs, 'run')}{' of a tenth of the rounds' if quick else ''}"
    title = f"{privacy.pair}, {size}, seed {seed}: regret per user, 1 is chance"
    names = [instance.name for instance in played]
    draw_contest(outcomes, names, folder / FIGURE, title)
    (folder / TABLES).write_text(as_markdown(outcomes, names, title))
    found = {
        "budget": {"epsilon": epsilon, "delta": delta},
        "runs": runs,
        "seed": seed,
        "instances": [_size(instance) for instance in played],
        "outcomes": [outcome.as_dict() for outcome in outcomes],
    }
    (folder / NUMBERS).write_text(output.as_json(found) + "\n")
    output.remark(f"written: {folder}/{FIGURE}, {NUMBERS}, {TABLES}")
    if json:
        output.print_json(found)
    else:
        _show(outcomes, names, title)


def _others(against: str | None) -> tuple[Entrant, ...]:
    """Those of all entrants that were named."""
    from fedbandit.comparison.entrants import ENTRANTS

    if against is None:
        return ENTRANTS
    known = {entrant.name: entrant for entrant in ENTRANTS}
    named = dict.fromkeys(name.strip() for name in against.split(","))
    return tuple(known[_validate.one_of("against", name, known)] for name in named)


def _size(instance: Instance) -> dict[str, Any]:
    size = {"silos": instance.silos, "rounds": instance.rounds, "dim": instance.task.dim}
    return {"name": instance.name, **size}


def _show(outcomes: list[Standing], instances: list[str], title: str) -> None:
    """A row per protocol, a column per instance."""
    from fedbandit.comparison.standings import regret_columns, regret_row

    rows = [regret_row(outcome, instances, errors=False) for outcome in outcomes]
    output.print_table(title, regret_columns(instances), rows, narrow=True, wide=("trusts", "DP"))
    for outcome in outcomes:
        for instance, why in outcome.left_out.items():
            output.remark(f"{outcome.name} is left out of {instance}: {why}")
