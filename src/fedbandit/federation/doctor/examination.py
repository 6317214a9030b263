"""Makes all checks of a directory, one after another: a party's or a founder's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedbandit._validate import ArgumentError
from fedbandit.federation.doctor import at_broker, in_store, on_disk
from fedbandit.federation.doctor.findings import Diagnosis, examined, fails, warns
from fedbandit.federation.setup.home import FEDERATION, SETTINGS, Home

__all__ = ["examine"]


class Look(NamedTuple):
    """One check, and what to do if it raises an error."""

    check: str
    at: Callable[[], Iterable[Diagnosis]]
    do: str


BACK = "put a missing file back; a file that is there must belong to this user alone (chown, chmod 600)"


def examine(path: Path, ca: str = "") -> Iterator[Diagnosis]:
    """The findings, in the order in which things depend on each other. Checks that fail for a reason already given are
    only named at the end."""
    if not (path / SETTINGS).exists() and (path / FEDERATION).exists():
        yield from _once(_founders(path, ca))
        return
    try:
        home = Home.load(path)
    except ArgumentError as error:
        yield fails("settings", f"{error.field} {error.message}", "is this the directory that `federation join` made?")
        return
    if ca:
        home = replace(home, settings=replace(home.settings, broker_ca=ca))
    yield from _once(_party(home))


def _once(looks: Iterable[Look]) -> Iterator[Diagnosis]:
    said, unseen = set[str](), list[str]()
    for look in looks:
        for one in examined(look.check, look.at, look.do):
            if one.level == "failure" and one.says in said:
                unseen.append(one.check)
            else:
                said.add(one.says)
                yield one
    if unseen:
        says = "could not be checked, or only in part, for a reason given above"
        yield warns(", ".join(unseen), says, "correct that first, then run the doctor again")


def _party(home: Home) -> list[Look]:
    path, settings = home.path, home.settings
    return [
        Look("keys", lambda: on_disk.keys(home), BACK),
        Look("token", lambda: on_disk.token(home), BACK),
        Look("files", lambda: on_disk.files(path), "check who owns the directory"),
        Look("federation", lambda: on_disk.federation(home), "copy the file there that all other parties have"),
        Look("certificate", lambda: on_disk.certificates(settings), "check the paths in party.json"),
        Look("store", lambda: in_store.store(home), "check that the database is up, or that its file can be read"),
        Look("disk", lambda: on_disk.disk(path), ""),
        Look("descriptors", on_disk.descriptors, ""),
        Look("port", lambda: on_disk.port(home), "check host, port and health_port in party.json"),
        Look("broker", lambda: asyncio.run(at_broker.party(home)), "see above"),
    ]


def _founders(path: Path, ca: str) -> list[Look]:
    return [
        Look("disk", lambda: on_disk.disk(path), ""),
        Look("descriptors", on_disk.descriptors, ""),
        Look("broker", lambda: asyncio.run(at_broker.founders(path, ca or None)), "see above"),
    ]
