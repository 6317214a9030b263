"""`fedbandit demo`: a live federation on this machine, compared with simulations of the same users."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedbandit import _validate, presets
from fedbandit._words import EXTRAS
from fedbandit.cli import options, output
from fedbandit.federation.leaving import leave
from fedbandit.look.colours import colours
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy, at_most, exactly
from fedbandit.protocol.trust import trust as trusting
from fedbandit.schedule import clock, every

if TYPE_CHECKING:
    from fedbandit.demo.ending import Ending
    from fedbandit.demo.live import Live
    from fedbandit.demo.processes import Processes
    from fedbandit.demo.visitors import GroupRegret, Visitors

__all__ = ["demo", "demo_plan", "spent_in_words"]

DIM, ARMS = 5, 20
PERIOD = 0.075  # seconds: in each period of the public clock, one visitor comes to every silo
DRAWS = 20  # draws of the noise that simulated curves average over; the live federation has one


def demo(
    silos: Annotated[int, typer.Option(help="Number of silos, each in its own process.")] = 3,
    rounds: Annotated[int, typer.Option(help="Visitors of every silo.")] = 600,
    trust: Annotated[
        str, typer.Option(help="silo, secure-sum, central, vector-sum, or, for thousands of silos, shuffle.")
    ] = "secure-sum",
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    seed: Annotated[int, typer.Option(help="The same seed draws the same users.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for stores, logs and the plot; else a new one.")] = None,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Run broker, analyzer, mixer and silos as processes, let users come over HTTP, compare what was learnt."""
    _check_installed()
    from fedbandit.demo.ending import heeded
    from fedbandit.demo.visitors import Visitors
    from fedbandit.federation.setup.agreement import check_live, check_trust

    _validate.count("seed", seed, least=0)
    check_trust(trust)
    plan = demo_plan(silos, rounds, trust, Privacy(epsilon, delta))
    check_live(plan)
    users = Visitors(silos, rounds, DIM, ARMS, seed)
    try:
        with heeded() as ending, _folder(out) as folder:
            live = _play(folder, plan, users, ending)
            with ending.at_once():
                curves = {"live": _played(users, live), **_others(plan, users)}
                plot = (out or Path("out") / "demo") / "demo.svg"
                _plot(curves, plot)
    except SystemExit as told:  # all that was started has been stopped
        leave(int(told.code or 0))
    if json:
        output.print_json(_as_data(plan, live, curves, plot))
    else:
        _show(plan, live, curves, plot)
    if not live.check.passed:
        raise typer.Exit(1)


def _check_installed() -> None:
    """The demo needs two other extras and its own, which brings them: nobody is sent from one to the next."""
    for name, extra in EXTRAS.items():
        if extra in ("live", "simulate") and find_spec(name) is None:
            raise ImportError(f"No module named {name!r}: pip install 'fedbandit[demo]'")


