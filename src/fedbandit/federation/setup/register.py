"""A note at the broker of the newest edition of the members, against two copies of a founder's directory.

A copy that is behind must not sign a second edition with a number that the other copy has already signed: nobody could
go on after that (`roll.TwoLists`).

The broker is trusted with nothing. What it says here can only keep an operator from signing. Two commands in the same
second may both pass, and so does a command that the broker does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlparse

from nats.errors import Error as NatsError

from fedbandit._validate import ArgumentError
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.federation.wire.link import BrokerAddress, Link
from fedbandit.federation.wire.subjects import OPERATOR

__all__ = ["check_newest", "note_newest"]

PATIENCE = 5.0  # seconds in which the broker must answer
WORD = "members"  # a note begins with this
DIGITS = 16  # of a hash in a note


def check_newest(path: Path) -> bool:
    """Refuse to sign if the broker knows an edition that this directory does not have; False if there is no answer."""
    return asyncio.run(_at_broker(path, _check))


def note_newest(path: Path) -> bool:
    """Note the newest edition of this directory at the broker; False if it does not answer."""
    return asyncio.run(_at_broker(path, _note))


async def _check(link: Link, roll: Roll) -> None:
    config = (await link.js.stream_info(roll.newest.subjects.stream("silo"))).config
    match (config.description or "").split():
        case [word, term, number, hash_] if (word, term) == (WORD, roll.hash_of(0)[:DIGITS]) and number.isdecimal():
            if int(number) <= roll.number and roll.hash_of(int(number))[:DIGITS] == hash_:
                return
            raise ArgumentError(
                "directory",
                f"must have edition {number}, which was signed from another copy of it; it has {roll.number}. Change"
                " members from one copy only: put the newest members.json, of that copy or of any party, in its place",
            )


async def _note(link: Link, roll: Roll) -> None:
    config = (await link.js.stream_info(roll.newest.subjects.stream("silo"))).config
    note = f"{WORD} {roll.hash_of(0)[:DIGITS]} {roll.number} {roll.hash[:DIGITS]}"
    await link.js.update_stream(config.evolve(description=note))


async def _at_broker(path: Path, work: Callable[[Link, Roll], Awaitable[None]]) -> bool:
    roll = founding.roll_of(path)
    address = BrokerAddress(roll.newest.broker, founding.authority(path) or None)
    nodes = [(url.hostname or "", url.port or broker.DEFAULT_PORT) for url in map(urlparse, address.urls)]
    if not any(broker.listens(*node) for node in nodes):
        return False
    files = [path / founding.OPERATOR_KEYS, *sorted(path.glob("operator-*.key"))]  # it may know an older key only
    try:
        async with asyncio.timeout(PATIENCE):
            link = await Link.connect_with(address, OPERATOR, [PartyKeys.load(file).broker for file in files])
            try:
                await work(link, roll)
            finally:
                await link.close()
    except (OSError, NatsError):  # time-outs and refusals are OSErrors too
        return False
    return True
