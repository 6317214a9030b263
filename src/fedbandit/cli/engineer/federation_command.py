"""`fedbandit federation`: found a federation, join one, admit others, make its streams."""

from __future__ import annotations

import asyncio
import json as jsonlib
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from fedbandit import _validate
from fedbandit import schedule as schedules
from fedbandit._validate import ArgumentError
from fedbandit.cli import checks, options, output
from fedbandit.cli.engineer import members_command
from fedbandit.cli.engineer.members_command import LEAD, founders, publish
from fedbandit.cli.plan_file import read_plan
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.guarantee import Calibration, Visits

if TYPE_CHECKING:
    from fedbandit.federation.setup.agreement import Agreement

__all__ = ["federation"]

SCHEDULES = "clock:SECONDS, clock:SECONDS:RATIO, or, with public visits, every:N or growing:RATIO"
# Options that a plan's file replaces.
PLANNED = (
    *("silos", "rounds", "dim", "epsilon", "delta", "participations", "apart", "trust", "mechanism"),
    *("calibration", "schedule", "visits", "cohort"),
)
SERVING = ("host", "port", "tls_certificate", "tls_key")
NUMBER = "<float>"  # in the help of an option that is read as text: an error can then say what is wanted
DAY, MOST_DAYS = 86_400.0, 3650.0
federation = typer.Typer(
    help="Found a federation, join one.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
for command in (members_command.admit, members_command.dismiss, members_command.rotate):
    federation.command()(command)
federation.command("new-keys")(members_command.new_keys)


@federation.command()
def init(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="A new directory for the files of the federation and the broker.")],
    name: Annotated[str, typer.Option(help="Name of the federation: letters, digits, - and _.")],
    plan: Annotated[Path | None, typer.Option(help="A plan's file, JSON or TOML; otherwise the options below.")] = None,
    silos: options.Silos = 3,
    rounds: Annotated[int, typer.Option(help="T: periods of the clock, or decisions of every silo.")] = 365,
    dim: options.Dim = 10,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    participations: options.Participations = 1,
    apart: options.Apart = 0,
    trust: Annotated[str, typer.Option(help="Who must not see what: silo, secure-sum, ...")] = "secure-sum",
    mechanism: Annotated[str, typer.Option(help="toeplitz, blt, tree, batches, ...")] = "toeplitz",
    calibration: Annotated[str, typer.Option(help="exact, or paper: the noise of the paper's theorem.")] = "exact",
    schedule: Annotated[str, typer.Option(help=f"When silos synchronise: {SCHEDULES}.")] = "clock:86400:1.1",
    visits: Annotated[
        str, typer.Option(help="With public, it is not hidden whether, when and how often somebody asks.")
    ] = "private",
    cohort: Annotated[int | None, typer.Option(help="Fewest silos in a sync; all by default.")] = None,
    broker: Annotated[
        str, typer.Option(help="URL of the NATS server, or the URLs of its nodes, separated by commas.")
    ] = "nats://127.0.0.1:4222",
    broker_home: Annotated[
        Path | None,
        typer.Option(help="Where the broker or each node will keep its files; by default where they are written."),
    ] = None,
    deadline: Annotated[float, typer.Option(help="Seconds a sync stays open after its first release.")] = 3600.0,
    settle: Annotated[float, typer.Option(help="Seconds a batch stays open after its tick.")] = 0.0,
    settle_last: Annotated[float, typer.Option(help="The same for the last batch of the term.")] = 0.0,
    start: Annotated[
        str | None,
        typer.Option(
            metavar=NUMBER, help="Unix time at which the clock begins; by default a day after all have joined."
        ),
    ] = None,
    reward_window: Annotated[float, typer.Option(help="Seconds that a decision waits for its reward.")] = 7_776_000.0,
    host: Annotated[list[str] | None, typer.Option(help="Roles to run here: analyzer, mixer.")] = None,
    broker_ca: options.BrokerCa = "",
) -> None:
    """Write the federation's file with its plan, the keys of the roles run here, and the broker's configuration."""
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.agreement import check_broker, check_trust
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.setup.home import Home as Party
    from fedbandit.federation.timing import Timing
    from fedbandit.federation.wire.keys import as_role

    if plan is not None:
        checks.no_effect(context, PLANNED, "with --plan, whose file sets it")
        agreed = read_plan(plan)
    else:
        check_trust(trust)
        agreed = Plan(
            silos,
            rounds,
            dim,
            Privacy(epsilon, delta, participations=participations, apart=apart),
            trust=trust,
            mechanism=mechanism,
            schedule=_schedule(schedule),
            calibration=_validate.one_of("calibration", calibration, get_args(Calibration)),
            cohort=cohort,
            visits=_validate.one_of("visits", visits, get_args(Visits)),
        )
        if visits == "public" and isinstance(agreed.schedule, schedules.Clock):
            raise ArgumentError("--visits", "has no effect with a clock, which does not count who asks")
    directory = directory.resolve()  # the broker may read its configuration from any folder
    check_broker(broker)
    roles, ca = _hosted(host, agreed), checks.broker_ca(broker_ca, broker)
    timing = Timing(deadline, settle, settle_last, _begins(start, agreed), reward_window)
    with checks.writing("directory", directory):
        founding.found(directory, name, agreed, broker, timing, _absolute(broker_home))
    cards = [Party.create(directory / role, name=role, role=as_role(role), broker_ca=ca).public for role in roles]
    founded = founding.admit(directory, cards)
    for role in roles:
        founded.save(directory / role / FEDERATION)
    output.say(f"{agreed.guarantee}\n")
    output.say(
        f"written: {directory}/{FEDERATION} (send it to everybody who is to join), "
        f"{_configured(directory, founded)} (for nats-server), {founding.OPERATOR_KEYS} (keep it secret)"
    )
    if broker.startswith("tls://"):
        output.say(_certificates(broker, broker_home))
    if agreed.protocol.has_mixer and "mixer" not in roles:
        output.say("a mixer must join too, run by another organisation than the analyzer: the two must not collude")


