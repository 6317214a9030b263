"""`fedbandit simulate`: several protocols on the same users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbandit._words import counted
from fedbandit.cli import checks, options, output

if TYPE_CHECKING:
    from fedbandit.simulator.result import Result

__all__ = ["simulate"]

BUDGET = ("epsilon", "delta", "adjacency", "participations", "silos_per_user", "apart")
OWN_SCHEDULE = ("isolated", "dubey", "private-adaptive")  # they ignore a public schedule
RUNNING = {"runs", "seed", "precision"}  # how the simulation is run, whoever takes part


def simulate(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A TOML file; options override it.")] = None,
    protocols: Annotated[
        str | None, typer.Option(help="Names, separated by commas.", show_default="fed-lin-ucb,ldp,silo,secure-sum")
    ] = None,
    silos: Annotated[int | None, typer.Option(help="Number of silos, M.", show_default="20")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every silo, T.", show_default="2000")] = None,
    batch: options.Batch = None,
    dim: Annotated[int | None, typer.Option(help="Dimension of the features, d.", show_default="10")] = None,
    arms: Annotated[int | None, typer.Option(help="Actions of every user.", show_default="100")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget epsilon.", show_default="1.0")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget delta.", show_default="1e-05")] = None,
    adjacency: Annotated[
        str | None, typer.Option(help="replace-one or add-remove.", show_default="replace-one")
    ] = None,
    participations: Annotated[int | None, typer.Option(help="Rounds of one silo per user.", show_default="1")] = None,
    silos_per_user: Annotated[int | None, typer.Option(help="Silos per user.", show_default="1")] = None,
    apart: Annotated[
        int | None, typer.Option(help="Least number of syncs between two counted visits.", show_default="0")
    ] = None,
    forget: Annotated[
        float | None, typer.Option(help="Also play each protocol with this weight per sync.", show_default="1.0")
    ] = None,
    endless: Annotated[bool | None, typer.Option("--endless", help="With --forget: for a run without an end.")] = None,
    drift: Annotated[
        float | None, typer.Option(help="How far theta moves per round, at random.", show_default="0.0")
    ] = None,
    jump_at: Annotated[int | None, typer.Option(help="The round after which theta is a new one.")] = None,
    own: Annotated[
        int | None,
        typer.Option(
            help="How many weights of theta differ by silo; also play plans that learn them.", show_default="0"
        ),
    ] = None,
    differing: Annotated[
        float | None, typer.Option(help="How far silos differ in those weights, 0 to 1.", show_default="0.0")
    ] = None,
    own_share: Annotated[
        float | None, typer.Option(help="Share of mu^2 that learning them may spend.", show_default="0.2")
    ] = None,
    rewards: Annotated[
        str | None, typer.Option(help="bernoulli, gaussian, clipped or exact.", show_default="bernoulli")
    ] = None,
    contexts: Annotated[str | None, typer.Option(help="fresh for every user, or fixed.", show_default="fresh")] = None,
    confidence: Annotated[
        str | None, typer.Option(help="theory, proof or practical radii.", show_default="theory")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or float64 scores.", show_default="float32")] = None,
    runs: Annotated[int | None, typer.Option(help="Independent runs.", show_default="5")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same numbers.", show_default="0")] = None,
    delay: Annotated[float, typer.Option(help="How many rounds later rewards come, on average.")] = 0.0,
    missing: Annotated[float, typer.Option(help="Share of rewards that never come.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Folder for the frame, the plans and a plot.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan's file: compare it with staying alone.")] = None,
    on: Annotated[str | None, typer.Option(help="ray, or ray://host:port: spread runs over a Ray cluster.")] = None,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Compare protocols by their time-averaged group regret."""
    from fedbandit.cli.researcher.experiment import Experiment, PlannedExperiment
    from fedbandit.simulator.on_ray import ray_executor
    from fedbandit.simulator.population import Delays
    from fedbandit.simulator.runner import check, play_here
    from fedbandit.simulator.runner import simulate as run

    given: dict[str, Any] = {
        "protocols": None if protocols is None else [name.strip() for name in protocols.split(",")],
        "silos": silos,
        "rounds": rounds,
        "batch": batch,
        "dim": dim,
        "arms": arms,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": adjacency,
        "participations": participations,
        "silos_per_user": silos_per_user,
        "apart": apart,
        "forget": forget,
        "endless": endless,
        "drift": drift,
        "jump_at": jump_at,
        "own": own,
        "differing": differing,
        "own_share": own_share,
        "rewards": rewards,
        "contexts": contexts,
        "confidence": confidence,
        "precision": precision,
        "runs": runs,
        "seed": seed,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if plan is not None:
        checks.no_other_effect(
            context, (*given.keys() & RUNNING, "plan", "out", "on", "json", "wide", "delay", "missing"), "with --plan"
        )
        played: Experiment | PlannedExperiment = PlannedExperiment.read(plan, **given)
    else:
        experiment = Experiment() if file is None else Experiment.read(file)
        played = experiment.overridden(given)
    plans, task = played.plans(), played.task()
    if all(one.privacy is None for one in plans.values()):
        checks.no_effect(context, BUDGET, "where no protocol has a budget")
    if all(name in OWN_SCHEDULE for name in plans):
        checks.no_effect(context, ("batch",), "on protocols that never synchronise, or whose data decide when")
    check(task, plans, played.runs, played.seed, played.precision)
    folder = None if out is None else output.writable_folder(out)
    if not task.responses.bounded:
        output.remark("rewards 'gaussian' leave [0, 1], so no guarantee covers such users; they reproduce the paper.")
    executor = play_here if on is None else ray_executor(on)
    with output.progress_bar("simulating") as progress:
        result = run(
            task,
            plans,
            played.runs,
            played.seed,
            attendance=played.attendance,
            precision=played.precision,
            progress=progress,
            executor=executor,
            delays=Delays(delay, missing),
        )
    if folder is not None:
        result.save(folder)
        result.plot(folder / "regret.svg")
        output.remark(f"written: {folder}/regret.parquet, plans.json, regret.svg")
    if json:
        output.print_json({"curves": [_curve(result, name) for name in result.names]})
    else:
        _show(result, played.title, task.responses.bounded)


def _show(result: Result, title: str, bounded: bool) -> None:
    """The table of a comparison; no promise covers rewards that are not `bounded`."""
    from fedbandit.presets import isolated

    rows = []
    for name in result.names:
        regret, guarantee = result.regret(name), result.plans[name].guarantee
        promise = guarantee.pair if guarantee.promised and bounded else "none"
        syncs = f"{result.syncs(name):g}"
        late = result.regret(name, second_half=True)
        numbers = [f"{regret.mean:.4f}", output.number(regret.stderr, 2), f"{late.mean:.4f}"]
        rows.append([name, promise, *numbers, syncs])
    finished = min(len(result.final(name)) for name in result.names)
    runs = f"{finished} of {result.runs} runs, seed {result.seed}"
    columns = ["protocol", "promise", "regret / T", "std. error", "second half", "syncs"]
    output.print_table(f"{title}, {runs}", columns, rows)
    if any(plan == isolated(plan) for plan in result.plans.values()):
        output.remark("Silos that stay alone send nothing: their one sync is the end of the run.")
    for name, count in result.repaired.items():
        if count:
            output.remark(f"{name}: noise made {counted(count, 'covariance')} too small; eigenvalues were raised.")


def _curve(result: Result, name: str) -> dict[str, Any]:
    regret = result.regret(name)
    late = result.regret(name, second_half=True)
    return {
        "name": name,
        "regret": regret._asdict(),
        "regret_second_half": late._asdict(),
        "syncs": result.syncs(name),
    }
