"""Saves a party's directory and store in one file, whether the party is running or not.

The backup contains keys, settings, the federation's file, the token, files of the directory that the settings name, and
the store at one moment. It does not contain the log of decisions, which is raw and has its own retention, nor the
number of decisions since the store last counted. Rewards that wait for their release are raw data of people. A backup
contains them unless they are left out, because without them a restored silo has lost rewards that it acknowledged. So
protect a backup like the store, and keep it no longer than those rows may be kept.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbandit import __version__
from fedbandit._validate import ArgumentError, is_postgres
from fedbandit.federation.backup import archive
from fedbandit.federation.backup.archive import STORE, Manifest, StoreFacts
from fedbandit.federation.backup.broker_paths import taken_out
from fedbandit.federation.backup.snapshots import check_saved, take_snapshot, without_raw_rows
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.founding import BROKER_CONFIG, OPERATOR_KEYS, configurations, roll_of
from fedbandit.federation.setup.home import FEDERATION, MEMBERS, NAMED, SETTINGS, TOKEN, Home
from fedbandit.federation.silo import book
from fedbandit.federation.status import check_tied
from fedbandit.federation.store import SiloStore, SyncStore, read_engine
from fedbandit.federation.store.migrations import format_of
from fedbandit.federation.store.rewards import users_waiting
from fedbandit.federation.store.schema import FORMAT
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.federation.wire.subjects import OPERATOR

__all__ = ["save"]

UNFINISHED = ".backup-"  # the name of an unfinished backup's folder begins with this
FOUNDERS = (OPERATOR_KEYS, FEDERATION, MEMBERS, BROKER_CONFIG, "broker.crt", "broker.pem")


def save(home: Path, file: Path, *, passphrase: bytes | None = None, raw: bool = True) -> Manifest:
    """Write a backup of the party or the founder of this directory to a new file. Everything that `restore` will check
    is checked now, so a backup that could not be restored is never written."""
    if not (home / SETTINGS).exists() and (home / FEDERATION).exists():
        return _save_founder(home, file, passphrase, raw)
    began, party = time.time(), Home.load(home)
    if not raw and party.settings.role != "silo":
        raise _nothing_raw(f"the {party.settings.role}")
    agreement = party.agreement()
    party.party()  # the federation knows this party by these keys
    with _room(home) as folder:
        contents = _copied(_files(party), folder)
        snapshot = contents[STORE] = folder / STORE
        take_snapshot(party.store(agreement.plan.hash), snapshot)
        facts = _facts(party, agreement, snapshot, raw)
        if not raw:
            without_raw_rows(snapshot)
        manifest = _manifest(agreement, party.settings.name, party.settings.role, began, contents, facts)
        archive.write(file, manifest, contents, passphrase)
    return manifest


def _save_founder(home: Path, file: Path, passphrase: bytes | None, raw: bool) -> Manifest:
    """Save the operator's key and the broker's configuration. Parties that run there have their own backups."""
    if not raw:
        raise _nothing_raw("the founder")
    PartyKeys.load(home / OPERATOR_KEYS)
    agreement = roll_of(home).charter
    with _room(home) as folder:
        nodes = {archive.node_file(file): file for file in configurations(home, agreement) if file.parent != home}
        files = nodes | {name: home / name for name in FOUNDERS}
        contents = _copied({name: file for name, file in files.items() if file.exists()}, folder)
        for name in contents.keys() & {BROKER_CONFIG, *nodes}:
            taken_out(contents[name], home)
        manifest = _manifest(agreement, OPERATOR, OPERATOR, time.time(), contents, None)
        archive.write(file, manifest, contents, passphrase)
    return manifest


def _nothing_raw(whose: str) -> ArgumentError:
    return ArgumentError("--without-raw", f"has no effect on {whose}: only a silo has waiting rewards")


def _copied(files: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Copy the files: one that is replaced while the backup is written would not match the manifest."""
    for name, path in files.items():
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        shutil.copyfile(path, folder / name)
    return {name: folder / name for name in files}


def _manifest(
    agreement: Agreement, name: str, role: str, began: float, contents: dict[str, Path], store: StoreFacts | None
) -> Manifest:
    return Manifest(
        party=name,
        role=role,
        federation=agreement.id,
        fingerprint=agreement.fingerprint,
        plan=agreement.plan.hash,
        version=__version__,
        time=began,
        files={archive.plain_name(name): archive.hash_of(path) for name, path in contents.items()},
        store=store,
    )


def _files(party: Home) -> dict[str, Path]:
    """The files of a party's directory that cannot be made again, and those that its settings name."""
    names = [SETTINGS, FEDERATION, MEMBERS, TOKEN, f"{party.settings.name}.card.json"]
    names += [file.name for file in party.key_files()]
    names += sorted(file.name for name in (FEDERATION, MEMBERS) for file in party.path.glob(name.replace(".", "-*.")))
    for named in (getattr(party.settings, name) for name in NAMED):
        if named and Path(named).resolve().parent == party.path.resolve():
            names.append(Path(named).name)
    return {name: party.path / name for name in names if (party.path / name).exists()}


def _facts(party: Home, agreement: Agreement, snapshot: Path, raw: bool) -> StoreFacts:
    """The state of the store in the snapshot; refused if it is damaged or not this party's."""
    kind = "postgresql" if is_postgres(party.settings.store) else "sqlite"
    engine = read_engine(snapshot)
    try:
        with engine.read() as sql:
            check_saved(format_of(sql))
            waiting = users_waiting(sql)
        check_tied(engine, agreement, party.owner)
        if party.settings.role != "silo":
            return StoreFacts(kind, FORMAT, SyncStore(engine).next_sync())
        store = SiloStore(engine)
        book.kept(store)
        terms, last = store.terms(), store.last_entry()
        number = terms[-1].number if terms else 0
        drawn = store.drawn(number)
        length, head = (0, "") if last is None else (last.number + 1, last.hash)
        return StoreFacts(kind, FORMAT, drawn, length, head, number, waiting, raw)
    finally:
        engine.close()


@contextmanager
def _room(home: Path) -> Iterator[Path]:
    """A temporary folder in the party's own directory. Folders left behind by killed processes are removed first, since
    they may contain raw rows that the store has deleted since."""
    for left in home.glob(f"{UNFINISHED}*"):
        with _held(left) as free:
            if free:
                shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=home))
    with _held(folder):
        try:
            yield folder
        except (OSError, sqlite3.OperationalError) as error:
            if (
                getattr(error, "errno", None) != errno.ENOSPC
                and getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL
            ):
                raise
            needs = f"while a backup is made, it needs as much room in {home} as the store takes"
            raise ArgumentError("disk", f"is full: {needs}, and then as much where it is written") from None
        finally:
            shutil.rmtree(folder)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock; False if another process does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(descriptor)