@federation.command()
def join(
    context: typer.Context,
    home: options.Home,
    file: Annotated[Path, typer.Option("--federation", help="The federation's file.")],
    name: Annotated[str, typer.Option(help="This party's name: letters, digits, - and _.")],
    role: Annotated[str, typer.Option(help="silo, mixer or analyzer.")] = "silo",
    host: Annotated[str, typer.Option(help="Address to serve applications on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve applications on.")] = 8080,
    health_port: Annotated[
        int, typer.Option(help="Port on which a mixer or an analyzer says how it is; 0 for none.")
    ] = 0,
    store: Annotated[str, typer.Option(help="postgresql:// URL; SQLite in the directory by default.")] = "",
    tls_certificate: Annotated[str, typer.Option(help="PEM file, with --tls-key.")] = "",
    tls_key: Annotated[str, typer.Option(help="PEM file, with --tls-certificate.")] = "",
    broker_ca: options.BrokerCa = "",
) -> None:
    """Make this party's directory and keys, and print what to send to the federation's founder."""
    from fedbandit.federation.setup.agreement import Agreement
    from fedbandit.federation.setup.certificates import check_pair
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.setup.home import Home as Party
    from fedbandit.federation.wire.keys import as_role

    if as_role(role) != "silo":
        serving = ("port",) if health_port else SERVING
        checks.no_effect(context, serving, f"for the role {role!r}: only a silo serves applications")
    joined = Agreement.load(checks.readable("federation", file))
    if role == "mixer":
        _check_mixer("role", joined.plan)
    if tls_certificate and tls_key:
        check_pair(tls_certificate, tls_key)
    ca = checks.broker_ca(broker_ca, joined.broker)
    with checks.writing("home", home):
        party = Party.create(
            home,
            name=name,
            role=as_role(role),
            store=store if "://" in store else options.absolute(store),
            host=host,
            port=port,
            health_port=health_port,
            tls_certificate=options.absolute(tls_certificate),
            tls_key=options.absolute(tls_key),
            broker_ca=ca,
        )
    joined.save(home / FEDERATION)
    card = home / f"{name}.card.json"
    card.write_text(jsonlib.dumps(party.public.as_dict(), indent=1) + "\n")
    output.say(f"{joined.plan.guarantee}\n")
    output.say(f"plan {joined.plan.hash[:16]}; send {card} (public keys only) to the founder of {joined.id!r}")


