"""`fedbandit frontier`: what epsilon costs, measured; what each improvement is worth; and whether shuffling pays."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit._words import counted
from fedbandit.cli import checks, options, output
from fedbandit.plan import Plan
from fedbandit.planner.tuning import CONSTANT_SHARE
from fedbandit.privacy.budget import Privacy, exactly

if TYPE_CHECKING:
    from fedbandit.bandit.confidence import Radii
    from fedbandit.planner.studies.ablation import Ablated
    from fedbandit.planner.studies.consortia import Checked
    from fedbandit.planner.studies.frontier import Frontier, Point
    from fedbandit.planner.studies.shuffling import Payoff
    from fedbandit.simulator.tasks import Task

__all__ = ["frontier"]


@dataclass(frozen=True)
class FrontierSize:
    """How much is simulated unless options say otherwise."""

    silos: int
    rounds: int
    runs: int
    budgets: tuple[tuple[float, float], ...]
    curves: tuple[str, ...]


PREDICTION_READS = ("predictions", "runs", "seed", "json", "wide")
SHUFFLE_READS = ("shuffle", "silos", "rounds", "dim", "data", "warfarin", "budgets", "quick", "json")


def frontier(
    context: typer.Context,
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
        bool | None, typer.Option(help="Centre rewards in practical curves [yes, for synthetic users].")
    ] = None,
    ablated: Annotated[
        bool, typer.Option("--ablation", help="Instead, take back one improvement at a time, at one budget.")
    ] = False,
    confidence: Annotated[str, typer.Option(help="Radii to start the ablation from.")] = "practical",
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Only say from how many silos on the shuffle protocols would pay.")
    ] = False,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="Instead, compare what `plan --best` predicts with simulations.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small and rough: 20 silos, 1000 rounds, 2 runs.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the frontier here (SVG, PNG or PDF).")] = None,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Regret against epsilon for all protocols, on the same users."""
    from fedbandit.planner.studies.frontier import frontier as measured
    from fedbandit.planner.studies.frontier import light as lighter

    if data is not None and warfarin is not None:
        raise ArgumentError("data", "must not be given together with warfarin: a frontier has one kind of users")
    if predictions:
        checks.no_other_effect(context, PREDICTION_READS, "with --predictions, which has its own consortia")
        _show_predictions(3 if runs is None else runs, seed, json)
        return
    _check_effects(context, shuffle, ablated, data is not None or warfarin is not None)
    size = _usual_size(quick)
    task = _task(dim, arms, data, warfarin)
    centre = data is None and warfarin is None if centred is None else centred
    chosen = size.budgets if budgets is None else _parsed_budgets(budgets)
    if budgets is not None and len(chosen) > 1 and (shuffle or ablated):
        raise ArgumentError("budgets", f"must be one with --{'shuffle' if shuffle else 'ablation'}, got {budgets!r}")
    if plot is not None:
        checks.picture("plot", plot)
    first = Privacy(*(chosen[0] if budgets is not None else (1.0, 0.1)))
    base = Plan(_or(silos, size.silos), _or(rounds, size.rounds), task.dim, first, trust="none")
    runs = _validate.count("runs", _or(runs, size.runs))  # plans are tuned for minutes before they are played
    if shuffle:
        from fedbandit.planner.studies.shuffling import payoffs

        _show_payoffs(payoffs(base), json)
        return
    if ablated:
        from fedbandit.planner.studies.ablation import ablation

        radii = cast("Radii", confidence)  # a plan refuses any other text
        with output.progress_bar("taking back one at a time") as progress:
            rows = ablation(task, base, runs, seed, confidence=radii, centred=centre, progress=progress)
        _show_ablation(rows, base, json)
        return
    names = size.curves if curves is None else tuple(name.strip() for name in curves.split(","))
    with output.progress_bar("measuring the frontier") as progress:
        found = measured(task, base, chosen, names, runs, seed, centred=centre, progress=progress)
    title = f"{counted(base.silos, 'silo')}, {base.rounds:,} rounds, d = {base.dim}, {counted(runs, 'run')}"
    if plot is not None:
        from fedbandit.planner.studies.frontier_plot import draw

        draw(found, plot, title)
        output.remark(f"written: {plot}")
    if json:
        output.print_json({"points": [point.as_dict() for point in found.points], "left_out": dict(found.left_out)})
    else:
        _show_frontier(found, title, light=lighter(task) is not task)


def _usual_size(quick: bool) -> FrontierSize:
    from fedbandit.planner.studies.frontier import BUDGETS, CURVES, QUICK_CURVES

    if quick:
        return FrontierSize(20, 1_000, 2, ((1.0, 0.1),), QUICK_CURVES)
    return FrontierSize(100, 10_000, 10, BUDGETS, CURVES)


def _check_effects(context: typer.Context, shuffle: bool, ablated: bool, real: bool) -> None:
    """Refuse options that the chosen mode does not read."""
    if shuffle:
        checks.no_other_effect(context, SHUFFLE_READS, "with --shuffle, which simulates nothing")
    elif ablated:
        checks.no_effect(context, ("curves", "plot"), "with --ablation, which has its own rows")
    else:
        checks.no_effect(context, ("confidence",), "without --ablation")
    if real:
        checks.no_effect(context, ("dim", "arms"), "with --data or --warfarin, which bring their own")


