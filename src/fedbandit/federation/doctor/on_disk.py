"""What can be seen on the party's own machine: files and who may read them, certificates, room, limits, its port."""

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

from fedbandit.federation.doctor.asking import ANYWHERE, ask
from fedbandit.federation.doctor.findings import Diagnosis, fails, fine, warns
from fedbandit.federation.setup.certificates import authority, check_pair, expires
from fedbandit.federation.setup.home import FEDERATION, TOKEN, Home, Settings
from fedbandit.federation.timing import DAY

__all__ = ["certificates", "descriptors", "disk", "federation", "files", "holds", "keys", "port", "token"]

SOON = 30 * DAY  # a certificate that ends before then is to be renewed
FEW, SCARCE = 256 * 2**20, 2 * 2**30  # bytes of room
DESCRIPTORS = 1024


def keys(home: Home) -> Iterator[Diagnosis]:
    """The private keys, those that were made later too."""
    names = [file.name for file in home.key_files()]
    _ = home.keys, home.later_keys()
    yield fine("keys", f"{', '.join(names)} can be read, by the owner only")


def token(home: Home) -> Iterator[Diagnosis]:
    """What applications show. A silo has one from the beginning, the others once they say how they are."""
    if home.settings.role == "silo" or (home.path / TOKEN).exists():
        home.token()
        yield fine("token", f"{TOKEN} is whole, and can be read by its owner only")


def files(path: Path) -> Iterator[Diagnosis]:
    """Who may look into the directory: keys and store are in it."""
    mode, owner = stat.S_IMODE(path.stat().st_mode), path.stat().st_uid
    if mode & 0o077:
        yield warns("directory", f"others may look into it: its mode is {mode:o}", f"chmod 700 {path}")
    elif owner != os.geteuid():
        do = "run this, and the party, as the user whom the directory belongs to"
        yield warns("directory", f"belongs to user {owner}, this is user {os.geteuid()}", do)
    else:
        yield fine("directory", "only its owner may look into it")


def federation(home: Home) -> Iterator[Diagnosis]:
    """The agreed file: readable, complete, and with this party in it."""
    agreement = home.agreement()
    agreement.complete()
    agreement.check_keys()
    home.party()
    yield fine("federation", f"{FEDERATION} is complete and knows this party; fingerprint {agreement.fingerprint}")


def certificates(settings: Settings) -> Iterator[Diagnosis]:
    """The certificate of the party's own service, and the authority of the broker's."""
    if settings.tls_certificate:
        check_pair(settings.tls_certificate, settings.tls_key)
        certificate = Path(settings.tls_certificate)
        yield holds("certificate", str(certificate), expires(certificate.read_bytes()))
    if settings.broker_ca:
        authority(settings.broker_ca)
        yield holds("broker's authority", settings.broker_ca, expires(Path(settings.broker_ca).read_bytes()))


def holds(check: str, what: str, until: float) -> Diagnosis:
    """For how long a certificate still holds."""
    left, day = until - time.time(), time.strftime("%Y-%m-%d", time.gmtime(until))
    if left <= 0:
        return fails(check, f"{what} has expired on {day}", "renew it, and restart whoever shows it")
    if left < SOON:
        return warns(check, f"{what} holds until {day}", "renew it, and restart whoever shows it")
    return fine(check, f"{what} holds until {day}")


def disk(path: Path) -> Iterator[Diagnosis]:
    """Room where the store is."""
    free = shutil.disk_usage(path).free
    says, do = (
        f"{free / 2**30:.1f} GB are free on the disk of {path}",
        "make room: a store that is full takes no reward",
    )
    if free < FEW:
        yield fails("disk", says, do)
    else:
        yield fine("disk", says) if free >= SCARCE else warns("disk", says, do)


def descriptors() -> Iterator[Diagnosis]:
    """How many files and connections a process may have open; what is started from here may have as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    says = f"a process that is started from here may open {soft}"
    if soft < DESCRIPTORS:
        yield warns("descriptors", says, f"raise the limit (ulimit -n, LimitNOFILE=); {hard} are allowed")
    else:
        yield fine("descriptors", says)


def port(home: Home) -> Iterator[Diagnosis]:
    """Whether the port is free, or served by this very party."""
    number, settings = home.served_on, home.settings
    if not number:
        yield warns(
            "port", "this party says nowhere how it is", "set health_port in party.json and restart it, to be watched"
        )
        return
    host = ANYWHERE.get(settings.host, settings.host)
    try:
        socket.create_connection((host, number), timeout=2).close()
    except OSError:
        yield warns("port", f"nobody answers on {host} port {number}: the party does not run", "start it")
        return
    try:
        answer = ask(home, "/metrics", token=True)
    except (OSError, ssl.SSLError) as error:
        yield fails("port", f"whoever answers on {host} port {number} is not this party ({error})", _OTHER)
        return
    if answer.status != 200:
        yield fails("port", f"another program serves {host} port {number} (it answers {answer.status})", _OTHER)
        return
    yield fine("port", f"served by this party on {host} port {number}")
    ready = ask(home, "/readyz")
    if ready.body.get("problems"):
        for kind, says in ready.body["problems"].items():
            yield fails(f"running: {kind}", says, "see docs/operating.md, what each kind means")
    else:
        yield fine("running", "the running party says that nothing keeps it from working")


_OTHER = "end that program, or give this party another port in party.json; if it is this party, restart it"