def demo_plan(silos: int, rounds: int, trust: str, privacy: Privacy) -> Plan:
    """The plan of the demo: the defaults on a quick public clock.

    A trust model that prescribes its mechanism (vector-sum) needs batches of a fixed size, and so a schedule that
    counts visits, which are then public.
    """
    plan = Plan(silos, rounds, DIM, privacy, "none", schedule=clock(PERIOD, ratio=1.25), confidence="practical")
    mechanism = trusting(trust).mechanism
    if mechanism is None:
        return plan.changed(trust=trust)
    return plan.changed(trust=trust, mechanism=mechanism, schedule=every(max(1, rounds // 16)), visits="public")


def _play(folder: Path, plan: Plan, users: Visitors, ending: Ending) -> Live:
    from fedbandit.demo.live import play_live

    done, total = 0, plan.silos * plan.rounds
    output.remark(
        f"starting broker, analyzer, {'mixer, ' if plan.protocol.has_mixer else ''}{plan.silos} silos in {folder}"
    )
    with output.progress_bar(f"{total:,} users over HTTP") as bar:

        def progress(users_done: int) -> None:
            nonlocal done
            done += users_done
            bar(done / total)

        return play_live(folder, plan, users, progress, _say_where, ending)


def _say_where(processes: Processes) -> None:
    """Say where to watch, and the token to type in there; a token is never part of a link."""
    from fedbandit.demo.processes import url

    for home in (processes.homes[0], processes.silos[0]):
        output.remark(f"look at {home.settings.name}: {url(home)}/  token: {home.token()}")


def _played(users: Visitors, live: Live) -> GroupRegret:
    """The regret of the live federation, with its one draw of the noise."""
    from fedbandit.demo.visitors import GroupRegret

    regret = users.regret(live.actions)
    return GroupRegret(np.arange(1, users.rounds + 1), regret, regret[-1], regret[-1])


def _others(plan: Plan, users: Visitors) -> dict[str, GroupRegret]:
    """The regret of the alternatives on the same users, averaged over draws of the noise."""
    from fedbandit.demo.visitors import simulated_regret

    free = plan.changed(trust="none", privacy=None, mechanism="batches", calibration="exact", cohort=None)
    others = {
        "the same, simulated": plan,
        "non-private": free,
        "each silo alone": presets.isolated(free),
        "the paper's protocol": presets.ldp(plan),
    }
    return simulated_regret(users, others, DRAWS)


def _as_data(plan: Plan, live: Live, curves: dict[str, GroupRegret], plot: Path) -> dict[str, Any]:
    return {
        "silos": plan.silos,
        "rounds": plan.rounds,
        "trust": plan.trust,
        "syncs": len(plan.times),
        "regret": {name: curve.final for name, curve in curves.items()},
        "regret_of_draws": {name: [float(curve.least), float(curve.most)] for name, curve in curves.items()},
        "epsilon": plan.privacy.epsilon if plan.privacy else None,
        "epsilon_spent": [status["epsilon_spent"] for status in live.statuses],
        "latency_ms": _latencies(live),
        "seconds": live.seconds,
        "restarts": live.restarts,
        "check": {**live.check._asdict(), "passed": live.check.passed},
        "plot": str(plot),
    }


def _latencies(live: Live) -> dict[str, float]:
    """Quantiles of the latencies, without the last sync, whose batch waits longer for late rewards."""
    from fedbandit.demo.clients import quantile_ms

    times = {
        "decide": [s for one in live.visits for s in one.decide_seconds],
        "reward": [s for one in live.visits for s in one.reward_seconds],
        "sync": [s for one in live.visits for s in one.sync_seconds[:-1] or one.sync_seconds],
    }
    return {f"{what}_p{p}": quantile_ms(found, p / 100) for what, found in times.items() for p in (50, 99)}


def _show(plan: Plan, live: Live, curves: dict[str, GroupRegret], plot: Path) -> None:
    free = curves["non-private"].final
    rows = [
        [name, output.number(curve.final), _spread(curve), f"{curve.final / free:.2f}"]
        for name, curve in curves.items()
    ]
    title = (
        f"Group regret after {plan.rounds} rounds of {plan.silos} silos, same users; mean of {DRAWS} draws of the"
        " noise, except for live, which is one draw"
    )
    output.print_table(title, ["", "regret", "least to most", "x non-private"], rows)
    latency = _latencies(live)
    output.print_table(
        "The live federation",
        ["", ""],
        [
            ["promise", plan.guarantee.statement],
            ["epsilon spent", spent_in_words(plan, live.statuses)],
            ["syncs", f"{live.statuses[0]['model']} of {len(plan.times)}"],
            ["decide, median / p99", f"{latency['decide_p50']:.1f} / {latency['decide_p99']:.1f} ms"],
            ["durable reward, median / p99", f"{latency['reward_p50']:.1f} / {latency['reward_p99']:.1f} ms"],
            ["tick to new model, median / p99", f"{latency['sync_p50']:.0f} / {latency['sync_p99']:.0f} ms"],
            ["rewards acknowledged / counted", f"{live.check.acknowledged} / {live.check.counted}"],
            ["live model against the library", f"largest difference {output.number(live.check.difference, 2)}"],
            ["processes restarted", str(live.restarts)],
        ],
    )
    output.stdout.print(f"plot: {plot}")


def _spread(curve: GroupRegret) -> str:
    """The range of final regrets over draws of the noise: the live run is one such draw."""
    if curve.least == curve.most:
        return "-"
    return f"{output.number(curve.least, 3)} to {output.number(curve.most, 3)}"


def spent_in_words(plan: Plan, statuses: list[dict[str, Any]]) -> str:
    """What the silo that spent most has spent, and against whom, by its own ledger."""
    if plan.privacy is None:
        return "-"
    spent = [status["epsilon_spent"] for status in statuses]
    if any(epsilon is None for epsilon in spent):
        return "no bound"
    against = statuses[int(np.argmax(spent))]["spent_against"]
    asked = f"{exactly(plan.privacy.epsilon)} at delta = {exactly(plan.privacy.delta)} ({plan.privacy.adjacency})"
    return f"{at_most(max(spent))} of {asked}{'' if against is None else f', against {against}'}"


def _plot(curves: dict[str, GroupRegret], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    painted = colours(list(curves))
    for name, curve in curves.items():
        width = 2.4 if name == "live" else 1.4
        axes.plot(curve.rounds, curve.mean, label=name, color=painted[name], linewidth=width)
    axes.set_xlabel("round t")
    axes.set_ylabel("group regret, cumulative")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path)
    plt.close(figure)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the parties' directories: below `out` if it was given, else temporary."""
    if out is not None:
        yield output.writable_folder(out) / "federation"
        return
    with tempfile.TemporaryDirectory(prefix="fedbandit-demo-") as folder:
        yield Path(folder) / "federation"