@federation.command()
def renew(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="The founder's directory.")],
    plan: Annotated[Path, typer.Option(help="The new term's plan, JSON or TOML; it must differ from the last.")],
    start: Annotated[
        str | None, typer.Option(metavar=NUMBER, help="Unix time at which its clock begins [in a day].")
    ] = None,
    replace_card: Annotated[
        list[Path] | None, typer.Option("--replace", help="Card with the new keys of a member that has lost its own.")
    ] = None,
    new_ledger: Annotated[
        list[str] | None,
        typer.Option("--new-ledger", metavar="NAME", help="A silo that has lost its ledger and begins another one."),
    ] = None,
    new_operator_key: Annotated[
        bool, typer.Option("--new-operator-key", help="The operator's key is lost: make a new one.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="Directory of an analyzer or silo that has the last model; else the analyzer run here."),
    ] = None,
    weight: Annotated[
        float, typer.Option(help="Weight of what the last term has learnt; below 1 if the world has changed.")
    ] = 1.0,
    from_nothing: Annotated[bool, typer.Option("--from-nothing", help="Forget what the last term has learnt.")] = False,
) -> None:
    """Begin a new term with the same members, and with what the last term has learnt.

    This writes a new federation file, for everybody to accept.
    """
    from fedbandit.federation.setup import founding, register
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.wire.keys import PartyKeys, PublicKeys

    if from_nothing:
        checks.no_effect(context, ("model", "weight"), "with --from-nothing")
    directory, offered = founders(directory, key=not new_operator_key), read_plan(plan)
    cards = [PublicKeys.load(checks.readable("replace", card)) for card in replace_card or []]
    roll = founding.roll_of(directory)
    last, following = roll.newest, roll.next_term(cards, _silos(directory, new_ledger or []))
    if offered.hash == last.plan.hash:
        raise ArgumentError("plan", "must differ from the last term's, by its rounds for example: a term is run once")
    begins = _begins(start, offered)
    learnt = "it begins from nothing" if from_nothing else ""
    if not from_nothing:
        known = model or directory / "analyzer"
        begun, learnt = _continued(last.plan, offered, known, weight, asked=model is not None)
        if begun is offered:
            checks.no_effect(context, ("weight",), "where the last term has no model yet")
        offered = begun
    agreed = replace(following, plan=offered, timing=replace(last.timing, start=begins))
    agreed.complete()
    checked = not new_operator_key and register.check_newest(directory)
    if not agreed.signer and (directory / founding.OPERATOR_KEYS).exists():  # founded by an earlier version
        keys = founding.operators_keys(PartyKeys.load(directory / founding.OPERATOR_KEYS))
        agreed = replace(agreed, signer=keys.signer)
    if new_operator_key:
        keys = founding.new_operator(directory)
        agreed = replace(agreed, operator=keys.broker, signer=keys.signer)
    publish(directory, agreed)
    output.say(f"{offered.guarantee}\n")
    output.say(f"the new term: {learnt}")
    members_command.say_new_ledgers(agreed, roll.charter)
    output.say(
        f"fingerprint {agreed.fingerprint}; every party: `fedbandit federation accept HOME {FEDERATION} --new-term`, "
        "and every silo, when the last term is over: `fedbandit silo serve HOME --new-term`"
    )
    if not checked:
        output.say(
            f"the broker at {agreed.broker} was not asked, or has not answered, so it is unknown whether this directory"
            " has the newest members: compare the members in this file with those of the last term"
        )


def _silos(directory: Path, names: list[str]) -> list[str]:
    """The names, if they are of silos that have been members, as far as the founder's directory says."""
    from fedbandit.federation.setup.home import FEDERATION, rolls_of

    lists = [roll.newest for roll in rolls_of(directory / FEDERATION)]
    known = {silo for members in lists for silo in (*(members.seats or members.silos), *members.ledgers)}
    if unknown := [name for name in names if name not in known]:
        raise ArgumentError("--new-ledger", f"must name a silo, of this term or an earlier one, got {unknown[0]!r}")
    return names


