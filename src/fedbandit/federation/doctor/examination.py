"""All checks of a directory, one after the other: a party's, or a founder's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from fedbandit._validate import ArgumentError
from fedbandit.federation.doctor import at_broker, in_store, on_disk
from fedbandit.federation.doctor.asking import settings_of
from fedbandit.federation.doctor.findings import Diagnosis, examined, fails
from fedbandit.federation.setup.founding import OPERATOR_KEYS
from fedbandit.federation.setup.home import SETTINGS, Settings

__all__ = ["examine"]


def examine(path: Path, ca: str = "") -> Iterator[Diagnosis]:
    """The findings, in the order in which things depend on each other."""
    if not (path / SETTINGS).exists() and (path / OPERATOR_KEYS).exists():
        yield from _founders(path, ca)
        return
    try:
        settings = settings_of(path)
    except ArgumentError as error:
        yield fails("settings", f"{error.field} {error.message}", "is this the directory that `federation join` made?")
        return
    yield from _party(path, settings)


def _party(path: Path, settings: Settings) -> Iterator[Diagnosis]:
    yield from examined("keys", lambda: on_disk.keys(path), "give its owner the file back (chown, chmod 600)")
    yield from examined("files", lambda: on_disk.files(path), "look at who owns the directory")
    yield from examined("federation", lambda: on_disk.federation(path), "`fedbandit federation accept` the whole file")
    yield from examined("certificate", lambda: on_disk.certificates(settings), "look at the paths in party.json")
    yield from examined("store", lambda: in_store.store(path), "is the database up, the file there and readable?")
    yield from examined("disk", lambda: on_disk.disk(path), "")
    yield from examined("descriptors", on_disk.descriptors, "")
    yield from examined("port", lambda: on_disk.port(path, settings), "look at host, port and health_port")
    yield from examined("broker", lambda: asyncio.run(at_broker.party(path)), "see above")


def _founders(path: Path, ca: str) -> Iterator[Diagnosis]:
    yield from examined("disk", lambda: on_disk.disk(path), "")
    yield from examined("descriptors", on_disk.descriptors, "")
    yield from examined("broker", lambda: asyncio.run(at_broker.founders(path, ca or None)), "see above")
