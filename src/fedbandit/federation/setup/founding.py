"""Setting a federation up: found it, let parties join with keys of their own, write the broker's configuration."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from fedbandit._validate import ArgumentError
from fedbandit.federation.setup.agreement import Agreement, check_broker
from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker, parcels
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys
from fedbandit.federation.wire.link import BrokerAddress, Link
from fedbandit.federation.wire.subjects import OPERATOR
from fedbandit.plan import Plan

__all__ = ["BROKER_CONFIG", "OPERATOR_KEYS", "admit", "found", "local", "new_operator", "provision"]

OPERATOR_KEYS, BROKER_CONFIG = "operator.key", "nats.conf"
GREETINGS = 1000  # messages, besides those of the syncs, that are kept for each sender
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PATIENCE = 30.0  # seconds until a broker that does not answer is taken to be down


def found(path: Path, name: str, plan: Plan, broker_url: str, timing: Timing) -> Agreement:
    """Begin a federation: the agreed file without parties, and the key of whoever runs the broker."""
    if (path / FEDERATION).exists():
        raise ArgumentError("directory", f"must be new: {path / FEDERATION} exists already")
    check_broker(broker_url)
    _check_size(plan)
    operator = PartyKeys.generate()
    agreement = Agreement(name, plan, broker_url, timing, operator.broker.public_key().public_bytes_raw())
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    operator.save(path / OPERATOR_KEYS)
    save(path, agreement)
    return agreement


def admit(path: Path, cards: list[PublicKeys]) -> Agreement:
    """Add parties by the public keys they sent."""
    agreement = Agreement.load(path / FEDERATION)
    for card in cards:
        agreement = agreement.admit(card)
    save(path, agreement)
    return agreement


def new_operator(path: Path) -> bytes:
    """A new key for whoever runs the broker, for a new term; returns its public half. One that is there is kept."""
    file = path / OPERATOR_KEYS
    if file.exists():
        raise ArgumentError("operator", f"must have lost its key, and {file} is there: move it away to replace it")
    operator = PartyKeys.generate()
    operator.save(file)
    return operator.broker.public_key().public_bytes_raw()


def save(path: Path, agreement: Agreement) -> None:
    """The federation's file, and the broker's configuration that follows from it.

    Of a configuration that is there already only the users are replaced: where it listens and stores, certificates
    and clustering belong to whoever runs the broker.
    """
    settings = _broker_settings(path, agreement)
    file = path / BROKER_CONFIG
    if file.exists():
        settings = {**broker.read_configuration(file), "accounts": settings["accounts"]}
    agreement.save(path / FEDERATION)
    file.write_text(json.dumps(settings, indent=1) + "\n")


def _broker_settings(path: Path, agreement: Agreement) -> dict[str, Any]:
    url = urlparse(agreement.broker)
    tls = {"cert_file": str(path / "broker.crt"), "key_file": str(path / "broker.pem")}
    return broker.configuration(
        agreement.subjects,
        agreement.parties,
        agreement.operator,
        str(path / "jetstream"),
        host=url.hostname if url.hostname in LOOPBACK else "0.0.0.0",
        port=url.port or 4222,
        tls=tls if url.scheme == "tls" else None,
    )


def _check_size(plan: Plan) -> None:
    """Refuse a plan whose messages the broker would not take."""
    size = parcels.largest(plan)
    if size > broker.MAX_PAYLOAD:
        raise ArgumentError(
            "plan",
            f"must have messages of at most {broker.MAX_PAYLOAD >> 20} MB, which is what the broker takes; "
            f"with {plan.silos} silos and {plan.dim} features one is {size / 2**20:.0f} MB",
        )


def _limits(agreement: Agreement) -> broker.StreamLimits:
    """For each sender a message per sync, twice over, and greetings."""
    plan = agreement.plan
    messages = 2 * len(plan.times) + GREETINGS
    return broker.StreamLimits(parcels.largest(plan), messages)


async def provision(path: Path, ca: str | None = None, replicas: int = 1) -> None:
    """Make streams and consumers on the running broker; TimeoutError if it does not answer."""
    agreement = Agreement.load(path / FEDERATION)
    agreement.complete()
    if (path / BROKER_CONFIG).exists():
        broker.read_configuration(path / BROKER_CONFIG)
    keys = PartyKeys.load(path / OPERATOR_KEYS)
    try:
        link = await asyncio.wait_for(
            Link.connect(BrokerAddress(agreement.broker, ca), OPERATOR, keys.broker), PATIENCE
        )
    except TimeoutError:
        raise TimeoutError(f"the broker at {agreement.broker} has not answered for {PATIENCE:g} s") from None
    try:
        await broker.provision(link.js, agreement.subjects, agreement.parties, _limits(agreement), replicas)
    finally:
        await link.close()


def local(path: Path, plan: Plan, names: list[str], timing: Timing) -> list[Home]:
    """A whole federation on this machine, for the demo and tests: every party's directory under one."""
    agreement = found(path, "demo", plan, f"nats://127.0.0.1:{broker.free_port()}", timing)
    homes = [Home.create(path / "analyzer", name="analyzer", role="analyzer")]
    if plan.protocol.has_mixer:
        homes.append(Home.create(path / "mixer", name="mixer", role="mixer"))
    homes += [Home.create(path / name, name=name, role="silo", port=broker.free_port()) for name in names]
    agreement = admit(path, [home.public for home in homes])
    for home in homes:
        agreement.save(home.path / FEDERATION)
    return homes
