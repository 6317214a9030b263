"""Checks at the broker: whether it answers, its certificate, what this party may do there, and its clock.

The checks leave nothing there. To see whether a party may publish on a subject, a message is sent that expects a stream
that does not exist: the stream that would take it answers and refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import urlparse

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError

from fedbandit._words import counted, sized
from fedbandit.federation.doctor.findings import Diagnosis, fails, fine, warns
from fedbandit.federation.doctor.on_disk import holds
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.certificates import expires, expires_shown
from fedbandit.federation.setup.home import Home
from fedbandit.federation.timing import JUMP
from fedbandit.federation.wire import broker as brokers
from fedbandit.federation.wire import parcels
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.federation.wire.link import BrokerAddress, BrokerRefusal, Link
from fedbandit.federation.wire.subjects import OPERATOR, Consumer, taking

__all__ = ["founders", "party"]

PATIENCE = 5.0  # seconds for each answer
ANOTHER_STREAM = 10060  # the broker's error code for a message that expects another stream than the one that takes it
BAD_REQUEST = "400"  # the broker's status for a request that it does not understand


async def party(home: Home) -> list[Diagnosis]:
    """Check the broker as the party sees it, with the party's own key."""
    member = home.party()
    agreement = member.agreement
    address = home.broker(agreement)
    found = [finding for url in address.urls for finding in await _node(url, address)]
    async with _linked(address, home.settings.name, [keys.broker for keys in member.keyring], found) as link:
        if link is not None:
            found += await _allowed(link, agreement, home)
            found += _payload(link, agreement)
    return found


async def founders(path: Path, ca: str | None) -> list[Diagnosis]:
    """Check the broker as its operator sees it: configurations, streams and their limits."""
    agreement, keys = founding.roll_of(path).newest, PartyKeys.load(path / founding.OPERATOR_KEYS)
    address = BrokerAddress(agreement.broker, ca or founding.authority(path) or None)
    found = [finding for file in founding.configurations(path, agreement) for finding in _configured(file)]
    found += [finding for url in address.urls for finding in await _node(url, address)]
    async with _linked(address, OPERATOR, [keys.broker], found) as link:
        if link is not None:
            found += await _streams(link, agreement)
    return found


async def _node(url: str, address: BrokerAddress) -> list[Diagnosis]:
    """Whether a node answers, and how long its certificate is valid."""
    parts = urlparse(url)
    host, port = str(parts.hostname), parts.port or 4222
    do = "start it (`nats-server -c`), or set `broker` in party.json to where it is now; check the firewall in between"
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(host, port)
            info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    except (OSError, ValueError) as error:
        return [fails("broker", f"{url} does not answer ({str(error) or type(error).__name__})", do)]
    found = [fine("broker", f"{url} answers: nats-server {info.get('version', 'of an unknown version')}")]
    try:
        if parts.scheme == "tls":
            found += [await _certificate(writer, url, host)]
    finally:
        writer.close()
    return found


async def _certificate(writer: asyncio.StreamWriter, url: str, host: str) -> Diagnosis:
    """When the certificate that the broker shows expires. Whether it can be trusted is found out by logging in."""
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(PATIENCE):
            await writer.start_tls(blind, server_hostname=host)
    except (OSError, ssl.SSLError) as error:
        return fails("broker's certificate", f"{url} does not speak TLS ({error})", "set `tls` in its configuration")
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return holds("broker's certificate", f"the certificate of {url}", expires_shown(shown))


@contextlib.asynccontextmanager
async def _linked(
    address: BrokerAddress, name: str, keys: Sequence[Ed25519PrivateKey], found: list[Diagnosis]
) -> AsyncIterator[Link | None]:
    """A connection with the party's own key; a failure is added to `found`. If no node answers, none is tried."""
    if not any(finding.check == "broker" and finding.level == "ok" for finding in found):
        yield None
        return
    try:
        link = await asyncio.wait_for(Link.connect_with(address, name, keys), PATIENCE)
    except BrokerRefusal as error:
        do = {
            "certificate": "renew the broker's certificate, or give its authority (broker_ca, --broker-ca)",
            "key": "have the founder admit this party's card again, and reload the broker's configuration",
        }[error.kind]
        found.append(fails("login", str(error), do))
        yield None
    except TimeoutError:
        found.append(fails("login", f"no node of {address.url} let {name} in for {PATIENCE:g} s", "see above"))
        yield None
    else:
        found.append(fine("login", f"{name} is known there"))
        try:
            yield link
        finally:
            await link.close()


async def _allowed(link: Link, agreement: Agreement, home: Home) -> list[Diagnosis]:
    said = agreement.subjects.said_by(home.public)
    found = [await _may_publish(link, subject.replace("*", agreement.silos[0])) for subject in said]
    return [*found, await _may_read(link, agreement.subjects.consumer(home.public))]


