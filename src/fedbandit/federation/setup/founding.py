"""Sets up a federation: founds it, admits parties by their own keys, and writes the broker's configuration."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import ServiceUnavailableError

from fedbandit._validate import ArgumentError
from fedbandit._words import sized
from fedbandit.federation.setup.agreement import Agreement, check_broker
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.home import FEDERATION, MEMBERS, SETTINGS, Home, put_aside
from fedbandit.federation.setup.roll import Roll, read_editions, write_editions
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker, parcels
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys
from fedbandit.federation.wire.link import BrokerAddress, Link
from fedbandit.federation.wire.subjects import OPERATOR
from fedbandit.plan import Plan

__all__ = [
    "BROKER_CONFIG",
    "OPERATOR_KEYS",
    "OperatorsKeys",
    "admit",
    "authority",
    "change",
    "configurations",
    "configure",
    "found",
    "limits",
    "local",
    "new_operator",
    "operators_keys",
    "provision",
    "roll_of",
    "rotate_operator",
]

OPERATOR_KEYS, BROKER_CONFIG = "operator.key", "nats.conf"
NEXT_KEYS = f"{OPERATOR_KEYS}.new"  # new operator keys, until an edition names them
HOSTED = ("analyzer", "mixer")  # roles that the founder may run, in folders of these names
GREETINGS = 1000  # messages kept per sender in addition to those of the syncs
COPIES = 3  # of every stream, each on another node
SECRET_BYTES = 24  # of the password that a broker's nodes share
RETRY = 0.5  # seconds
PATIENCE = 30.0  # seconds after which a broker that does not answer counts as down


def found(
    path: Path, name: str, plan: Plan, broker_url: str, timing: Timing, broker_home: Path | None = None
) -> Agreement:
    """Begin a federation: write the agreed file without parties, the operator's keys, and a configuration for each node
    of the broker. `broker_home` is where a node will keep its files, if that differs from where they are written."""
    if (path / FEDERATION).exists():
        raise ArgumentError("directory", f"must be new: {path / FEDERATION} exists already; name another directory")
    check_broker(broker_url)
    _check_size(plan)
    operator = PartyKeys.generate()
    key, signer = operators_keys(operator)
    agreement = Agreement(name, plan, broker_url, timing, key, signer=signer)
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    operator.save(path / OPERATOR_KEYS)
    save(path, agreement, broker_home)
    return agreement


def admit(path: Path, cards: list[PublicKeys]) -> Agreement:
    """Add parties, given the public keys that they sent."""
    agreement = Agreement.load(path / FEDERATION)
    for card in cards:
        agreement = agreement.admit(card)
    save(path, agreement)
    return agreement


class OperatorsKeys(NamedTuple):
    """The operator's public keys. They are different keys because a broker chooses what it lets others sign."""

    broker: bytes
    signer: bytes  # of editions of the members


def operators_keys(keys: PartyKeys) -> OperatorsKeys:
    """The public part of the operator's keys."""
    return OperatorsKeys(keys.broker.public_key().public_bytes_raw(), keys.signer.public_key().public_bytes_raw())


def authority(path: Path) -> str:
    """The file of the broker's certificate authority, as the parties that run here have it; empty for none."""
    homes = [Home.load(path / role) for role in HOSTED if (path / role / SETTINGS).exists()]
    return next((home.settings.broker_ca for home in homes if home.settings.broker_ca), "")


def roll_of(path: Path) -> Roll:
    """The members according to the founder's directory."""
    return Roll(Agreement.load(path / FEDERATION), read_editions(path / MEMBERS))


def change(path: Path, edition: Edition) -> Roll:
    """Make and sign the next edition of the members, and write it for the founder, for the roles that run here, and
    into the broker's configuration. The federation's file does not change."""
    _settle_operator(path)
    return _change(path, edition)


