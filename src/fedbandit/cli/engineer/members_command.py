"""`fedbandit federation`: who is a member. Admit, dismiss, give new keys, and accept what the operator has signed."""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit import schedule as schedules
from fedbandit._validate import ArgumentError
from fedbandit.cli import checks, options, output

if TYPE_CHECKING:
    from fedbandit.federation.setup.agreement import Agreement
    from fedbandit.federation.setup.roll import Roll

__all__ = ["LEAD", "accept_members", "admit", "dismiss", "founders", "new_keys", "publish", "rotate"]

LEAD = 86_400.0  # seconds from the founding, or from the last party's admission, until the clock begins to count
NOTICE = 60.0  # seconds: by default, a change holds from the first sync that is further away than this
Founder = Annotated[Path, typer.Argument(help="The founder's directory.")]
FromSync = Annotated[
    int | None, typer.Option(help="The first sync it holds for; by default the first that is over a minute away.")
]


def admit(
    directory: Founder,
    cards: Annotated[list[Path], typer.Argument(help="Cards of the parties, as `join` wrote them.")],
    from_sync: Annotated[
        int | None, typer.Option(help="In a running term: the silos are members from this sync on, on free seats.")
    ] = None,
) -> None:
    """Add parties by their cards, and rewrite the broker's configuration.

    Before the term begins, they are added to the federation's file; later, by a signed edition of the members.
    """
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.editions import Edition
    from fedbandit.federation.setup.home import FEDERATION
    from fedbandit.federation.wire.keys import PublicKeys

    public = [PublicKeys.load(checks.readable("cards", card)) for card in cards]
    directory = founders(directory)
    if from_sync is not None:
        _check_to_come(founding.roll_of(directory).newest, from_sync)
        for card in public:
            edition = Edition(1, "", from_sync, "admit", card.name, card)
            roll = _signed(directory, lambda: founding.change(directory, edition))  # noqa: B023 (called at once)
        _told(directory, roll)
        return
    roll = founding.roll_of(directory)
    if (_runs(roll.newest) or roll.number) and any(card not in roll.newest.parties for card in public):
        begun = "the term has begun" if _runs(roll.newest) else "there are editions of the members"
        raise ArgumentError("--from-sync", f"must be given: {begun}, so a new member joins from a certain sync on")
    if roll.number:
        founding.configure(directory, roll.newest)
        output.say("they are all members already; the broker's configuration was written again")
        return
    agreed = founding.admit(directory, public)
    try:
        agreed.complete()
        agreed = _not_yet_begun(agreed)
        free = agreed.plan.silos - len(agreed.silos)
        seats = f" ({free} seats are free, for now or for later)" if free else ""
        news = f"complete{seats}; send {directory}/{FEDERATION} to every party, and compare the fingerprint"
    except ValueError as error:
        news = f"not yet: {error}"
    publish(directory, agreed)
    output.say(f"fingerprint {agreed.fingerprint}: {len(agreed.silos)} of {agreed.plan.silos} silos")
    output.say(news)


def dismiss(
    directory: Founder,
    name: Annotated[str, typer.Argument(help="The silo that leaves.")],
    from_sync: FromSync = None,
) -> None:
    """Remove a silo: it no longer counts from a sync on, and the broker no longer lets it in."""
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.editions import Edition

    directory = founders(directory)
    begins = _from_sync(founding.roll_of(directory), from_sync)
    edition = Edition(1, "", begins, "dismiss", name)
    _told(directory, _signed(directory, lambda: founding.change(directory, edition)))


