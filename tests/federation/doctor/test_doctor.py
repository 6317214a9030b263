"""`fedbandit doctor` and `fedbandit health`: each thing that can be wrong is named, with what to do; exit codes."""

import asyncio
import datetime
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from fedbandit._validate import ArgumentError
from fedbandit.cli.main import app
from fedbandit.federation.doctor import at_broker, on_disk
from fedbandit.federation.doctor.examination import examine
from fedbandit.federation.doctor.findings import examined, fails, fine, warns, worst
from fedbandit.federation.http.app import App
from fedbandit.federation.http.routes import Route
from fedbandit.federation.http.schemas import Health, NotReady
from fedbandit.federation.process import SERVER, bind
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import check_broker
from fedbandit.federation.setup.home import FEDERATION, Settings
from fedbandit.federation.store import open_engine
from fedbandit.federation.telemetry import traces
from fedbandit.federation.timing import DAY
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.link import BrokerAddress, Link
from tests.federation.operating.running import changed
from tests.federation.test_process import founded


def levels(findings):
    return {one.check: one.level for one in findings}


def run(*words):
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def silo(tmp_path):
    """A silo that was started once; its broker does not run."""
    home = founded(tmp_path)
    engine = open_engine(home.path / "silo.db")
    bind(engine, home.agreement())
    engine.close()
    return home


def test_a_party_whose_broker_is_down_has_that_failure_and_no_other(silo):
    found = levels(examine(silo.path))
    assert {check for check, level in found.items() if level == "failure"} == {"broker"}
    assert (found["keys"], found["plan"], found["store"], found["port"]) == ("ok", "ok", "ok", "warning")
    done = run("doctor", str(silo.path), "--json")
    assert done.exit_code == 2
    shown = json.loads(done.stdout)
    assert shown["code"] == 2
    assert all(one["do"] for one in shown["findings"] if one["level"] == "failure")
    assert "-> " in run("doctor", str(silo.path)).stdout


def test_with_its_broker_up_nothing_fails_and_nothing_is_left_there(silo, tmp_path):
    with broker.BrokerProcess(tmp_path / founding.BROKER_CONFIG, tmp_path / "broker.log"):
        asyncio.run(founding.provision(tmp_path))
        found = levels(examine(silo.path))
        assert worst(examine(silo.path)) == 1  # it does not run: a warning
        assert {level for check, level in found.items() if check.startswith(("publishing", "reading"))} == {"ok"}
        streams = [one for one in examine(tmp_path) if one.check.startswith("stream")]
        assert {one.level for one in streams} == {"ok"}
        assert all(one.says.startswith("0 messages") for one in streams)
        assert levels(examine(tmp_path))["clock"] == "ok"


def test_messages_that_are_kept_for_longer_than_asked_are_named(silo, tmp_path):
    """A smaller number was taken without a word, and changed nothing."""
    with broker.BrokerProcess(tmp_path / founding.BROKER_CONFIG, tmp_path / "broker.log"):
        for days, said in (("60", ""), ("10", "messages are kept for 60 days as before, not 10"), ("61", "")):
            done = run("federation", "provision", str(tmp_path), "--keep-days", days)
            assert done.exit_code == 0, done.output
            assert said in done.stdout
            assert ("messages are kept" in done.stdout) == bool(said)


def test_a_broker_without_streams_or_with_another_key_is_noticed(silo, tmp_path):
    file = tmp_path / founding.BROKER_CONFIG
    with broker.BrokerProcess(file, tmp_path / "broker.log"):
        found = levels(asyncio.run(at_broker.party(silo)))
        assert {level for check, level in found.items() if check.startswith(("publishing", "reading"))} == {"failure"}
    settings = json.loads(file.read_text())
    settings["accounts"][f"party-{silo.settings.name}"]["users"] = []
    file.write_text(json.dumps(settings))
    with broker.BrokerProcess(file, tmp_path / "broker.log"):
        found = {one.check: one for one in asyncio.run(at_broker.party(silo))}
        assert (found["login"].level, "does not know" in found["login"].says) == ("failure", True)


def test_keys_and_directories_that_others_can_read(silo):
    (silo.path / "party.key").chmod(0o640)
    assert levels(examine(silo.path))["keys"] == "failure"
    (silo.path / "party.key").chmod(0o600)
    silo.path.chmod(0o755)
    assert levels(examine(silo.path))["directory"] == "warning"


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda data: data["plan"].update(rounds=999), "does not know plan"),
        (lambda data: data["timing"].update(deadline=7.0), "have changed since"),
    ],
)
def test_another_plan_or_another_agreement_than_the_stores(silo, change, says):
    data = json.loads((silo.path / FEDERATION).read_text())
    change(data)
    (silo.path / FEDERATION).write_text(json.dumps(data))
    (plan,) = [one for one in examine(silo.path) if one.check == "plan"]
    assert (plan.level, says in plan.says) == ("failure", True)


def test_a_store_that_is_damaged_or_of_another_version(silo):
    engine = open_engine(silo.path / "silo.db")
    with engine.transaction() as sql:
        sql.all("UPDATE meta SET value = ? WHERE key = 'format'", (b"99",))
    engine.close()
    (found,) = [one for one in examine(silo.path) if one.check == "store format"]
    assert (found.level, "99" in found.says) == ("failure", True)
    whole = (silo.path / "silo.db").read_bytes()
    (silo.path / "silo.db").write_bytes(whole[:4096] + os.urandom(4096) + whole[8192:])
    assert "failure" in [one.level for one in examine(silo.path) if one.check == "store"]


