"""A party's connection to the broker: it publishes once, reads in order, and reconnects after every outage."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, MaxPayloadError
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from nats.js.errors import APIError
from nats.protocol.parser import AUTHORIZATION_VIOLATION

from fedbandit.federation.wire.keys import public_nkey
from fedbandit.federation.wire.subjects import Consumer, inbox
from fedbandit.federation.wire.taking import SafeClient, Taker

__all__ = ["BrokerAddress", "BrokerRefusal", "Carrier", "Link", "MessageTooLarge"]

log = logging.getLogger(__name__)
RETRY = 0.5  # seconds until a failed call is tried again
WAIT = 5.0  # seconds to wait for an answer of the broker
TOO_LARGE = 10054  # the broker's error code for a message over the limit of a stream
CLOSING = 1.0  # seconds to say goodbye to a broker, which may hang or be cut off
PING = 15  # seconds between pings: after two without an answer the connection counts as dead, and is made again
CHUNK = 64  # messages taken at a time


@dataclass(frozen=True)
class BrokerAddress:
    """Where the broker is: its URL, or the URLs of its nodes, separated by commas. `ca` is the file of a private
    certificate authority; URLs with `tls://` use TLS."""

    url: str
    ca: str | None = None

    @property
    def urls(self) -> list[str]:
        """The URL of each node."""
        return self.url.split(",")

    def context(self) -> ssl.SSLContext | None:
        """The TLS context that verifies the broker's certificate; None without TLS. BrokerRefusal if the file of the
        authority cannot be read."""
        if not self.url.startswith("tls://"):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:  # an SSLError is an OSError, and does not name the file
            says = f"cannot be verified: {self.ca}, which broker_ca in party.json names, cannot be read ({error})"
            raise BrokerRefusal("certificate", f"the certificate of the broker at {self.url} {says}") from None


class BrokerRefusal(PermissionError):
    """The broker refuses this party, and trying again is useless until somebody changes something. `kind` is one of
    `troubles.KINDS`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class MessageTooLarge(ValueError):
    """The broker refuses a message because of its size, and will until its limits are changed."""

    def __init__(self, subject: str, data: bytes, message_id: str) -> None:
        super().__init__(
            f"the broker takes no message of {len(data)} bytes on {subject}: its streams were made for another plan"
            " (`fedbandit federation provision` brings them up to date)"
        )
        self.subject, self.data, self.message_id = subject, data, message_id


