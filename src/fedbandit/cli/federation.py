"""`fedbandit federation`, `silo`, `mixer`, `analyzer`, `status`: set up and run a live federation."""

from __future__ import annotations

import asyncio
import json as jsonlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit import schedule as schedules
from fedbandit.cli import options, output
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy

Home = Annotated[Path, typer.Argument(help="The party's own directory.")]
HELP = {"no_args_is_help": True, "rich_markup_mode": None}
federation = typer.Typer(help="Found a federation, join one.", **HELP)  # type: ignore[arg-type]
silo = typer.Typer(help="A silo: serves its own applications.", **HELP)  # type: ignore[arg-type]
mixer = typer.Typer(help="The mixer: adds or shuffles what it cannot read.", **HELP)  # type: ignore[arg-type]
analyzer = typer.Typer(help="The analyzer: decodes rounds, sends models.", **HELP)  # type: ignore[arg-type]


def mount(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.add_typer(federation, name="federation")
    app.add_typer(silo, name="silo")
    app.add_typer(mixer, name="mixer")
    app.add_typer(analyzer, name="analyzer")
    app.command()(status)


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
    cohort: Annotated[int | None, typer.Option(help="Fewest silos in a round; all by default.")] = None,
    broker: Annotated[str, typer.Option(help="URL of the NATS server or cluster.")] = "nats://127.0.0.1:4222",
    deadline: Annotated[float, typer.Option(help="Seconds a round stays open after its first release.")] = 3600.0,
    settle: Annotated[float, typer.Option(help="Seconds a batch stays open after its tick.")] = 0.0,
    settle_last: Annotated[float, typer.Option(help="The same for the last batch of the term.")] = 0.0,
    start: Annotated[float | None, typer.Option(help="Unix time from which a clock counts; now.")] = None,
    host: Annotated[list[str] | None, typer.Option(help="Roles to be run here: analyzer, mixer.")] = None,
) -> None:
    """Write the federation's file with its plan, keys of the roles run here, and the broker's configuration."""
    from fedbandit.federation import founding
    from fedbandit.federation.home import FEDERATION
    from fedbandit.federation.home import Home as Party

    agreed = (
        _read_plan(plan)
        if plan is not None
        else _plan(
            silos,
            rounds,
            dim,
            Privacy(epsilon, delta, participations=participations),
            trust,
            mechanism,
            schedule,
            cohort,
        )
    )
    begin = time.time() if start is None else start
    founding.found(
        directory,
        name,
        agreed,
        broker_url=broker,
        deadline=deadline,
        settle=settle,
        settle_last=settle_last,
        start=begin,
    )
    roles = host if host is not None else ["analyzer"]
    cards = [Party.create(directory / role, name=role, role=role).public for role in roles]
    founded = founding.admit(directory, cards)
    for role in roles:
        founded.save(directory / role / FEDERATION)
    typer.echo(f"{agreed.guarantee}\n")
    typer.echo(
        f"written: {directory}/{FEDERATION} (send it to everybody who is to join), "
        f"{founding.BROKER_CONFIG} (for nats-server), {founding.OPERATOR_KEYS} (keep it)"
    )
    if founded.has_mixer and "mixer" not in roles:
        typer.echo("a mixer must join too: another organisation than the analyzer's, for the two must not collude")


@federation.command()
def join(
    home: Home,
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
    from fedbandit.federation.consortium import Federation
    from fedbandit.federation.home import FEDERATION
    from fedbandit.federation.home import Home as Party

    joined = Federation.load(file)
    party = Party.create(
        home,
        name=name,
        role=role,
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
    from fedbandit.federation import founding
    from fedbandit.federation.home import FEDERATION
    from fedbandit.federation.keys import PublicKeys

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
    home: Home,
    file: Annotated[Path, typer.Argument(help="The complete file of the federation.")],
) -> None:
    """Take the complete file into this party's directory, if its plan is the one that was joined."""
    from fedbandit.federation.consortium import Federation
    from fedbandit.federation.home import FEDERATION
    from fedbandit.federation.home import Home as Party

    party, offered = Party.load(home), Federation.load(file)
    if offered.plan.hash != party.federation().plan.hash:
        raise ValueError(
            f"plan must be the one that was joined, {party.federation().plan.hash[:16]}, got {offered.plan.hash[:16]}"
        )
    offered.complete()
    if offered.party(party.settings.name) != party.public:
        raise ValueError(f"federation must know {party.settings.name!r} by its own keys; it has others")
    offered.save(home / FEDERATION)
    typer.echo(f"fingerprint {offered.fingerprint}: compare it with the others'")


@federation.command()
def provision(
    directory: Annotated[Path, typer.Argument(help="The founder's directory.")],
    replicas: Annotated[int, typer.Option(help="Copies of every stream; 3 on a cluster.")] = 1,
    ca: Annotated[str | None, typer.Option(help="PEM file of the broker's certificate authority.")] = None,
) -> None:
    """Make the streams on the running broker; doing it again changes nothing."""
    from fedbandit.federation import founding

    asyncio.run(founding.provision(directory, ca, replicas))
    typer.echo("streams and consumers are there")


@silo.command()
def serve(
    home: Home,
    workers: Annotated[int, typer.Option(help="Processes; more than one needs PostgreSQL.")] = 1,
    new_term: Annotated[bool, typer.Option(help="Begin a new term under a new plan.")] = False,
) -> None:
    """Serve this silo's applications over HTTP and take part in the federation."""
    from fedbandit.federation.workers import serve as run_workers

    _exit(run_workers(home, workers, new_term))


@mixer.command("run")
def run_mixer(home: Home) -> None:
    """Run the mixer."""
    _exit(_run(home, "mixer"))


@analyzer.command("run")
def run_analyzer(home: Home) -> None:
    """Run the analyzer."""
    _exit(_run(home, "analyzer"))


def status(home: Home, json: options.Json = False) -> None:
    """Rounds, silos and budget of the party of a directory, whether it runs or not."""
    from fedbandit.federation.status import status as read

    known = read(home)
    if json:
        output.print_json(known)
    else:
        output.print_table(f"{known['role']} {known['party']}", ["", ""], [[k, _text(v)] for k, v in known.items()])


def _run(home: Path, role: str) -> int:
    from fedbandit.federation.home import Home as Party
    from fedbandit.federation.running import run

    if Party.load(home).settings.role != role:
        raise ValueError(f"home must be the directory of a {role}, got that of a {Party.load(home).settings.role}")
    return run(home)


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def _read_plan(path: Path) -> Plan:
    try:
        data = jsonlib.loads(path.read_text())
    except jsonlib.JSONDecodeError as error:
        raise ValueError(f"plan must be JSON: {path}: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"plan must be one JSON object: {path}")
    return Plan.from_dict(data)


def _plan(
    silos: int, rounds: int, dim: int, privacy: Privacy, trust: str, mechanism: str, schedule: str, cohort: int | None
) -> Plan:
    return Plan(
        silos, rounds, dim, privacy, trust=trust, mechanism=mechanism, schedule=_schedule(schedule), cohort=cohort
    )


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
        raise ValueError(f"schedule must be every:N, growing:RATIO or clock:SECONDS, got {text!r} ({error})") from None
    raise ValueError(f"schedule must be every:N, growing:RATIO or clock:SECONDS, got {text!r}")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return output.number(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