def _continued(last: Plan, offered: Plan, model: Path, weight: float, *, asked: bool) -> tuple[Plan, str]:
    """The plan that begins with what the last term has learnt, and a sentence that says so.

    `asked` means that the user has named the directory of the model.
    """
    from fedbandit.federation import renewal
    from fedbandit.federation.setup.home import SETTINGS
    from fedbandit.federation.setup.home import Home as Party

    if not asked and not (model / SETTINGS).exists():
        raise ArgumentError(
            "--model", "must name the directory of an analyzer or silo that has the last model; or give --from-nothing"
        )
    home = Party.load(model)
    if home.agreement().plan.hash != last.hash:
        raise ArgumentError("--model", f"must be the directory of a party of the last term; {model} has another plan")
    found = renewal.newest(home)
    if found is None and last.prior is not None:  # the last term made no model, for example because of a mistake in it
        return renewal.begun_again(last, offered, last.prior, weight), "it begins with what the last one began with"
    if found is None and asked:
        raise ArgumentError("--model", f"must have a model, and {model} has none; or give --from-nothing")
    if found is None:
        return offered, "the last one has no model yet, so it begins from nothing"
    sync, outcome = found
    more = (
        "" if sync + 1 == len(last.times) else f"; that term has {len(last.times)}, and what is still to come is lost"
    )
    return renewal.begun_from(last, offered, sync, outcome, weight), f"it begins with model {sync + 1}{more}"


@federation.command()
def accept(
    home: options.Home,
    file: Annotated[Path, typer.Argument(help="The complete file of the federation, or the file of its members.")],
    new_term: Annotated[
        bool, typer.Option("--new-term", help="Accept the plan of a new term instead of the one that was joined.")
    ] = False,
    end_term: Annotated[
        bool, typer.Option("--end-term", help="End a silo's running term now, before its last release.")
    ] = False,
) -> None:
    """Copy the federation's complete file into this party's directory, if its plan is the one that was joined.

    Or copy new editions of the members, if they continue those that are there.
    """
    from fedbandit.federation import renewal
    from fedbandit.federation.setup.agreement import Agreement
    from fedbandit.federation.setup.home import FEDERATION, MEMBERS, put_aside
    from fedbandit.federation.setup.home import Home as Party

    if end_term and not new_term:
        raise ArgumentError("--end-term", "has no effect without --new-term")
    with _validate.reading(str(file)):
        is_list = isinstance(jsonlib.loads(checks.readable("file", file).read_bytes()), list)
    if is_list:
        if new_term:
            raise ArgumentError("--new-term", "has no effect on editions of the members, which belong to one term")
        members_command.accept_members(home, file)
        return
    party, offered = Party.load(home), Agreement.load(file)
    last = party.agreement()
    joined = last.plan.hash
    if offered.plan.hash != joined and not new_term:
        raise ArgumentError("plan", f"must be the one that was joined, {joined[:16]}, got {offered.plan.hash[:16]}")
    if offered.plan.hash == joined and new_term:
        raise ArgumentError("--new-term", f"has no effect: the file has the plan that was joined, {joined[:16]}")
    offered.complete()
    offered.check_keys()
    name, role = party.settings.name, party.settings.role
    own = [keys.public(name, role) for keys in (party.keys, *party.later_keys())]
    if offered.party(name) not in own:
        raise ArgumentError("federation", f"must know {name!r} by its own keys; it has others")
    renewal.check_follows(party, offered)
    if new_term:
        renewal.check_accepts(party, offered.plan, end=end_term)
    put_aside(home, offered)
    offered.save(home / FEDERATION)
    if new_term:
        (home / MEMBERS).unlink(missing_ok=True)  # editions belong to one term, and continue its file
        output.say(f"{offered.plan.guarantee}\n")
        members_command.say_new_ledgers(offered, last)
    output.say(f"fingerprint {offered.fingerprint}: compare it with the others'")