def test_what_is_no_party_is_one_line(tmp_path):
    assert run("doctor", str(tmp_path)).exit_code == 2
    assert "federation join" in run("doctor", str(tmp_path)).stdout
    (tmp_path / "party.json").write_text('{"name": "a", "role": "king"}')
    assert "role must be one of" in run("doctor", str(tmp_path)).stdout


def test_room_and_limits(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    assert [one.level for one in on_disk.disk(tmp_path)] == ["failure"]
    monkeypatch.setattr("resource.getrlimit", lambda which: (100, 200))
    assert [one.level for one in on_disk.descriptors()] == ["warning"]


def test_the_worst_finding_is_the_exit_code_and_an_error_is_a_finding():
    assert worst([]) == worst([fine("a", "")]) == 0
    assert worst([fine("a", ""), warns("b", "", "")]) == 1
    assert worst([fails("c", "", ""), warns("b", "", "")]) == 2

    def broken():
        yield fine("a", "")
        raise OSError("gone")

    assert [one.level for one in examined("x", broken, "look")] == ["ok", "failure"]


# -- certificates -----------------------------------------------------------------------------------------------------


def certified(path, days):
    """A certificate under another name than it is called by, that holds for so many days."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "silo.example.org")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - datetime.timedelta(days=400))
    signed = made.not_valid_after(now + datetime.timedelta(days=days)).sign(key, hashes.SHA256())
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    path.mkdir(exist_ok=True)
    (path / "cert.pem").write_bytes(signed.public_bytes(pem))
    (path / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    return str(path / "cert.pem"), str(path / "key.pem")


@pytest.mark.parametrize("days, level", [(-1, "failure"), (10, "warning"), (100, "ok")])
def test_a_certificate_that_ends(tmp_path, days, level):
    certificate, key = certified(tmp_path / "own", days)
    settings = Settings("a", "silo", tls_certificate=certificate, tls_key=key)
    assert [one.level for one in on_disk.certificates(settings)] == [level]
    assert on_disk.holds("x", "it", time.time() + days * DAY).level == level


class Served:
    """A party's answers, over TLS, in a thread."""

    def __init__(self, home, certificate, key, ready):
        async def health() -> Health:
            """Live."""
            return Health("ok", "running")

        async def readiness() -> NotReady:
            """Not be ready."""
            return NotReady(False, False, "the broker is away", {"broker": "the broker is away"})

        routes = [Route("GET", "/healthz", health, token=False)]
        routes += [] if ready else [Route("GET", "/readyz", readiness, token=False)]
        options = {"ssl_certfile": certificate, "ssl_keyfile": key, "port": home.served_on}
        config = uvicorn.Config(App(routes, home.token()), log_level="critical", lifespan="off", **options, **SERVER)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.02)

    def __exit__(self, *error):
        self.server.should_exit = True
        self.thread.join(20)


def test_health_asks_over_tls_with_the_partys_own_certificate_and_nobody_else(silo, tmp_path):
    certificate, key = certified(tmp_path / "own", 100)
    home = changed(silo, tls_certificate=certificate, tls_key=key)
    assert run("health", str(home.path)).exit_code == 2  # it does not run
    with Served(home, certificate, key, ready=False):
        assert run("health", str(home.path), "--alive").exit_code == 0
        unready = run("health", str(home.path))
        assert (unready.exit_code, "the broker is away" in unready.stdout) == (1, True)
    other_certificate, other_key = certified(tmp_path / "other", 100)
    with Served(home, other_certificate, other_key, ready=False):
        assert run("health", str(home.path), "--alive").exit_code == 2
        assert levels(on_disk.port(home))["port"] == "failure"


def test_a_mixer_without_a_port_says_that_it_says_nothing(tmp_path):
    with pytest.raises(ArgumentError, match="health_port"):
        Settings("a", "silo", health_port=8081)
    assert Settings("m", "mixer", health_port=8081).health_port == 8081


# -- where the broker is ----------------------------------------------------------------------------------------------


def test_a_party_may_be_told_where_the_broker_is_now_and_tries_every_node(silo, tmp_path):
    """The first address is dead. The federation's file, and what the store is tied to, stay as they are."""
    alive = silo.agreement().broker
    home = changed(silo, broker=f"nats://127.0.0.1:{broker.free_port()},{alive}")
    assert home.broker(home.agreement()) == BrokerAddress(home.settings.broker)

    async def connected():
        link = await asyncio.wait_for(
            Link.connect(home.broker(home.agreement()), home.public.name, home.keys.broker), 20
        )
        known = link.client.is_connected
        await link.close()
        return known

    with broker.BrokerProcess(tmp_path / founding.BROKER_CONFIG, tmp_path / "broker.log"):
        assert asyncio.run(connected())
    engine = open_engine(home.path / "silo.db")
    bind(engine, home.agreement())
    engine.close()


def test_addresses_are_of_one_kind():
    check_broker("tls://a:4222,tls://b:4222")
    for wrong in ("tls://a:4222,nats://b:4222", "nats://a:4222,", "nats://a:4222,foo"):
        with pytest.raises(ArgumentError, match="broker must be"):
            check_broker(wrong)


# -- traces -----------------------------------------------------------------------------------------------------------


def test_traces_go_to_a_collector_and_cost_nothing_when_they_are_off():
    assert traces.span("tick", sync=1) is traces.span("learn")
    assert not traces.on()
    pytest.importorskip("opentelemetry.sdk", reason="pip install 'fedbandit[otel]'")
    got = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stop = traces.set_up(f"http://127.0.0.1:{server.server_port}", party="hospital-a", role="silo")
    assert traces.on()
    with traces.span("tick", sync=7):
        time.sleep(0.01)
    stop()
    server.shutdown()
    assert not traces.on()
    ((path, body),) = got
    assert path == "/v1/traces"
    assert b"tick" in body
    assert b"hospital-a" in body
