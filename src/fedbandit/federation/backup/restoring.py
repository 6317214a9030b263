"""Restores a party from its backup. Nothing that others have seen of it since is done a second time.

A restored party is behind, and nothing in its backup says how far. The others tell it, as they tell every party before
it draws or closes anything: until they have answered it does neither, whoever starts it (`silo/outgoing.py`,
`syncs/keeper.py`). Then it is brought forward (`recovery.py`): it gives up the syncs that others have already seen.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit._validate import ArgumentError, is_postgres
from fedbandit.federation.backup import archive
from fedbandit.federation.backup.archive import STORE, Manifest
from fedbandit.federation.backup.broker_paths import moved_in
from fedbandit.federation.backup.snapshots import put_in_place
from fedbandit.federation.recovery import PATIENCE, Recovery, recover
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.founding import configurations
from fedbandit.federation.setup.home import FEDERATION, NAMED, SETTINGS, Home
from fedbandit.federation.silo import book
from fedbandit.federation.store import SiloStore, read_engine
from fedbandit.federation.store.schema import EARLIER, FORMAT
from fedbandit.federation.wire.subjects import OPERATOR
from fedbandit.privacy.ledger import LedgerError

__all__ = ["Forwarded", "bring_forward_now", "restore"]


class Forwarded(NamedTuple):
    """The recovery of a restored party; or None, and why it was not possible now."""

    recovery: Recovery | None
    why_not: str = ""


def restore(
    file: Path,
    home: Path,
    *,
    passphrase: Callable[[], bytes],
    store: str | None = None,
    with_store: bool = True,
    check: Callable[[Manifest, Agreement], None] = lambda manifest, agreement: None,
) -> Manifest:
    """Restore a party into a directory that is new or empty.

    `store` is the new place of its store; by default it is the one in the backup's settings. Without `with_store`, the
    existing store is kept. `check` may refuse the backup before anything is restored.
    """
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ArgumentError("home", f"must be new or empty, but {str(home)!r} is not: nothing is overwritten")
    home.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))  # only its owner can read it
    try:
        manifest = archive.take_out(file, folder, passphrase)
        check(manifest, Agreement.load(folder / FEDERATION))
        if manifest.role == OPERATOR:
            _furnish_broker(folder, home.resolve())
        else:
            _furnish(folder, home.resolve(), manifest, store, with_store)
        folder.rename(home)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return manifest


def _furnish_broker(folder: Path, home: Path) -> None:
    """Put each node's configuration into its own folder, with paths into `home`, the future place of the directory."""
    for file in configurations(folder, Agreement.load(folder / FEDERATION)):
        saved = folder / archive.node_file(file)
        if file.parent != folder and saved.exists():
            file.parent.mkdir(mode=0o700)
            saved.rename(file)
        if file.exists():
            moved_in(file, home)


async def bring_forward_now(home: Path, *, broker_ca: str = "", patience: float = PATIENCE) -> Forwarded:
    """Ask the others which state of the restored party they have seen last, and give up everything up to it."""
    party = Home.load(home)
    if broker_ca:
        party = replace(party, settings=replace(party.settings, broker_ca=broker_ca))
    try:
        return Forwarded(await recover(party, agreed=True, patience=patience))
    except (OSError, ArgumentError) as error:  # TimeoutError is an OSError
        return Forwarded(None, str(error))


def _furnish(folder: Path, home: Path, manifest: Manifest, store: str | None, with_store: bool) -> None:
    """Make a party's directory from the files of its backup: put the store where it belongs, and let settings that name
    files of the directory lead into `home`, the future place of the directory."""
    party = Home.load(folder)
    moved: dict[str, Any] = {
        name: str(home / Path(path).name)
        for name in NAMED
        if Path(path := getattr(party.settings, name)).name in manifest.files
    }
    party = replace(
        party, settings=replace(party.settings, **moved, store=party.settings.store if store is None else store)
    )
    party.settings.save(folder / SETTINGS)
    agreement = party.agreement()
    party.party()  # the federation knows this party by these keys
    if (party.settings.name, party.settings.role, agreement.fingerprint) != (
        manifest.party,
        manifest.role,
        manifest.fingerprint,
    ):
        raise ArgumentError("backup", f"is damaged: its {SETTINGS} or {FEDERATION} does not match its manifest")
    snapshot = folder / STORE
    if with_store:
        _check_store(snapshot, manifest)
        place = party.store(agreement.plan.hash)
        if not is_postgres(place) and Path(place).parent == home:  # an absolute path, not there yet
            place = str(folder / Path(place).name)
        kept = snapshot.rename(folder / f".{STORE}")  # the store may have the same name
        put_in_place(kept, place)
        kept.unlink()
        return
    if not is_postgres(party.settings.store):
        raise ArgumentError(
            "--without-store", "is for a database that is still there, but this store was a file: leave the option out"
        )
    snapshot.unlink()


def _check_store(snapshot: Path, manifest: Manifest) -> None:
    """Check that this version can read the store, and that its ledger is intact and matches the manifest."""
    facts = manifest.store
    if facts is None or facts.format not in (FORMAT, *EARLIER):
        held = "none" if facts is None else facts.format
        raise ArgumentError("backup", f"has a store of format {held}; not {FORMAT}: use the version that wrote it")
    engine = read_engine(snapshot)
    try:
        rows = SiloStore(engine).ledger()
        book.entries(rows)
    except LedgerError as error:
        raise ArgumentError("backup", f"has an invalid ledger: {error}") from None
    finally:
        engine.close()
    if (book.length(rows), rows[-1].hash if rows else "") != (facts.ledger, facts.head):
        raise ArgumentError("backup", "is damaged: its ledger does not match its manifest")
