"""Checks on the party's own machine: files and who may read them, certificates, disk space, limits, and its port."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from fedbandit._words import sized
from fedbandit.federation.doctor.asking import ANYWHERE, ask
from fedbandit.federation.doctor.findings import Diagnosis, fails, fine, warns
from fedbandit.federation.setup.certificates import authority, check_pair, expires
from fedbandit.federation.setup.home import FEDERATION, TOKEN, Home, Settings
from fedbandit.federation.timing import DAY

__all__ = ["certificates", "descriptors", "disk", "federation", "files", "holds", "keys", "port", "token"]

SOON = 30 * DAY  # a certificate that expires earlier should be renewed
FEW, SCARCE = 256 * 2**20, 2 * 2**30  # bytes free on the disk
DESCRIPTORS = 1024


def keys(home: Home) -> Iterator[Diagnosis]:
    """Check the private keys, including those made later."""
    names = [file.name for file in home.key_files()]
    _ = home.keys, home.later_keys()
    yield fine("keys", f"{', '.join(names)} can be read, by the owner only")


def token(home: Home) -> Iterator[Diagnosis]:
    """Check the token that applications show. A silo always has one, other parties if they serve their state."""
    if home.settings.role == "silo" or (home.path / TOKEN).exists():
        home.token()
        yield fine("token", f"{TOKEN} is intact and can be read by its owner only")


def files(path: Path) -> Iterator[Diagnosis]:
    """Check who may read the directory: it contains keys and store."""
    mode, owner = stat.S_IMODE(path.stat().st_mode), path.stat().st_uid
    if mode & 0o077:
        yield warns("directory", f"others may read it: its mode is {mode:o}", f"chmod 700 {path}")
    elif owner != os.geteuid():
        do = "run this, and the party, as the user who owns the directory"
        yield warns("directory", f"belongs to user {owner}, this is user {os.geteuid()}", do)
    else:
        yield fine("directory", "only its owner may read it")


def federation(home: Home) -> Iterator[Diagnosis]:
    """Check the agreed file: it can be read, is complete, and has this party in it."""
    agreement = home.agreement()
    agreement.complete()
    agreement.check_keys()
    home.party()
    yield fine("federation", f"{FEDERATION} is complete and knows this party; fingerprint {agreement.fingerprint}")


def certificates(settings: Settings) -> Iterator[Diagnosis]:
    """Check the certificate of the party's own service, and the authority behind the broker's certificate."""
    if settings.tls_certificate:
        check_pair(settings.tls_certificate, settings.tls_key)
        certificate = Path(settings.tls_certificate)
        yield holds("certificate", str(certificate), expires(certificate.read_bytes()))
    if settings.broker_ca:
        authority(settings.broker_ca)
        yield holds("broker's authority", settings.broker_ca, expires(Path(settings.broker_ca).read_bytes()))


def holds(check: str, what: str, until: float) -> Diagnosis:
    """A finding about how long a certificate is still valid."""
    left, day = until - time.time(), time.strftime("%Y-%m-%d", time.gmtime(until))
    if left <= 0:
        return fails(check, f"{what} expired on {day}", "renew it, and restart the program that uses it")
    if left < SOON:
        return warns(check, f"{what} is valid until {day}", "renew it, and restart the program that uses it")
    return fine(check, f"{what} is valid until {day}")


def disk(path: Path) -> Iterator[Diagnosis]:
    """Check the free space on the disk of the store."""
    free = shutil.disk_usage(path).free
    says, do = (
        f"{sized(free)} are free on the disk of {path}",
        "make room: on a full disk the store takes no rewards",
    )
    if free < FEW:
        yield fails("disk", says, do)
    else:
        yield fine("disk", says) if free >= SCARCE else warns("disk", says, do)


def descriptors() -> Iterator[Diagnosis]:
    """Check how many files and connections a process may have open; a party started from here has the same limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    says = f"a process that is started from here may have {soft} files open"
    if soft < DESCRIPTORS:
        yield warns("descriptors", says, f"raise the limit (ulimit -n, LimitNOFILE=); {hard} are allowed")
    else:
        yield fine("descriptors", says)


def port(home: Home) -> Iterator[Diagnosis]:
    """Check that the port is served by this party, and what the running party reports."""
    number, settings = home.served_on, home.settings
    if not number:
        yield warns(
            "port", "this party reports its state nowhere", "set health_port in party.json and restart it to monitor it"
        )
        return
    host = ANYWHERE.get(settings.host, settings.host)
    try:
        socket.create_connection((host, number), timeout=2).close()
    except OSError:
        yield warns("port", f"nobody answers on {host} port {number}: the party is not running", "start the party")
        return
    try:
        answer = ask(home, "/metrics", token=True)
    except (OSError, ssl.SSLError) as error:
        yield fails("port", f"the program that answers on {host} port {number} is not this party ({error})", _OTHER)
        return
    if answer.status != 200:
        yield fails("port", f"another program serves {host} port {number} (it answers {answer.status})", _OTHER)
        return
    yield fine("port", f"served by this party on {host} port {number}")
    ready = ask(home, "/readyz")
    if ready.body.get("problems"):
        for kind, says in ready.body["problems"].items():
            yield fails(f"running: {kind}", says, "docs/operating.md says what each kind means")
    else:
        yield fine("running", "the running party reports no problem")


_OTHER = "stop that program, or give this party another port in party.json; if it is this party, restart it"
