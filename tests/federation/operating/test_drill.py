"""The drill: ten faults, one after the other. Each is named within ten seconds, in words (by `doctor` or /readyz) and
by a metric, and decisions go on wherever they can."""

import datetime
import json
import resource
import signal
import sqlite3
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.timing import Reading
from fedbandit.federation.wire import broker
from tests.federation.conftest import postgres_server
from tests.federation.operating import running as drill
from tests.federation.operating.running import START, Running, changed, decides, doctor, get, metrics, until
from tests.federation.test_process import founded

pytestmark = pytest.mark.torture


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("drill")) as running:
        yield running.everybody()


def well(federation, name):
    """The party works again."""
    until(lambda: get(federation.homes[name], "/readyz").status_code == 200, START)


def test_1_the_broker_is_down(federation):
    federation.broker.kill()
    for name in ("a", "mixer"):
        home = federation.homes[name]
        until(lambda home=home: metrics(home)["fedbandit_broker_connected"] == 0)
        assert not get(home, "/readyz").json()["connected"]
    assert "broker" in drill.problems(federation.homes["mixer"])
    assert decides(federation.homes["a"])
    code, found = doctor(federation.homes["a"].path)
    assert code == 2
    assert "does not answer" in found["broker", "failure"]["says"]
    federation.broker.start()
    for name in federation.homes:
        well(federation, name)


@pytest.mark.parametrize("name", ["a", "mixer"])
def test_2_the_store_is_full(federation, name):
    """No file of the process may grow any more: what a full disk says, another number is said for."""
    home, pid = federation.homes[name], federation.processes[name].pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        until(lambda: drill.has_problem(home, "store"))
        assert metrics(home)["fedbandit_store_works"] == 0
        assert name != "a" or decides(home)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    well(federation, name)


def test_3_the_clock_is_wrong(federation):
    """Its silo last read a time an hour after now: the clock was set back since."""
    home = federation.homes["a"]
    federation.stop("a")
    store = home.path / "silo.db"
    with sqlite3.connect(store) as sql:
        ((kept,),) = sql.execute("SELECT value FROM states WHERE name = 'clock'").fetchall()
        last = Reading.decode(kept)
        wrong = last._replace(wall=last.wall + 3600).encode()
        sql.execute("UPDATE states SET value = ? WHERE name = 'clock'", (wrong,))
    sql.close()
    code, found = doctor(home.path)
    assert (code, "off by -3600 s" in found["clock", "failure"]["says"]) == (2, True)
    federation.start("a", vouched=False)
    federation.up("a")
    until(lambda: drill.has_problem(home, "clock"))
    assert decides(home)
    federation.stop("a")
    federation.start("a")
    federation.up("a")
    well(federation, "a")


def test_6_a_silo_stalls(federation):
    """Frozen, not dead: its connections stand."""
    analyzer, waited = federation.homes["analyzer"], 'fedbandit_silo_waited_for{silo="b"}'
    federation.signal("b", signal.SIGSTOP)
    try:
        until(lambda: metrics(analyzer)[waited] == 1, federation.soon)
        until(lambda: metrics(analyzer)['fedbandit_silo_missed_in_a_row{silo="b"}'] > 0, federation.soon)
        assert metrics(analyzer)[waited.replace('"b"', '"a"')] in (0, 1)  # it has not sent yet, or has
        assert metrics(analyzer)["fedbandit_syncs_skipped_total"] > 0
        assert decides(federation.homes["a"])
    finally:
        federation.stop("b")
        federation.start("b")
    until(lambda: metrics(analyzer)['fedbandit_silo_missed_in_a_row{silo="b"}'] == 0, START)


def test_7_the_mixer_is_down(federation):
    federation.signal("mixer", signal.SIGKILL)
    federation.processes.pop("mixer").wait()
    code, found = doctor(federation.homes["mixer"].path)
    assert (code, "is not running" in found["port", "warning"]["says"]) == (1, True)
    for name in ("analyzer", "a"):
        home = federation.homes[name]
        until(lambda home=home: metrics(home)["fedbandit_sync_overdue_seconds"] > federation.deadline, federation.soon)
    assert decides(federation.homes["a"])
    federation.start("mixer")
    federation.up("mixer")
    until(lambda: metrics(federation.homes["a"])["fedbandit_sync_overdue_seconds"] < federation.deadline, START)


def test_9_a_key_cannot_be_read(federation):
    home = federation.homes["a"]
    key = home.path / "party.key"
    key.chmod(0o644)
    try:
        until(lambda: metrics(home)["fedbandit_keys_readable"] == 0)
        code, found = doctor(home.path)
        assert (code, "owner only" in found["keys", "failure"]["says"]) == (2, True)
        assert decides(home)
    finally:
        key.chmod(0o600)
    assert metrics(home)["fedbandit_keys_readable"] == 1