def _change(path: Path, edition: Edition) -> Roll:
    roll, keys = roll_of(path), PartyKeys.load(path / OPERATOR_KEYS)
    _configured(path, roll.newest)  # an unreadable configuration must fail before anything is signed
    if operators_keys(keys).signer != roll.newest.signer:
        raise ArgumentError(
            "operator", f"must sign with the key that the members know; {path / OPERATOR_KEYS} is a different one"
        )
    roll.next(edition, keys.signer)
    for folder in (path, *(path / role for role in HOSTED if (path / role / FEDERATION).exists())):
        write_editions(folder / MEMBERS, roll.editions)
    configure(path, roll.newest)
    return roll


def rotate_operator(path: Path, from_sync: int) -> Roll:
    """Make new keys for the operator. The old key signs them and is kept under another name."""
    _settle_operator(path)
    keys = PartyKeys.generate()
    keys.save(path / NEXT_KEYS)
    broker_key, signer = operators_keys(keys)
    try:
        return _change(path, Edition(1, "", from_sync, "operator", operator=broker_key, signer=signer))
    finally:
        _settle_operator(path)


def _settle_operator(path: Path) -> None:
    """Finish or undo a change of the operator's keys that was interrupted.

    If the newest edition names the new keys, they replace the old ones: nothing else can sign the next edition.
    Otherwise nobody knows of them, and they are deleted.
    """
    fresh, file, number = path / NEXT_KEYS, path / OPERATOR_KEYS, 1
    if not fresh.exists():
        return
    if operators_keys(PartyKeys.load(fresh)).signer != roll_of(path).newest.signer:
        fresh.unlink()
        return
    while (former := path / f"operator-{number}.key").exists():
        number += 1
    if file.exists():
        file.rename(former)
    fresh.rename(file)


def new_operator(path: Path) -> OperatorsKeys:
    """Make new keys for the operator, for a new term, and return the public keys. Existing keys are never replaced."""
    file = path / OPERATOR_KEYS
    if file.exists():
        raise ArgumentError("operator", f"must have lost its key, but {file} exists: to replace it, move it away")
    operator = PartyKeys.generate()
    operator.save(file)
    return operators_keys(operator)


def save(path: Path, agreement: Agreement, broker_home: Path | None = None) -> None:
    """Write the federation's file, and the configuration of every node of the broker that follows from it."""
    put_aside(path, agreement)
    agreement.save(path / FEDERATION)
    (path / MEMBERS).unlink(missing_ok=True)  # editions belong to a term and follow its file
    configure(path, agreement, broker_home)


def configure(path: Path, agreement: Agreement, broker_home: Path | None = None) -> None:
    """Write the configuration of every node of the broker.

    In an existing configuration only the users are replaced: its addresses, directories, certificates and clustering
    are up to whoever runs the broker.
    """
    users = broker.accounts(agreement.subjects, agreement.parties, agreement.operator)
    files, known = configurations(path, agreement), _configured(path, agreement)
    secret = next((one["cluster"]["authorization"]["password"] for one in known.values() if "cluster" in one), None)
    secret = secret or secrets.token_urlsafe(SECRET_BYTES)
    for number, file in enumerate(files):
        settings = known.get(file) or _node_settings(broker_home or file.parent, agreement, number, secret)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        part = file.with_name(file.name + ".part")  # written in one step: manual settings in it exist nowhere else
        part.touch(mode=0o600)
        part.write_text(json.dumps({**settings, "accounts": users}, indent=1) + "\n")
        part.replace(file)


def _configured(path: Path, agreement: Agreement) -> dict[Path, dict[str, Any]]:
    """The existing configurations, by file."""
    return {file: broker.read_configuration(file) for file in configurations(path, agreement) if file.exists()}


def configurations(path: Path, agreement: Agreement) -> list[Path]:
    """The configuration file of each node of the broker; for a single node, it is next to the federation's file."""
    nodes = agreement.broker.count(",") + 1
    if nodes == 1:
        return [path / BROKER_CONFIG]
    return [path / f"broker-{number + 1}" / BROKER_CONFIG for number in range(nodes)]


