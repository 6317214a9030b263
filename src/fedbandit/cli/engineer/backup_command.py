"""`fedbandit backup` and `fedbandit restore`: save a party in one file, put it back, and say what was lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit._words import counted, spans
from fedbandit.cli import checks, options, output
from fedbandit.privacy.budget import at_most

if TYPE_CHECKING:
    from fedbandit.federation.backup.archive import Manifest
    from fedbandit.federation.backup.restoring import Forwarded
    from fedbandit.federation.recovery import Recovery
    from fedbandit.federation.setup.agreement import Agreement

__all__ = ["backup", "restore"]

NOT_FORWARD = 1  # exit code: restored, but still to be brought forward
ASKING = ("patience", "broker_ca")  # options for asking the other parties
STORING = ("store", "without_store", "offline")  # options that only make sense if there is a store
PassphraseFile = Annotated[Path | None, typer.Option(help="File whose first line is the passphrase.")]


def backup(
    context: typer.Context,
    home: Annotated[Path, typer.Argument(help="The directory of a party (running or not) or of the founder.")],
    file: Annotated[Path, typer.Argument(help="The new file; it holds private keys.")],
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Ask for a passphrase and seal the file.")] = False,
    passphrase_file: PassphraseFile = None,
    without_raw: Annotated[
        bool, typer.Option("--without-raw", help="For a silo: leave out rewards that wait for their release.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Save a party (its keys and its store) in one file. The party may be running."""
    from fedbandit.federation.backup.saving import save

    passphrase = None
    if passphrase_file is not None:
        checks.no_effect(context, ("encrypt",), "with --passphrase-file, which seals it already")
        passphrase = _from_file(passphrase_file)
    elif encrypt:
        passphrase = str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)).encode()
    saved = save(home, file, passphrase=passphrase, raw=not without_raw)
    if json:
        output.print_json({**_facts(saved), "encrypted": passphrase is not None})
        return
    output.say(f"{file}: {output.called(saved.role, saved.party)} of {saved.federation}{_stood(saved)}")
    if passphrase is None:
        output.remark("It holds private keys in the clear, and is as secret as the directory (--encrypt seals it).")
    if saved.store is not None and saved.store.waiting:
        one, raw = saved.store.waiting == 1, saved.store.raw
        waiting = f"{counted(saved.store.waiting, 'reward')} that {'waits' if one else 'wait'}"
        what = (
            f"{'is' if one else 'are'} {'in it as raw data: delete it when the next is made' if raw else 'not in it'}"
        )
        output.remark(f"{waiting} for their release {what}.")


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A backup.")],
    home: Annotated[Path, typer.Argument(help="The party's directory, new or empty.")],
    passphrase_file: PassphraseFile = None,
    store: Annotated[str | None, typer.Option(help="Path or postgresql:// URL of a new store.")] = None,
    without_store: Annotated[
        bool, typer.Option("--without-store", help="The database is still there: leave it alone.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the others now; the party draws nothing until they are asked.")
    ] = False,
    patience: Annotated[float, typer.Option(help="Seconds to wait for the others' answers.")] = 60.0,
    broker_ca: options.BrokerCa = "",
    json: options.Json = False,
) -> None:
    """Restore a party from its backup, bring it forward to what others have seen of it, and say what was lost."""
    from fedbandit.federation.backup.restoring import bring_forward_now
    from fedbandit.federation.backup.restoring import restore as put_back

    checks.readable("file", file)
    _validate.positive("patience", patience)
    if offline:
        checks.no_effect(context, ASKING, "with --offline, which asks nobody")
    where, sealed, authority = store if store is None or "://" in store else options.absolute(store), [], []

    def passphrase() -> bytes:
        sealed.append(True)
        return _asked(passphrase_file)

    def check(manifest: Manifest, agreement: Agreement) -> None:
        if not sealed:
            checks.no_effect(context, ("passphrase_file",), "on a backup that is not sealed")
        if manifest.store is None:
            checks.no_effect(context, (*ASKING, *STORING), "on a founder's backup, which has no store")
        authority.append(checks.broker_ca(broker_ca, agreement.broker))

    saved = put_back(file, home, passphrase=passphrase, store=where, with_store=not without_store, check=check)
    done: Forwarded | None = None
    if saved.store is not None and not offline:
        output.quiet()
        done = asyncio.run(bring_forward_now(home, broker_ca=authority[0], patience=patience))
    if json:
        found = {} if done is None or done.recovery is None else {"lost": done.recovery._asdict()}
        output.print_json({**_facts(saved), **found, "problem": done.why_not or None if done else None})
    else:
        output.say(f"{home}: {output.called(saved.role, saved.party)} of {saved.federation}{_stood(saved)}")
        if saved.store is not None:
            for line in _lost(home, saved, done, in_place=without_store):
                output.say(line)
    if saved.store is not None and (done is None or done.recovery is None):
        raise typer.Exit(NOT_FORWARD)