def test_10_versions_do_not_fit(federation):
    """A mixer of another version: it reads and writes another format of messages."""
    federation.stop("mixer")
    federation.stop("a")
    later = "from fedbandit.federation.syncs import keeper; keeper.FORMAT = 99\n"
    work = f"run(Path({str(federation.homes['mixer'].path)!r}))"
    program = f"{later}from pathlib import Path\nfrom fedbandit.federation.process import run\n{work}"
    federation.start("mixer", program=[sys.executable, "-c", program])
    federation.up("mixer")
    federation.start("a")
    federation.up("a")
    home = federation.homes["a"]
    until(lambda: drill.has_problem(home, "format"), START)
    assert decides(home)
    code, found = doctor(home.path)
    assert code == 2
    assert "mixer reads format 99;" in found["versions", "failure"]["says"]
    for name in ("mixer", "a"):
        federation.stop(name)
    federation.start("mixer")
    federation.start("a")
    federation.up("a")
    well(federation, "a")


def expired(path):
    """A certificate of 127.0.0.1 that held until yesterday, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - 9 * day).not_valid_after(now - day)
    certificate = made.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (path / "broker.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (path / "broker.pem").write_bytes(private)


def test_4_the_certificate_has_expired(federation, tmp_path):
    """The broker moves to another port, where it shows an expired certificate; the silo is told where it is now."""
    expired(tmp_path)
    settings = json.loads((federation.path / "nats.conf").read_text())
    settings |= {"port": broker.free_port(), "jetstream": {"store_dir": str(tmp_path / "jetstream")}}
    settings["tls"] = {"cert_file": str(tmp_path / "broker.crt"), "key_file": str(tmp_path / "broker.pem")}
    (tmp_path / "nats.conf").write_text(json.dumps(settings))
    url = f"tls://127.0.0.1:{settings['port']}"
    federation.stop("b")
    home = changed(federation.homes["b"], broker=url, broker_ca=str(tmp_path / "broker.crt"))
    with broker.BrokerProcess(tmp_path / "nats.conf", tmp_path / "broker.log"):
        federation.start("b")
        federation.up("b")
        until(lambda: drill.has_problem(home, "certificate"))
        assert decides(home)
        code, found = doctor(home.path)
        assert (code, "expired" in found["broker's certificate", "failure"]["says"]) == (2, True)
    federation.stop("b")
    changed(home, broker="", broker_ca="")
    federation.start("b")
    federation.up("b")
    well(federation, "b")


def test_5_the_plan_is_another(federation, tmp_path):
    """A silo that was put up anew with the plan of another term: it stays, decides, and says so."""
    federation.stop("b")
    home = federation.homes["b"]
    file = home.path / FEDERATION
    whole = file.read_text()
    other = json.loads(whole)
    other["plan"]["rounds"] -= 1
    file.write_text(json.dumps(other))
    code, found = doctor(home.path)
    assert (code, "does not know plan" in found["plan", "failure"]["says"]) == (2, True)
    changed(home, store=str(tmp_path / "fresh.db"))
    process = federation.start("b", "--stay")
    federation.up("b")
    until(lambda: drill.has_problem(home, "plan"), START)
    assert decides(home)
    until(lambda: metrics(federation.homes["analyzer"])["fedbandit_parties_under_another_plan"] == 1)
    assert process.poll() is None
    federation.stop("b")
    ended = federation.start("b")  # without --stay it ends, so that a service manager does not start it again
    assert ended.wait(START) == 3
    federation.processes.pop("b")
    file.write_text(whole)
    changed(home, store="")


def test_8_the_database_is_away(tmp_path):
    with postgres_server() as server:
        silo = Home.load(founded(tmp_path, server.url).path)
        running = Running.__new__(Running)
        running.path, running.homes, running.processes = tmp_path, {"a": silo}, {}
        running.start("a")
        try:
            running.up("a")
            until(lambda: metrics(silo)["fedbandit_store_works"] == 1, START)
            server.stop()
            until(lambda: "store" in drill.problems(silo))
            until(lambda: metrics(silo)["fedbandit_store_works"] == 0)
            assert decides(silo)
            code, found = doctor(silo.path)
            assert (code, ("store", "failure") in found) == (2, True)
            server.start()
            until(lambda: metrics(silo)["fedbandit_store_works"] == 1, START)
        finally:
            running.stop("a")
