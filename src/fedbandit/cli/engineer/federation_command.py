"""`fedbandit federation`: found a federation, join one, admit others, make its streams."""

from __future__ import annotations

import asyncio
import json as jsonlib
import time
from pathlib import Path
from typing import Annotated

import typer

from fedbandit import schedule as schedules
from fedbandit._validate import ArgumentError
from fedbandit.cli import options
from fedbandit.cli.plan_file import read_plan
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy

__all__ = ["federation"]

SCHEDULES = "every:N, growing:RATIO or clock:SECONDS"
federation = typer.Typer(help="Found a federation, join one.", no_args_is_help=True, rich_markup_mode=None)


@federation.command()
def init(
    directory: Annotated[Path, typer.Argument(help="A new directory for the federation's file and the broker's.")],
    name: Annotated[str, typer.Option(help="Name of the federation: letters, digits, - and _.")],
    plan: Annotated[Path | None, typer.Option(help="The plan as JSON; otherwise the options below.")] = None,
    silos: options.Silos = 3,
    rounds: options.Rounds = 10_000,
    dim: options.Dim = 10,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    participations: options.Participations = 1,
    trust: Annotated[str, typer.Option(help="Who must not see what: silo, secure-sum, ...")] = "secure-sum",
    mechanism: Annotated[str, typer.Option(help="toeplitz, blt, tree, batches, ...")] = "toeplitz",
    schedule: Annotated[str, typer.Option(help="every:N rounds, growing:RATIO, or clock:SECONDS.")] = "growing:1.1",
    cohort: Annotated[int | None, typer.Option(help="Fewest silos in a sync; all by default.")] = None,
    broker: Annotated[str, typer.Option(help="URL of the NATS server or cluster.")] = "nats://127.0.0.1:4222",
    deadline: Annotated[float, typer.Option(help="Seconds a sync stays open after its first release.")] = 3600.0,
    settle: Annotated[float, typer.Option(help="Seconds a batch stays open after its tick.")] = 0.0,
    settle_last: Annotated[float, typer.Option(help="The same for the last batch of the term.")] = 0.0,
    start: Annotated[float | None, typer.Option(help="Unix time from which a clock counts; now.")] = None,
    host: Annotated[list[str] | None, typer.Option(help="Roles to be run here: analyzer, mixer.")] = None,
) -> None:
    """Write the federation's file with its plan, keys of the roles run here, and the broker's configuration."""
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.setup.home import Home as Party
    from fedbandit.federation.timing import Timing
    from fedbandit.federation.wire.keys import as_role

    agreed = (
        read_plan(plan)
        if plan is not None
        else Plan(
            silos,
            rounds,
            dim,
            Privacy(epsilon, delta, participations=participations),
            trust=trust,
            mechanism=mechanism,
            schedule=_schedule(schedule),
            cohort=cohort,
        )
    )
    timing = Timing(deadline, settle, settle_last, start=time.time() if start is None else start)
    founding.found(directory, name, agreed, broker, timing)
    roles = host if host is not None else ["analyzer"]
    cards = [Party.create(directory / role, name=role, role=as_role(role)).public for role in roles]
    founded = founding.admit(directory, cards)
    for role in roles:
        founded.save(directory / role / FEDERATION)
    typer.echo(f"{agreed.guarantee}\n")
    typer.echo(
        f"written: {directory}/{FEDERATION} (send it to everybody who is to join), "
        f"{founding.BROKER_CONFIG} (for nats-server), {founding.OPERATOR_KEYS} (keep it)"
    )
    if agreed.protocol.has_mixer and "mixer" not in roles:
        typer.echo("a mixer must join too: another organisation than the analyzer's, for the two must not collude")


