"""`fedbandit frontier` (what epsilon costs, measured) and what `fedbandit plan --best` prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit.cli import options, output
from fedbandit.plan import Plan
from fedbandit.planner.ablation import Ablated, ablation, unsymmetric_noise_factor
from fedbandit.planner.best import Choice, Option
from fedbandit.planner.frontier import BUDGETS, CURVES, QUICK_CURVES, Frontier, Point
from fedbandit.planner.frontier import frontier as measured
from fedbandit.planner.shuffling import Verdict, verdicts
from fedbandit.privacy.budget import Privacy
from fedbandit.simulate.tasks import Task, letor, synthetic
from fedbandit.simulate.tasks import warfarin as patients


@dataclass(frozen=True)
class Size:
    """How much is simulated where nothing else is asked for."""

    silos: int
    rounds: int
    runs: int
    budgets: tuple[tuple[float, float], ...]
    curves: tuple[str, ...]


FULL = Size(100, 10_000, 10, BUDGETS, CURVES)
QUICK = Size(20, 1_000, 2, ((1.0, 0.1),), QUICK_CURVES)


def register(app: typer.Typer) -> None:
    """Add `frontier` to the command line."""
    app.command()(frontier)


def frontier(
    silos: Annotated[int | None, typer.Option(help="Number of silos, M [100].")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every silo, T [10000].")] = None,
    dim: options.Dim = 10,
    arms: Annotated[int, typer.Option(help="Actions of every user.")] = 100,
    budgets: Annotated[str | None, typer.Option(help="EPSILON:DELTA, several separated by commas.")] = None,
    curves: Annotated[str | None, typer.Option(help="Curves by name, separated by commas.")] = None,
    runs: Annotated[int | None, typer.Option(help="Independent runs [10].")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    data: Annotated[Path | None, typer.Option(help="Judged documents: a LETOR file or folder.")] = None,
    warfarin: Annotated[Path | None, typer.Option(help="The warfarin CSV.")] = None,
    centred: Annotated[
        bool | None, typer.Option(help="Centre rewards in practical curves [yes for synthetic users].")
    ] = None,
    ablated: Annotated[
        bool, typer.Option("--ablation", help="Take one improvement back at a time instead, at the first budget.")
    ] = False,
    confidence: Annotated[str, typer.Option(help="Radii to start the ablation from.")] = "practical",
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Only say from how many silos on the shuffle protocols would pay.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small and rough: 20 silos, 1000 rounds, 2 runs.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the frontier here (SVG, PNG or PDF).")] = None,
    json: options.Json = False,
) -> None:
    """Regret against epsilon for all protocols, on the same users."""
    size = QUICK if quick else FULL
    task = _task(dim, arms, data, warfarin)
    centre = data is None and warfarin is None if centred is None else centred
    chosen = size.budgets if budgets is None else parsed_budgets(budgets)
    first = Privacy(*(chosen[0] if budgets is not None else (1.0, 0.1)))
    base = Plan(silos or size.silos, rounds or size.rounds, task.dim, first)
    runs = runs or size.runs
    if shuffle:
        _show_verdicts(verdicts(base), json)
        return
    if ablated:
        with output.progress_bar("taking back one at a time") as progress:
            rows = ablation(task, base, runs, seed, confidence=confidence, centred=centre, progress=progress)
        _show_ablation(rows, base, json)
        return
    names = size.curves if curves is None else tuple(name.strip() for name in curves.split(","))
    with output.progress_bar("measuring the frontier") as progress:
        found = measured(task, base, chosen, names, runs, seed, centred=centre, progress=progress)
    title = f"{base.silos} silos, {base.rounds:,} rounds, d = {base.dim}, {runs} runs"
    if plot is not None:
        from fedbandit.planner.drawing import draw

        draw(found, plot, title)
        output.remark(f"written: {plot}")
    if json:
        output.print_json({"points": [point.as_dict() for point in found.points], "left_out": dict(found.left_out)})
    else:
        _show_frontier(found, title)


def parsed_budgets(text: str) -> tuple[tuple[float, float], ...]:
    """ "1:0.1,5:0.1" as pairs."""
    try:
        pairs = tuple((float(e), float(d)) for e, d in (part.split(":") for part in text.split(",")))
    except ValueError:
        raise ValueError(f"budgets must look like 1:0.1,5:0.1 (EPSILON:DELTA), got {text!r}") from None
    for pair in pairs:
        Privacy(*pair)
    return pairs


def best_as_dict(choice: Choice) -> dict[str, Any]:
    """`plan --best --json`."""
    return {
        "best": _option(choice.best),
        "plan": choice.plan.as_dict(),
        "next_best": _option(choice.protocols[0]) if choice.protocols else None,
        "protocols": [_option(one) for one in choice.protocols],
        "variants": [_option(one) for one in choice.variants],
        "impossible": {one.name: one.reason for one in choice.impossible},
    }


def show_best(choice: Choice) -> None:
    """`plan --best` for people."""
    plan, best = choice.plan, choice.best
    rows = [_option_row(one, best) for one in (best, *choice.protocols, *choice.variants)]
    columns = ["use", "trust", "schedule", "syncs", "mechanism", "lost rounds", "times the best"]
    assert plan.privacy is not None
    budget = f"({plan.privacy.epsilon:g}, {plan.privacy.delta:g})"
    output.print_table(f"{plan.silos} silos, {plan.rounds:,} rounds, d = {plan.dim}, {budget}", columns, rows)
    for one in choice.impossible:
        output.stdout.print(f"not here: {one.reason}", highlight=False, soft_wrap=True)
    output.remark("lost rounds: predicted from the noise and the schedule, not simulated; so many rounds of every silo")
    output.remark(
        "acting at random cost as much regret. Names after a comma are the best protocol with one thing changed."
    )


def _task(dim: int, arms: int, data: Path | None, warfarin: Path | None) -> Task:
    if data is not None and warfarin is not None:
        raise ValueError("data and warfarin must not both be given: a frontier has one kind of users")
    if data is not None:
        return letor(data)
    return synthetic(dim, arms) if warfarin is None else patients(warfarin)


def _show_frontier(found: Frontier, title: str) -> None:
    columns = ["curve", "budget", "regret / T", "+-", "excess", "x below the paper", "syncs", "schedule", "mechanism"]
    output.print_table(title, columns, [_point_row(point) for point in found.points])
    for name, reason in found.left_out.items():
        output.stdout.print(f"{name}: not here. {reason}", highlight=False, soft_wrap=True)
    output.remark("excess: over non-private FedLinUCB on the same users, schedule and radii.")
    output.remark("x below the paper: the excess of `ldp` (as proven, every 25 rounds) divided by this one's.")


def _point_row(point: Point) -> list[str]:
    plan = point.plan
    return [
        point.name,
        "none" if point.epsilon is None else f"({point.epsilon:g}, {point.delta:g})",
        output.number(point.regret.mean),
        output.number(point.regret.stderr, 2),
        output.number(None if point.excess is None else point.excess.mean),
        output.number(point.excess_ratio_to_paper, 3),
        str(plan.synchronisations),
        str(plan.schedule),
        plan.mechanism,
    ]


def _show_ablation(rows: tuple[Ablated, ...], base: Plan, json: bool) -> None:
    factor = unsymmetric_noise_factor(base)
    if json:
        output.print_json({"ablation": [row.as_dict() for row in rows], "unsymmetric_noise_factor": factor})
        return
    columns = ["trust", "without", "regret / T", "excess", "+-", "times the excess", "x below the paper"]
    cells = [
        [
            row.trust,
            row.without or "(the whole)",
            output.number(row.regret.mean),
            output.number(row.excess.mean),
            output.number(row.excess.stderr, 2),
            output.number(row.times_excess, 3),
            output.number(row.excess_ratio_to_paper, 3),
        ]
        for row in rows
    ]
    assert base.privacy is not None
    output.print_table(
        f"one improvement taken back, ({base.privacy.epsilon:g}, {base.privacy.delta:g})", columns, cells
    )
    output.remark(
        f"Noise on the whole matrix instead of its symmetric part: {factor:.3g} times the noise's squared error."
    )


def _show_verdicts(found: tuple[Verdict, ...], json: bool) -> None:
    if json:
        output.print_json({"shuffle": [verdict._asdict() for verdict in found]})
        return
    for one in found:
        pays = "never pays" if one.silos is None else f"pays from {one.silos:.1e} silos on"
        line = f"{one.protocol} against {one.against}: {pays} ({one.reason})"
        output.stdout.print(line, highlight=False, soft_wrap=True)


def _option(one: Option) -> dict[str, Any]:
    plan = one.plan
    assert plan is not None
    described = {"trust": plan.trust, "schedule": str(plan.schedule), "mechanism": plan.mechanism}
    return {"name": one.name, "lost_rounds": one.lost, **described, "synchronisations": plan.synchronisations}


def _option_row(one: Option, best: Option) -> list[str]:
    plan = one.plan
    assert plan is not None
    how = [plan.trust, str(plan.schedule), str(plan.synchronisations), plan.mechanism]
    return [one.name, *how, output.number(one.lost, 3), output.number(one.lost / best.lost, 3)]