async def _may_read(link: Link, consumer: Consumer) -> Diagnosis:
    """Ask for a message with a malformed request: the broker says so, and no message is taken."""
    check = f"reading from {consumer.stream}"
    try:
        answer = await link.client.request(taking(consumer), b"{", timeout=PATIENCE)
    except (TimeoutError, NatsError) as error:
        do = "if it is gone, run `fedbandit federation provision`; if it is forbidden, check the broker's configuration"
        says = f"no answer ({type(error).__name__}): forbidden, or the stream or this party's reader is gone"
        return fails(check, says, do)
    status = (answer.headers or {}).get("Status", "")
    if status == BAD_REQUEST:
        return fine(check, "allowed, and the reader is there")
    return fails(check, f"the broker answers {status}", "run `fedbandit federation provision`: it makes the reader")


async def _may_publish(link: Link, subject: str) -> Diagnosis:
    check = f"publishing on {subject}"
    try:
        await link.js.publish(subject, b"", timeout=PATIENCE, headers={"Nats-Expected-Stream": "none"})
    except APIError as error:
        if error.err_code == ANOTHER_STREAM:
            return fine(check, "allowed, and its stream takes messages")
        do = "run `fedbandit federation provision`, or wait for the broker's quorum"
        return fails(check, str(error.description), do)
    except (TimeoutError, NatsError, NoStreamResponseError) as error:
        do = "if the stream is gone, run `fedbandit federation provision`; if not, check the broker's configuration"
        return fails(check, f"not accepted ({type(error).__name__}): forbidden, or its stream is gone", do)
    return warns(check, "a message was accepted that should have been refused", "is there a stream called none?")


async def _clock(link: Link, stream: str) -> list[Diagnosis]:
    """Compare this machine's clock with the broker's, which says its time in answers about streams."""
    answer = await link.client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=PATIENCE)
    said = json.loads(answer.data).get("ts", "")
    if not said:
        return []
    off = time.time() - datetime.fromisoformat(said[:19] + "+00:00").timestamp()
    do = "correct the clock that is wrong (chronyc, timedatectl): no party ticks by a clock that jumps"
    if not -JUMP < off < JUMP + 1:
        return [fails("clock", f"{off:+.0f} s from the broker's", do)]
    return [fine("clock", "agrees with the broker's to a few seconds")]


def _payload(link: Link, agreement: Agreement) -> list[Diagnosis]:
    largest, taken = parcels.largest(agreement.plan), link.client.max_payload
    says = f"the broker accepts {sized(taken)}, the plan's largest message has {sized(largest)}"
    if largest > taken:
        return [fails("message size", says, "raise max_payload in the broker's configuration and reload it")]
    return [fine("message size", says)]


async def _streams(link: Link, agreement: Agreement) -> list[Diagnosis]:
    wanted, found = founding.limits(agreement), []
    names = list(agreement.subjects.streams())
    for name in names:
        try:
            info = await link.js.stream_info(name)
        except (TimeoutError, NatsError) as error:
            do = "run `fedbandit federation provision`; if it fails, JetStream is off, or most nodes are down"
            found.append(fails(f"stream {name}", f"does not answer ({type(error).__name__})", do))
            continue
        config, state = info.config, info.state
        short = [
            word
            for word, has, needs in (
                ("message size", config.max_msg_size or 0, wanted.message),
                ("messages per sender", config.max_msgs_per_subject or 0, wanted.messages),
            )
            if has < needs
        ]
        behind = [
            str(peer.name) for peer in (info.cluster.replicas if info.cluster else None) or [] if not peer.current
        ]
        copies = f"{config.num_replicas} {'copy' if config.num_replicas == 1 else 'copies'}"
        says = f"{counted(state.messages, 'message')}, {sized(state.bytes)}, {copies}"
        if short:
            do = "run `fedbandit federation provision`: it raises them to the plan's"
            found.append(fails(f"stream {name}", f"made for another plan: {', '.join(short)} too low", do))
        elif behind:
            found.append(warns(f"stream {name}", f"copies are behind at {', '.join(behind)}", "bring those nodes back"))
        else:
            found.append(fine(f"stream {name}", says))
    with contextlib.suppress(TimeoutError, NatsError):
        found += await _clock(link, names[0])
    return found


def _configured(file: Path) -> list[Diagnosis]:
    """Check the broker's configuration: its paths are absolute, and its certificate is there and valid."""
    settings = brokers.read_configuration(file)
    places = [settings["jetstream"]["store_dir"], *settings.get("tls", {}).values()]
    relative = [place for place in places if not Path(place).is_absolute()]
    if relative:
        do = "write absolute paths: nats-server resolves others from the directory it is started in"
        return [fails("broker's configuration", f"{file}: {', '.join(relative)} are not absolute", do)]
    found = [fine("broker's configuration", f"{file} has absolute paths")]
    certificate = Path(settings.get("tls", {}).get("cert_file", ""))
    if certificate.is_file():
        found.append(holds("broker's certificate", str(certificate), expires(certificate.read_bytes())))
    elif "tls" in settings and certificate.parent.is_dir():  # if not, it is on the broker's own machine
        do = "put the broker's certificate and key there, or correct their paths in the configuration"
        found.append(fails("broker's certificate", f"there is no {certificate}, which {file} names", do))
    return found