@federation.command()
def join(
    home: options.Home,
    file: Annotated[Path, typer.Option("--federation", help="The federation's file.")],
    name: Annotated[str, typer.Option(help="This party's name: letters, digits, - and _.")],
    role: Annotated[str, typer.Option(help="silo, mixer or analyzer.")] = "silo",
    host: Annotated[str, typer.Option(help="Address to serve applications on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve applications on.")] = 8080,
    store: Annotated[str, typer.Option(help="postgresql:// URL; SQLite in the directory by default.")] = "",
    tls_certificate: Annotated[str, typer.Option(help="PEM file, with --tls-key.")] = "",
    tls_key: Annotated[str, typer.Option(help="PEM file, with --tls-certificate.")] = "",
    broker_ca: Annotated[str, typer.Option(help="PEM file of the broker's certificate authority.")] = "",
) -> None:
    """Make this party's directory and keys; prints what to send to whoever founded the federation."""
    from fedbandit.federation.setup.agreement import Agreement
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.setup.home import Home as Party
    from fedbandit.federation.wire.keys import as_role

    joined = Agreement.load(file)
    party = Party.create(
        home,
        name=name,
        role=as_role(role),
        store=store,
        host=host,
        port=port,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        broker_ca=broker_ca,
    )
    joined.save(home / FEDERATION)
    card = home / f"{name}.card.json"
    card.write_text(jsonlib.dumps(party.public.as_dict(), indent=1) + "\n")
    typer.echo(f"{joined.plan.guarantee}\n")
    typer.echo(f"plan {joined.plan.hash[:16]}; send {card} (public keys only) to the founder of {joined.id!r}")


@federation.command()
def admit(
    directory: Annotated[Path, typer.Argument(help="The founder's directory.")],
    cards: Annotated[list[Path], typer.Argument(help="Cards of the parties, as `join` wrote them.")],
) -> None:
    """Add parties by their cards; rewrites the federation's file and the broker's configuration."""
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.wire.keys import PublicKeys

    public = [PublicKeys.from_dict(jsonlib.loads(card.read_text())) for card in cards]
    agreed = founding.admit(directory, public)
    for role in ("analyzer", "mixer"):
        if (directory / role / FEDERATION).exists():
            agreed.save(directory / role / FEDERATION)
    typer.echo(f"fingerprint {agreed.fingerprint}: {len(agreed.silos)} of {agreed.plan.silos} silos")
    try:
        agreed.complete()
        typer.echo(f"complete; send {directory}/{FEDERATION} to every party, and compare the fingerprint")
    except ValueError as error:
        typer.echo(f"not yet: {error}")


@federation.command()
def accept(
    home: options.Home,
    file: Annotated[Path, typer.Argument(help="The complete file of the federation.")],
) -> None:
    """Take the complete file into this party's directory, if its plan is the one that was joined."""
    from fedbandit.federation.setup.agreement import Agreement
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.setup.home import Home as Party

    party, offered = Party.load(home), Agreement.load(file)
    if offered.plan.hash != party.agreement().plan.hash:
        raise ArgumentError(
            "plan", f"must be the one that was joined, {party.agreement().plan.hash[:16]}, got {offered.plan.hash[:16]}"
        )
    offered.complete()
    if offered.party(party.settings.name) != party.public:
        raise ArgumentError("federation", f"must know {party.settings.name!r} by its own keys; it has others")
    offered.save(home / FEDERATION)
    typer.echo(f"fingerprint {offered.fingerprint}: compare it with the others'")


@federation.command()
def provision(
    directory: Annotated[Path, typer.Argument(help="The founder's directory.")],
    replicas: Annotated[int, typer.Option(help="Copies of every stream; 3 on a cluster.")] = 1,
    ca: Annotated[str | None, typer.Option(help="PEM file of the broker's certificate authority.")] = None,
) -> None:
    """Make the streams on the running broker; doing it again changes nothing."""
    from fedbandit.federation.setup import founding

    asyncio.run(founding.provision(directory, ca, replicas))
    typer.echo("streams and consumers are there")


def _schedule(text: str) -> schedules.Schedule:
    kind, _, value = text.partition(":")
    try:
        if kind == "every":
            return schedules.every(int(value))
        if kind == "growing":
            return schedules.growing(float(value))
        if kind == "clock":
            return schedules.clock(float(value))
    except ValueError as error:
        raise ArgumentError("schedule", f"must be {SCHEDULES}, got {text!r} ({error})") from None
    raise ArgumentError("schedule", f"must be {SCHEDULES}, got {text!r}")