def _or(asked: int | None, usual: int) -> int:
    return usual if asked is None else asked


def _parsed_budgets(text: str) -> tuple[tuple[float, float], ...]:
    """ "1:0.1,5:0.1" as pairs."""
    try:
        pairs = tuple((float(e), float(d)) for e, d in (part.split(":") for part in text.split(",")))
    except ValueError:
        raise ArgumentError("budgets", f"must look like 1:0.1,5:0.1 (EPSILON:DELTA), got {text!r}") from None
    for pair in pairs:
        Privacy(*pair)
    return pairs


def _task(dim: int, arms: int, data: Path | None, warfarin: Path | None) -> Task:
    from fedbandit.simulator.tasks import letor, synthetic
    from fedbandit.simulator.tasks import warfarin as patients

    if data is not None:
        return letor(data)
    return synthetic(dim, arms) if warfarin is None else patients(warfarin)


def _show_frontier(found: Frontier, title: str, light: bool) -> None:
    from fedbandit.planner.studies.frontier import FLOOR, is_light

    columns = ["curve", "budget", "regret / T", "+-", "excess", "x below the paper", "syncs", "schedule", "mechanism"]
    output.print_table(title, columns, [_point_row(point) for point in found.points], wide=("schedule", "mechanism"))
    for name, reason in found.left_out.items():
        output.say(f"{name}: not here. {reason}")
    output.remark("excess: over non-private FedLinUCB on the same users, schedule and radii.")
    if any(point.name.endswith(FLOOR) for point in found.points):
        output.remark("floor: with the noise of a single release in every prefix sum; out of reach at this budget.")
    if any(is_light(point.plan) for point in found.points) and light:
        share = f"{CONSTANT_SHARE:.0%}"
        output.remark(f"Where rewards are centred, a row's constant entry has {share} of its squared length.")
    output.remark("x below the paper: the excess of `ldp` (as proven, every 25 rounds) divided by this one's.")


def _point_row(point: Point) -> list[str]:
    plan = point.plan
    return [
        point.name,
        "none" if point.epsilon is None or point.delta is None else Privacy(point.epsilon, point.delta).pair,
        output.number(point.regret.mean),
        output.number(point.regret.stderr, 2),
        output.number(None if point.excess is None else point.excess.mean),
        output.number(point.excess_ratio_to_paper, 3),
        str(plan.syncs),
        str(plan.schedule),
        plan.mechanism,
    ]


def _show_ablation(rows: tuple[Ablated, ...], base: Plan, json: bool) -> None:
    from fedbandit.planner.studies.ablation import unsymmetric_noise_factor

    factor = unsymmetric_noise_factor(base.changed(trust="silo", colluding=None))
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
        f"one improvement taken back, {base.privacy.pair}", columns, cells, wide=("+-", "x below the paper")
    )
    output.remark(
        f"Noise on the whole matrix instead of its symmetric part: {factor:.3g} times the noise's squared error."
    )


def _show_payoffs(found: tuple[Payoff, ...], json: bool) -> None:
    if json:
        output.print_json({"shuffle": [payoff._asdict() for payoff in found]})
        return
    for one in found:
        pays = "never pays" if one.silos is None else f"pays from {one.silos:.1e} silos on"
        output.say(f"{one.protocol} against {one.against}: {pays} ({one.reason})")


def _show_predictions(runs: int, seed: int, as_json: bool) -> None:
    from fedbandit.planner.studies.consortia import accord, checked

    with output.progress_bar("simulating") as progress:
        rows = list(checked(runs, seed, progress))
    found = accord(rows)
    if as_json:
        output.print_json({"settings": [row.as_dict() for row in rows], "accord": asdict(found)})
        return
    columns = ["consortium", "say", "predicted", "measured", "alone: predicted", "measured"]
    output.print_table(
        f"{len(rows)} consortia, {counted(runs, 'run')}", columns, [_prediction_row(row) for row in rows]
    )
    output.say(
        f"rank correlation {found.rank_correlation:.3f}; predicted over measured between {found.lowest_ratio:.2f} and "
        f"{found.highest_ratio:.2f}; {found.wrong} recommended that cost over a tenth more than staying alone"
    )
    output.remark("consortium: silos x people per day x days, d, actions, epsilon; v visits, c consenting.")


def _prediction_row(row: Checked) -> list[str]:
    consortium = row.consortium
    more = (f", v {consortium.visits}" if consortium.visits > 1 else "") + (
        f", c {consortium.consenting:g}" if consortium.consenting < 1 else ""
    )
    size = f"{consortium.silos} x {consortium.people_per_day} x {consortium.days}, {consortium.dim}, {consortium.arms}"
    regrets = [row.predicted, row.measured.mean, row.alone_predicted, row.alone_measured.mean]
    return [f"{size}, {exactly(consortium.privacy.epsilon)}{more}", row.recommended, *(f"{one:.3g}" for one in regrets)]