def _node_settings(home: Path, agreement: Agreement, number: int, secret: str) -> dict[str, Any]:
    """A new configuration for a node whose files are in this folder."""
    urls = agreement.broker.split(",")
    url = urlparse(urls[number])
    tls = {"cert_file": str(home / "broker.crt"), "key_file": str(home / "broker.pem")} if url.scheme == "tls" else None
    settings = broker.configuration(
        agreement.subjects,
        agreement.parties,
        agreement.operator,
        str(home / "jetstream"),
        host=broker.bind_address(urls[number]),
        port=url.port or broker.DEFAULT_PORT,
        tls=tls,
    )
    if len(urls) == 1:
        return settings
    between = None if tls is None else {**tls, "ca_file": str(home / "broker-ca.crt")}
    return {**settings, **broker.cluster(agreement.id, urls, number, secret, between)}


def _check_size(plan: Plan) -> None:
    """Refuse a plan whose messages the broker would not take."""
    size = parcels.largest(plan)
    if size > broker.MAX_PAYLOAD:
        raise ArgumentError(
            "plan",
            f"must have messages of at most {broker.MAX_PAYLOAD >> 20} MB, the limit of the broker; "
            f"with {plan.silos} silos and {plan.dim} features a message has {sized(size)}",
        )


def limits(agreement: Agreement, age: float = broker.RETENTION) -> broker.StreamLimits:
    """The limits of a stream: it keeps two messages per sync of each sender, and greetings."""
    plan = agreement.plan
    messages = 2 * plan.reach + GREETINGS
    return broker.StreamLimits(parcels.largest(plan), messages, age)


async def provision(
    path: Path, ca: str | None = None, replicas: int | None = None, age: float = broker.RETENTION
) -> float:
    """Make the streams and consumers on the running broker; TimeoutError if it does not answer. Messages are kept for
    `age` seconds, or as long as before if that is longer; the seconds are returned. A cluster of three or more nodes
    keeps three copies, unless `replicas` says otherwise."""
    agreement = roll_of(path).newest
    agreement.complete()
    files = configurations(path, agreement)
    for file in files:
        if file.exists():
            broker.read_configuration(file)
    copies = replicas or (COPIES if len(files) >= COPIES else 1)
    keys, address = PartyKeys.load(path / OPERATOR_KEYS), BrokerAddress(agreement.broker, ca or authority(path) or None)
    try:
        link = await asyncio.wait_for(Link.connect(address, OPERATOR, keys.broker), PATIENCE)
    except TimeoutError:
        raise TimeoutError(f"the broker at {agreement.broker} has not answered for {PATIENCE:g} s") from None
    try:
        return await _made(link, agreement, limits(agreement, age), copies)
    finally:
        await link.close()


async def _made(link: Link, agreement: Agreement, kept: broker.StreamLimits, copies: int) -> float:
    """Make the streams as soon as the nodes have found each other; the seconds for which messages are kept."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await broker.provision(link.js, agreement.subjects, agreement.parties, kept, copies)
        except (broker.Unready, NatsTimeout, ServiceUnavailableError) as error:
            if time.monotonic() > end:
                says = f"the broker at {agreement.broker} makes no streams: JetStream is off, or too few nodes are up"
                raise TimeoutError(f"{says} ({str(error) or type(error).__name__})") from None
            await asyncio.sleep(RETRY)


def local(path: Path, plan: Plan, names: list[str], timing: Timing) -> list[Home]:
    """Set up a whole federation on this machine, for the demo and tests: all parties' directories are in `path`."""
    agreement = found(path, "demo", plan, f"nats://127.0.0.1:{broker.free_port()}", timing)
    homes = [Home.create(path / "analyzer", name="analyzer", role="analyzer")]
    if plan.protocol.has_mixer:
        homes.append(Home.create(path / "mixer", name="mixer", role="mixer"))
    homes += [Home.create(path / name, name=name, role="silo", port=broker.free_port()) for name in names]
    agreement = admit(path, [home.public for home in homes])
    for home in homes:
        agreement.save(home.path / FEDERATION)
    return homes