@federation.command()
def provision(
    directory: Annotated[Path, typer.Argument(help="The founder's directory.")],
    replicas: Annotated[
        int | None, typer.Option(help="Copies of every stream; by default 3 on a cluster of three nodes or more.")
    ] = None,
    keep_days: Annotated[float, typer.Option(help="Days that the broker keeps a message.")] = 30.0,
    broker_ca: options.BrokerCa = "",
) -> None:
    """Make the streams on the running broker; running it again changes nothing."""
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.agreement import Agreement
    from fedbandit.federation.setup.home import FEDERATION

    directory = founders(directory)
    if replicas is not None:
        _validate.count("replicas", replicas)
    _validate.within("keep_days", keep_days, 0, MOST_DAYS)
    ca = checks.broker_ca(broker_ca, Agreement.load(directory / FEDERATION).broker)
    output.quiet()
    kept_days = asyncio.run(founding.provision(directory, ca or None, replicas, keep_days * DAY)) / DAY
    output.say("streams and consumers are there")
    if kept_days > keep_days:
        output.say(f"messages are kept for {kept_days:g} days as before, not {keep_days:g}: it can only become longer")


def _configured(directory: Path, agreed: Agreement) -> str:
    from fedbandit.federation.setup import founding

    return ", ".join(str(file.relative_to(directory)) for file in founding.configurations(directory, agreed))


def _certificates(broker: str, home: Path | None) -> str:
    """What each node of the broker needs beside its configuration. Nodes of a cluster verify each other."""
    place = "beside its configuration" if home is None else f"in {home}"
    if "," not in broker:
        return f"the broker needs a certificate and its key {place}: broker.crt and broker.pem"
    authority = "broker-ca.crt, the certificate of the authority that signed all of them"
    return f"each node needs a certificate and its key {place}, broker.crt and broker.pem, and {authority}"


def _absolute(path: Path | None) -> Path | None:
    """A path on the broker's machine: it must be absolute, because it cannot be resolved here."""
    if path is not None and not path.is_absolute():
        raise ArgumentError("broker_home", f"must be an absolute path on the broker's machine, got {path}")
    return path


def _hosted(host: list[str] | None, plan: Plan) -> list[str]:
    """The roles that are run here: each only once, and only if the plan has it."""
    roles = host if host is not None else ["analyzer"]
    for role in roles:
        _validate.one_of("host", role, ("analyzer", "mixer"))
        if roles.count(role) > 1:
            raise ArgumentError("host", f"must name each role once, got {role!r} twice")
    if "mixer" in roles:
        _check_mixer("host", plan)
    return roles


def _check_mixer(field: str, plan: Plan) -> None:
    if not plan.protocol.has_mixer:
        raise ArgumentError(field, f"must not be 'mixer': trust {plan.trust!r} has none")


def _begins(start: str | None, plan: Plan) -> float:
    """When the clock begins to count: as asked, or in a day. A time that is long past must be a mistake."""
    now = time.time()
    if start is None:
        return now + LEAD
    if not isinstance(plan.schedule, schedules.Clock):
        raise ArgumentError("--start", f"has no effect with {plan.schedule}, which counts decisions")
    try:
        begins = float(start)
    except ValueError:
        raise ArgumentError("start", f"must be a unix time, in seconds (now is {now:.0f}), got {start!r}") from None
    if begins < now - LEAD:
        raise ArgumentError("start", f"must be a unix time, not more than a day ago (now is {now:.0f}), got {begins:g}")
    return begins


def _schedule(text: str) -> schedules.Schedule:
    kind, _, value = text.partition(":")
    try:
        if kind == "every":
            return schedules.every(int(value))
        if kind == "growing":
            return schedules.growing(float(value))
        if kind == "clock":
            period, _, ratio = value.partition(":")
            return schedules.clock(float(period), float(ratio or 1))
    except ArgumentError:
        raise
    except ValueError as error:
        raise ArgumentError("schedule", f"must be {SCHEDULES}, got {text!r} ({error})") from None
    raise ArgumentError("schedule", f"must be {SCHEDULES}, got {text!r}")
