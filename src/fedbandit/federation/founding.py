"""Setting a federation up: found it, let parties join with keys of their own, write the broker's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from fedbandit.federation import broker
from fedbandit.federation.consortium import Federation
from fedbandit.federation.home import FEDERATION, Home
from fedbandit.federation.keys import PartyKeys, PublicKeys
from fedbandit.federation.link import BrokerAddress, Link
from fedbandit.federation.subjects import OPERATOR
from fedbandit.plan import Plan

OPERATOR_KEYS, BROKER_CONFIG = "operator.key", "nats.conf"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def found(
    path: Path,
    name: str,
    plan: Plan,
    *,
    broker_url: str,
    deadline: float,
    settle: float,
    settle_last: float,
    start: float,
) -> Federation:
    """Begin a federation: the agreed file without parties, and the key of whoever runs the broker."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    if (path / FEDERATION).exists():
        raise ValueError(f"{path / FEDERATION} exists already; a federation is founded once")
    operator = PartyKeys.generate()
    public = operator.broker.public_key().public_bytes_raw()
    federation = Federation(name, plan, broker_url, deadline, settle, settle_last, start, public)
    operator.save(path / OPERATOR_KEYS)
    save(path, federation)
    return federation


def admit(path: Path, cards: list[PublicKeys]) -> Federation:
    """Add parties by the public keys they sent."""
    federation = Federation.load(path / FEDERATION)
    for card in cards:
        federation = federation.admit(card)
    save(path, federation)
    return federation


def save(path: Path, federation: Federation) -> None:
    """The federation's file, and the broker's configuration that follows from it.

    Of a configuration that is there already only the users are replaced: where it listens and stores, certificates
    and clustering belong to whoever runs the broker.
    """
    federation.save(path / FEDERATION)
    settings = _broker_settings(path, federation)
    file = path / BROKER_CONFIG
    if file.exists():
        settings = {**json.loads(file.read_text()), "authorization": settings["authorization"]}
    file.write_text(json.dumps(settings, indent=1) + "\n")


def _broker_settings(path: Path, federation: Federation) -> dict[str, Any]:
    url = urlparse(federation.broker)
    tls = {"cert_file": str(path / "broker.crt"), "key_file": str(path / "broker.pem")}
    return broker.configuration(
        federation.id,
        federation.plan.trust,
        federation.parties,
        federation.operator,
        str(path / "jetstream"),
        host=url.hostname if url.hostname in LOOPBACK else "0.0.0.0",
        port=url.port or 4222,
        tls=tls if url.scheme == "tls" else None,
    )


async def provision(path: Path, ca: str | None = None, replicas: int = 1) -> None:
    """Make streams and consumers on the running broker."""
    federation = Federation.load(path / FEDERATION)
    federation.complete()
    keys = PartyKeys.load(path / OPERATOR_KEYS)
    link = await Link.connect(BrokerAddress(federation.broker, ca), OPERATOR, keys.broker)
    try:
        await broker.provision(link.js, federation.id, federation.plan.trust, federation.parties, replicas)
    finally:
        await link.close()


def local(
    path: Path,
    plan: Plan,
    names: list[str],
    *,
    deadline: float,
    start: float,
    settle: float = 0.0,
    settle_last: float = 0.0,
) -> list[Home]:
    """A whole federation on this machine, for the demo and tests: every party's directory under one."""
    url = f"nats://127.0.0.1:{broker.free_port()}"
    federation = found(
        path, "demo", plan, broker_url=url, deadline=deadline, settle=settle, settle_last=settle_last, start=start
    )
    homes = [Home.create(path / "analyzer", name="analyzer", role="analyzer")]
    if federation.has_mixer:
        homes.append(Home.create(path / "mixer", name="mixer", role="mixer"))
    homes += [Home.create(path / name, name=name, role="silo", port=broker.free_port()) for name in names]
    federation = admit(path, [home.public for home in homes])
    for home in homes:
        federation.save(home.path / FEDERATION)
    return homes