def _lost(home: Path, saved: Manifest, done: Forwarded | None, *, in_place: bool) -> list[str]:
    """What a restored party has lost, as far as anybody knows; with `in_place`, its store was still there."""
    if done is None or done.recovery is None:
        why = "nobody was asked" if done is None else done.why_not
        return [
            f"Not brought forward: {why}.",
            "It draws and closes nothing until the others have said how far they have seen it come. When they can be"
            f" reached: fedbandit {saved.role} forward {home} --yes",
        ]
    found = done.recovery
    lines = [_given_up(saved.role, found) if found.syncs else "Others have seen nothing that its store does not hold."]
    if saved.role == "silo" and not in_place:
        lines += _rewards(saved, found)
    return [*lines, "The party that was saved must never run again: two of the same name would spend twice."]


def _given_up(role: str, found: Recovery) -> str:
    syncs = spans(found.syncs)
    if role != "silo":
        what = "totals stay as the analyzer has" if role == "mixer" else "models stay as the silos have"
        return f"Given up: syncs {syncs}. Their {what} them; none is made a second time."
    spent = ""
    if found.epsilon is not None and found.epsilon_after is not None:
        spent = f": epsilon {at_most(found.epsilon_after)}, {at_most(found.epsilon)} at the time of the backup"
    return f"Given up: syncs {syncs}. Others have seen their releases: they are spent{spent}, and are not drawn again."


def _rewards(saved: Manifest, found: Recovery) -> list[str]:
    assert saved.store is not None, "a silo has a store"
    since = datetime.fromtimestamp(saved.time, UTC).isoformat(timespec="seconds")
    lines = []
    if found.rewards:
        lines.append(f"{found.rewards} rewards of the backup are in those releases, and count only there.")
    if not saved.store.raw and saved.store.waiting and not found.syncs:  # otherwise they are in those releases
        lines.append(f"{saved.store.waiting} rewards were left out of the backup and are lost.")
    kept = " and not in those releases" if found.syncs else ""
    lines.append(f"Lost: rewards acknowledged after {since}{kept}; nobody knows how many.")
    lines.append(
        "Rewards of decisions made before now no longer count, because they may have counted in those releases; people"
        " who were counted in them may count once more."
        if found.syncs
        else "Applications that kept them may send them again: rewards that the backup has are recognised."
    )
    return lines


def _stood(saved: Manifest) -> str:
    """Where the party stood when it was saved."""
    at = datetime.fromtimestamp(saved.time, UTC).isoformat(timespec="seconds")
    facts = saved.store
    if facts is None:
        return f", as of {at}"
    entries = f"{facts.ledger} {'entry' if facts.ledger == 1 else 'entries'} of its ledger"
    return f", as of {at}, {counted(facts.syncs, 'sync')}" + (f", {entries}" if saved.role == "silo" else "")


def _facts(saved: Manifest) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(saved), "files": {name: one._asdict() for name, one in saved.files.items()}}


def _asked(file: Path | None) -> bytes:
    if file is not None:
        return _from_file(file)
    return str(typer.prompt("Passphrase", hide_input=True, err=True)).encode()


def _from_file(path: Path) -> bytes:
    first = checks.readable("passphrase_file", path).read_bytes().split(b"\n")[0].rstrip(b"\r")
    if not first:
        raise ArgumentError("passphrase_file", "must have the passphrase in its first line, which is empty")
    return first