def rotate(
    directory: Founder,
    card: Annotated[Path | None, typer.Argument(help="Card with a member's new keys, as `new-keys` wrote it.")] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="New keys for the operator instead; the old one signs them.")
    ] = False,
    from_sync: FromSync = None,
) -> None:
    """Give a member, or the operator, new keys from a sync on."""
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.editions import Edition
    from fedbandit.federation.wire.keys import PublicKeys

    if operator == (card is not None):
        raise ArgumentError("card", "must be given, or else --operator, but not both")
    directory = founders(directory)
    begins = _from_sync(founding.roll_of(directory), from_sync)
    if card is None:
        _told(directory, _signed(directory, lambda: founding.rotate_operator(directory, begins)))
        return
    party = PublicKeys.load(checks.readable("card", card))
    edition = Edition(1, "", begins, "rotate", party.name, party)
    _told(directory, _signed(directory, lambda: founding.change(directory, edition)))


def new_keys(home: options.Home) -> None:
    """Make new keys for this party, and the card to send to the operator.

    The old keys stay in use until the operator has signed the new ones. The secret with which a silo hashes its users'
    keys never changes.
    """
    from fedbandit.federation.setup.home import Home as Party

    party = Party.load(home)
    party.party()  # fails if the federation does not know this party's keys: then there is nothing to replace
    public = party.new_keys()
    card = home / f"{public.name}.card.json"
    card.write_text(jsonlib.dumps(public.as_dict(), indent=1) + "\n")
    output.say(f"send {card} (public keys only) to the operator, take a new backup, and leave this party running")


def accept_members(home: Path, file: Path) -> None:
    """Copy editions of the members into a party's directory, if they continue the federation's file without a gap.

    A running party reads them within a second.
    """
    from fedbandit.federation.setup.home import MEMBERS
    from fedbandit.federation.setup.home import Home as Party
    from fedbandit.federation.setup.party import Party as Member
    from fedbandit.federation.setup.roll import Roll, read_editions, write_editions

    party = Party.load(home)
    known, offered = read_editions(home / MEMBERS), read_editions(file)
    roll = Roll(party.agreement(), known)
    for edition in offered:
        roll.take(edition)
    if len(offered) < len(known):
        raise ArgumentError("members", f"must be newer than edition {len(known)}, which is here; got {len(offered)}")
    Member.member(
        party.agreement(), party.keys, party.settings.name, party.settings.role, party.later_keys(), roll.editions
    )
    write_editions(home / MEMBERS, roll.editions)
    output.say(f"edition {roll.number}: {len(roll.newest.silos)} of {roll.newest.plan.silos} silos")


def founders(directory: Path, *, key: bool = True) -> Path:
    """The founder's directory, checked; unless `key` is False, it must hold the operator's key."""
    from fedbandit.federation.setup.founding import OPERATOR_KEYS
    from fedbandit.federation.setup.home import FEDERATION, SETTINGS
    from fedbandit.federation.wire.keys import PartyKeys

    if (directory / SETTINGS).exists():
        raise ArgumentError("directory", f"must be the founder's, and {directory} is a party's: it has a {SETTINGS}")
    if not (directory / FEDERATION).is_file():
        made = "name the one that `fedbandit federation init` made"
        raise ArgumentError("directory", f"must be the founder's, and {directory} has no {FEDERATION}: {made}")
    if key and not (directory / OPERATOR_KEYS).exists():
        do = "put it back from a backup, or begin the next term with another one (`renew --new-operator-key`)"
        raise ArgumentError("directory", f"has no {directory / OPERATOR_KEYS}: {do}")
    if key:
        PartyKeys.load(directory / OPERATOR_KEYS)
    return directory.resolve()


def publish(directory: Path, agreed: Agreement) -> None:
    """Write the agreement into the founder's directory, and into those of the roles run here."""
    from fedbandit.federation.setup import founding
    from fedbandit.federation.setup.home import FEDERATION, MEMBERS, put_aside

    founding.save(directory, agreed)
    for role in ("analyzer", "mixer"):
        if (directory / role / FEDERATION).exists():
            put_aside(directory / role, agreed)
            agreed.save(directory / role / FEDERATION)
            (directory / role / MEMBERS).unlink(missing_ok=True)