class Carrier(Protocol):
    """What a mixer or an analyzer needs from a connection."""

    async def publish(self, subject: str, data: bytes, message_id: str) -> None: ...

    async def read(self, consumer: Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None: ...


class Link:
    """One connection under one key. Messages published while the broker is unreachable are sent when it is back."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self._troubles: dict[str, str] = {}  # by what was tried: why it failed last
        self._refused_size = 0  # bytes of the last message that was too large
        self.ending: asyncio.Task[None] | None = None  # the task that closes it, if the broker no longer knows the key
        self.js: JetStreamContext = client.jetstream(timeout=WAIT)

    @classmethod
    async def connect(cls, address: BrokerAddress, name: str, key: Ed25519PrivateKey) -> Self:
        """Log in at one of the broker's nodes. This waits for a broker that is not up yet. It gives up (BrokerRefusal)
        if the broker does not know the key, or if its certificate cannot be verified."""
        client = SafeClient()
        # nats-py can sign with a callback, but gets the public nkey only from an optional package.
        client._public_nkey = public_nkey(key.public_key().public_bytes_raw())
        client._auth_configured = True
        loop = asyncio.get_running_loop()
        refused: asyncio.Future[None] = loop.create_future()
        links: list[Link] = []  # this connection, once it is made
        reasons: list[tuple[str, str]] = []  # one of several nodes may be set up wrongly, so all must refuse

        async def failed(error: Exception) -> None:
            log.warning("broker: %s", error or type(error).__name__)
            reason = _hopeless(error, name)
            if reason is not None and links:  # the broker has dropped the key: the party may have another one
                links[0].ending = links[0].ending or loop.create_task(links[0].close())
            elif reason is not None and not refused.done():
                reasons.append(reason)
                if len(reasons) >= len(address.urls):
                    refused.set_result(None)

        connecting = asyncio.create_task(
            client.connect(
                address.urls,
                name=name,
                signature_cb=lambda nonce: base64.b64encode(key.sign(nonce.encode())),
                inbox_prefix=inbox(name),
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                connect_timeout=5,
                ping_interval=PING,
                max_outstanding_pings=2,
                tls=address.context(),
                error_cb=failed,
            )
        )
        either: set[asyncio.Future[Any]] = {connecting, refused}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            given_up = not connecting.done()
            await _end(connecting)
        if given_up:
            kind, reason = reasons[-1]
            raise BrokerRefusal(kind, f"the broker at {address.url} {reason}")
        connecting.result()
        link = cls(client, name)
        links.append(link)
        return link

    @classmethod
    async def connect_with(cls, address: BrokerAddress, name: str, keys: Sequence[Ed25519PrivateKey]) -> Self:
        """Log in with the first of a party's keys that the broker knows. The broker may learn of new keys before or
        after the party does."""
        for key in keys[:-1]:
            try:
                return await cls.connect(address, name, key)
            except BrokerRefusal as refusal:
                if refusal.kind != "key":
                    raise
        return await cls.connect(address, name, keys[-1])

    @property
    def trouble(self) -> str | None:
        """Why nothing is published or read although there is a connection; None if all is well."""
        return next(iter(self._troubles.values()), None)

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        """Publish a message; return when the broker has it on disk. A repeat of the same id and data is stored once.
        MessageTooLarge if it is over the broker's limits: trying again helps only once they are changed.

        The broker compares ids alone, whoever the sender is. So the id that it sees includes the hash of the data,
        which nobody knows before they are published: otherwise one party could use up the id of another's message,
        which the broker would then drop.
        """
        unique, said = f"{message_id}.{hashlib.sha256(data).hexdigest()}", False
        while True:
            try:
                await self.js.publish(subject, data, headers={"Nats-Msg-Id": unique})
                self._troubles.pop("publishing", None)
                if len(data) >= self._refused_size:
                    self._troubles.pop("size", None)
                _go_on()
                return
            except (OSError, NatsError) as error:  # TimeoutError is an OSError
                if self.client.is_closed:
                    raise
                _go_on()
                if _too_large(error):
                    refusal = MessageTooLarge(subject, data, message_id)
                    self._troubles["size"], self._refused_size = str(refusal), len(data)
                    raise refusal from None
                self._troubles["publishing"] = _unavailable(subject, error)
                if not said:  # once per message: a broker may be without a majority for days
                    log.warning("publishing %s: %s; trying until it works", subject, _named(error))
                said = True
                await asyncio.sleep(RETRY)

    async def read(self, consumer: Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """Pass messages to `handle`, in order, for ever. They are acknowledged when `handle` has returned."""
        taker = Taker(self.client, consumer, WAIT)
        try:
            while True:
                messages = await self._taken(taker, consumer)
                if messages:
                    await handle([message.data for message in messages])
                    await self._acknowledge(messages, consumer)
        finally:
            with contextlib.suppress(OSError, NatsError):
                await taker.close()

    async def _taken(self, taker: Taker, consumer: Consumer) -> list[Msg]:
        """The next messages, after as many attempts as it takes; raises only if the connection was closed."""
        wait, said = RETRY, False
        while True:
            _go_on()
            try:
                messages = await taker.take(CHUNK)
                self._troubles.pop("reading", None)
                _go_on()
                return messages
            except Exception as error:  # deliberately broad: whatever one message causes, the next ones are read
                if self.client.is_closed:
                    raise
                if self.client.is_connected:
                    self._troubles["reading"] = _unavailable(consumer.stream, error)
                    if not said:
                        log.warning("reading %s: %s; trying until it works", consumer.stream, _named(error))
                    said = True
                await asyncio.sleep(wait)
                wait = min(WAIT, 2 * wait) if self.client.is_connected else RETRY

    async def _acknowledge(self, messages: list[Msg], consumer: Consumer) -> None:
        try:
            for message in messages:
                await message.ack()
        except Exception as error:  # they are delivered again, which changes nothing
            log.warning("acknowledging to %s: %s", consumer.stream, _named(error))

    async def close(self) -> None:
        """Close the connection. It is not an error if the broker is gone or does not answer: the caller may be
        stopping."""
        if self.client.is_closed:
            return
        closing = asyncio.ensure_future(self.client.close())
        try:
            await asyncio.wait({closing}, timeout=CLOSING)
        finally:
            if not closing.done():
                closing.cancel()
                _abort(self.client)
        with contextlib.suppress(OSError, NatsError, asyncio.CancelledError):
            await closing


def _abort(client: Client) -> None:
    """Close a connection without a goodbye: over TLS, that waits half a minute for the other side's."""
    writer = getattr(client._transport, "_io_writer", None)  # nats-py has no word for it
    if writer is not None:
        writer.transport.abort()


def _go_on() -> None:
    """Raise CancelledError if this task was cancelled: the client waits with `wait_for`, which loses a cancellation
    that comes together with the answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _named(error: Exception) -> str:
    """An error in one line: some of the broker's have the headers of its answer in further lines."""
    return f"{type(error).__name__} {str(error).partition(chr(10))[0]}".strip()


def _unavailable(what: str, error: Exception) -> str:
    return (
        f"the broker answers, but its stream for {what} does not ({type(error).__name__}): JetStream is off or has no"
        " quorum, or the stream is gone (`fedbandit federation provision` creates it again)"
    )


def _too_large(error: Exception) -> bool:
    return isinstance(error, MaxPayloadError) or (isinstance(error, APIError) and error.err_code == TOO_LARGE)


def _hopeless(error: Exception, name: str) -> tuple[str, str] | None:
    """The kind and the text of an error after which trying again is useless; None for any other error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"shows a certificate that cannot be verified ({error.verify_message}); give its authority: --broker-ca"
        return "certificate", why
    return ("key", f"does not know {name}'s key") if _denied(error) else None


async def _end(connecting: asyncio.Task[None]) -> None:
    """Cancel the attempt to connect until it has ended: if it fails at that very moment, it hides the cancellation and
    tries again."""
    while not connecting.done():
        connecting.cancel()
        await asyncio.wait({connecting}, timeout=RETRY)


def _denied(error: Exception) -> bool:
    """Whether the broker does not know the key. While connecting, nats-py only passes on the server's text."""
    return isinstance(error, AuthorizationError) or AUTHORIZATION_VIOLATION in str(error).lower()