def say_new_ledgers(agreed: Agreement, last: Agreement) -> None:
    """Say which silos may begin a new ledger: nobody else tells people that what was spent before is not in it."""
    if silos := [silo for silo, ledger in agreed.ledgers.items() if ledger.since > last.term]:
        output.say(
            f"{', '.join(silos)} may begin a new ledger, and nobody compares it with the old one: what the old one says"
            " was spent must be added by hand"
        )


def _signed(directory: Path, sign: Callable[[], Roll]) -> Roll:
    """Sign an edition and register it with the broker, unless the broker knows one that is missing here."""
    from fedbandit.federation.setup import register

    answered = register.check_newest(directory)
    roll = sign()
    if not (answered and register.note_newest(directory)):
        output.say(
            f"the broker at {roll.newest.broker} has not answered, so it is unknown whether edition {roll.number} was"
            " also signed from another copy of this directory, which would end the term"
        )
    return roll


def _told(directory: Path, roll: Roll) -> None:
    """Print what was done, and what to do next."""
    from fedbandit.federation.setup.home import FEDERATION, MEMBERS

    edition = roll.editions[-1]
    output.say(
        f"edition {edition.number}, from sync {edition.from_sync} on: {edition.change} {edition.name or 'the new key'};"
        f" {len(roll.newest.silos)} of {roll.newest.plan.silos} silos"
    )
    when = f"once sync {edition.from_sync - 1} is over, " if edition.change == "dismiss" and edition.from_sync else ""
    output.say(
        f"{when}reload the broker twice (`nats-server --signal reload=PID`): it serves a new account only after the"
        f" second time; then run `fedbandit federation provision {directory}`"
    )
    passed = (directory / "analyzer" / FEDERATION).exists()
    to = [] if passed else ["the analyzer's operator"]
    to += [f"the new member {edition.name}"] if edition.change == "admit" else []
    if passed:
        output.say("the analyzer that is run here passes the edition on to the members")
    if to:
        output.say(
            f"send {directory / MEMBERS} to {' and '.join(to)}, to be taken in with"
            f" `fedbandit federation accept HOME {MEMBERS}`"
        )


def _runs(agreed: Agreement) -> bool:
    """Whether a federation is complete and its term has begun."""
    try:
        agreed.complete()
    except ValueError:
        return False
    return agreed.timing.start is not None and agreed.timing.start <= time.time()


def _from_sync(roll: Roll, asked: int | None) -> int:
    """The sync from which a change holds: as asked, or the first that leaves everybody time to hear of it."""
    agreed = roll.newest
    plan, schedule, start = agreed.plan, agreed.plan.schedule, agreed.timing.start
    if asked is not None:
        _check_to_come(agreed, asked)
        return asked
    if not isinstance(schedule, schedules.Clock) or start is None:
        raise ArgumentError("--from-sync", f"must be given with {schedule}, whose syncs have no public time")
    soon = time.time() + NOTICE
    for sync, periods in enumerate(plan.ticks):
        if start + periods * schedule.period > soon:
            return sync
    raise ArgumentError("--from-sync", "has no sync left to name: the term ends before anybody could hear of it")


def _check_to_come(agreed: Agreement, sync: int) -> None:
    """Refuse a change from a sync that has begun: its releases are on their way, for the old members and keys."""
    schedule, start = agreed.plan.schedule, agreed.timing.start
    if not isinstance(schedule, schedules.Clock) or start is None or not 0 <= sync < len(agreed.plan.ticks):
        return
    if (begins := start + agreed.plan.ticks[sync] * schedule.period) <= time.time():
        raise ArgumentError(
            "--from-sync",
            f"must be a sync to come; sync {sync} was at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(begins))} UTC",
        )


def _not_yet_begun(agreed: Agreement) -> Agreement:
    """The agreement, with its clock set to begin later if it began before everybody had joined.

    Otherwise the releases of a silo that was not there yet would be drawn empty.
    """
    begins = agreed.timing.start
    if begins is not None and begins > time.time():
        return agreed
    return replace(agreed, timing=replace(agreed.timing, start=time.time() + LEAD))
