"""Three organisations set a federation up with the command line, and what is refused on the way."""

import dataclasses
import json
import logging
import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from fedbandit._validate import ArgumentError
from fedbandit.cli.main import app
from fedbandit.federation.http.app import App
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import TOKEN, Home, Settings
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.status import status
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.broker import BrokerProcess, free_port
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys
from fedbandit.schedule import clock, every
from tests.federation.small import small_plan

PLAN = ["--silos", "2", "--rounds", "20", "--dim", "2", "--epsilon", "1", "--delta", "0.1", "--schedule", "every:5"]
PLAN += ["--visits", "public"]


def run(*arguments, ok=True):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert (result.exit_code == 0) is ok, (result.output, result.exception)
    return result.output if ok else str(result.exception)


def certify(path):
    """A certificate that signs itself; its key lies beside it."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker.example.org")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    path.write_bytes(built.sign(key, None).public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.with_suffix(".key").write_bytes(secret)
    return path


@pytest.fixture
def founded(tmp_path):
    run("federation", "init", tmp_path / "founder", "--name", "trial", *PLAN)
    return tmp_path / "founder"


def join(founded, tmp_path, name, role="silo"):
    file = founded / "federation.json"
    run("federation", "join", tmp_path / name, "--federation", file, "--name", name, "--role", role)
    return tmp_path / name / f"{name}.card.json"


def complete(founded, tmp_path):
    cards = [join(founded, tmp_path, "a"), join(founded, tmp_path, "b"), join(founded, tmp_path, "mixer", "mixer")]
    output = run("federation", "admit", founded, *cards)
    assert "complete" in output
    for name in ("a", "b", "mixer"):
        run("federation", "accept", tmp_path / name, founded / "federation.json")


def test_three_organisations(founded, tmp_path):
    complete(founded, tmp_path)
    files = {(tmp_path / name / "federation.json").read_text() for name in ("a", "b", "mixer")}
    files.add((founded / "federation.json").read_text())
    files.add((founded / "analyzer" / "federation.json").read_text())
    assert len(files) == 1
    for path in (tmp_path / "a", tmp_path / "mixer", founded / "analyzer"):
        party = Home.load(path).party()
        assert party.agreement.silos == ("a", "b")
    accounts = json.loads((founded / "nats.conf").read_text())["accounts"]
    assert set(accounts) == {"streams", "party-a", "party-b", "party-mixer", "party-analyzer"}


def test_the_operators_own_settings_of_the_broker_are_kept(founded, tmp_path):
    config = json.loads((founded / "nats.conf").read_text())
    assert (config["host"], config["port"]) == ("127.0.0.1", 4222)
    config["jetstream"]["store_dir"] = "/srv/streams"
    (founded / "nats.conf").write_text(json.dumps(config))
    run("federation", "admit", founded, join(founded, tmp_path, "a"))
    config = json.loads((founded / "nats.conf").read_text())
    assert config["jetstream"]["store_dir"] == "/srv/streams"
    assert set(config["accounts"]) == {"streams", "party-a", "party-analyzer"}


def test_a_broker_for_others_listens_to_others_and_speaks_tls(tmp_path):
    run("federation", "init", tmp_path / "f", "--name", "trial", *PLAN, "--broker", "tls://broker.example.org:4333")
    config = json.loads((tmp_path / "f" / "nats.conf").read_text())
    assert (config["host"], config["port"]) == ("0.0.0.0", 4333)
    assert set(config["tls"]) == {"cert_file", "key_file"}


def test_the_promise_is_printed_to_everybody_who_joins(founded, tmp_path):
    output = run("federation", "join", tmp_path / "a", "--federation", founded / "federation.json", "--name", "a")
    assert "differentially private" in output
    assert "card.json" in output


def test_private_keys_stay_at_home(founded, tmp_path):
    card = join(founded, tmp_path, "a")
    seeds = json.loads((tmp_path / "a" / "party.key").read_text())
    assert not any(seed in card.read_text() for seed in seeds.values())
    assert (tmp_path / "a" / "party.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a" / "token").stat().st_mode & 0o777 == 0o600


def test_an_incomplete_federation_does_not_run(founded, tmp_path):
    card = join(founded, tmp_path, "a")
    assert "not yet" in run("federation", "admit", founded, card)
    with pytest.raises(ValueError, match="still missing: mixer, 1 of 2 silos"):
        Home.load(founded / "analyzer").party()


def test_a_second_party_of_the_same_name_is_refused(founded, tmp_path):
    run("federation", "admit", founded, join(founded, tmp_path, "a"))
    run("federation", "join", tmp_path / "x", "--federation", founded / "federation.json", "--name", "a")
    assert "different names" in run("federation", "admit", founded, tmp_path / "x" / "a.card.json", ok=False)


def test_a_file_with_another_plan_is_not_accepted(founded, tmp_path):
    complete(founded, tmp_path)
    file = tmp_path / "other.json"
    file.write_text((founded / "federation.json").read_text().replace('"rounds": 20', '"rounds": 25'))
    assert "plan must be the one" in run("federation", "accept", tmp_path / "a", file, ok=False)


def test_foreign_keys_under_ones_own_name_are_noticed(founded, tmp_path):
    complete(founded, tmp_path)
    data = json.loads((founded / "federation.json").read_text())
    mine, other = (next(p for p in data["parties"] if p["name"] == name) for name in ("a", "b"))
    mine["identity"] = other["identity"]
    (tmp_path / "forged.json").write_text(json.dumps(data))
    assert "own keys" in run("federation", "accept", tmp_path / "a", tmp_path / "forged.json", ok=False)


@pytest.mark.parametrize("change, complaint", [
    (["--schedule", "sometimes"], "schedule must be"), (["--trust", "blind"], "trust must be"),
    (["--deadline", "0"], "deadline must"), (["--name", "a b"], "name must be"), (["--settle", "-1"], "settle must"),
])  # fmt: skip
def test_bad_options_are_refused_in_one_line(tmp_path, change, complaint):
    assert complaint in run("federation", "init", tmp_path / "f", "--name", "trial", *PLAN, *change, ok=False)


CLOCK = ["--schedule", "clock:60", "--visits", "private"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ([*CLOCK, "--start", "now"], "start must be a unix time, in seconds (now is "),
        ([*CLOCK, "--start", "nan"], "start must be a unix time, got nan"),
        ([*CLOCK, "--start", "5"], "start must be a unix time, not more than a day ago"),
        ([*CLOCK, "--start", "1e300"], "start must be a unix time, got 1e+300"),
        (["--start", "2e9"], "--start has no effect with every(5), which counts decisions"),
        (["--broker", "foo"], "broker must be nats://HOST:PORT or tls://HOST:PORT, got 'foo'"),
        (["--broker", "nats://"], "broker must be nats://HOST:PORT or tls://HOST:PORT, got 'nats://'"),
        (["--broker", "nats://here:99999"], "broker must be nats://HOST:PORT or tls://HOST:PORT"),
        (["--broker", "http://here:4222"], "broker must be nats://HOST:PORT or tls://HOST:PORT"),
        (["--broker-ca", "nosuch.pem"], "--broker-ca has no effect: the broker at nats://127.0.0.1:4222 shows no"),
        (["--broker", "tls://here", "--broker-ca", "nosuch.pem"], "broker_ca must be a file that can be read"),
        (["--broker", "tls://here", "--broker-ca", __file__], "broker_ca must be a PEM file of certificates"),
        (["--deadline", "1e300"], "deadline must lie strictly between 0 and 1e+11, got 1e+300"),
        (["--reward-window", "inf"], "reward_window must lie strictly between 0 and 1e+11, got inf"),
        (["--schedule", "clock:1e-9", "--visits", "private"], "period must lie between 0.001 and"),
        (["--schedule", "clock:1e300", "--visits", "private"], "period must lie between 0.001 and"),
        (["--schedule", "clock:3e9", "--visits", "private", "--rounds", "99"], "schedule must end before the year"),
        (["--schedule", "clock:60"], "--visits has no effect with a clock, which does not count who asks"),
        (["--trust", "local"], "trust must be one that runs live (central, none, secure-sum, shuffle, silo, vector-"),
        (["--trust", "silo", "--host", "mixer"], "host must not be 'mixer': trust 'silo' has none"),
        (["--host", "silo"], "host must be one of analyzer, mixer; got 'silo'"),
        (["--host", "analyzer", "--host", "analyzer"], "host must name each role once, got 'analyzer' twice"),
        (["--calibration", "rough"], "calibration must be one of exact, paper, published, literature; got 'rough'"),
    ],
)  # fmt: skip
def test_what_could_not_run_is_refused_at_once_and_leaves_nothing(tmp_path, change, complaint):
    """Each of these was accepted, and failed later or did nothing."""
    assert complaint in run("federation", "init", tmp_path / "f", "--name", "trial", *PLAN, *change, ok=False)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    "option",
    [
        ("--epsilon", "5"), ("--silos", "9"), ("--trust", "silo"), ("--cohort", "2"), ("--schedule", "clock:5"),
        ("--rounds", "20"), ("--dim", "2"), ("--delta", "0.1"), ("--participations", "1"), ("--mechanism", "tree"),
        ("--visits", "public"), ("--calibration", "exact"),
    ],
)  # fmt: skip
def test_what_a_plans_file_says_is_not_said_again(tmp_path, option):
    """A budget of 5 beside a file that says 1 was ignored."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(small_plan(silos=2).as_dict()))
    said = run("federation", "init", tmp_path / "f", "--name", "trial", "--plan", file, *option, ok=False)
    assert said == f"{option[0]} has no effect with --plan, whose file sets it"
    run("federation", "init", tmp_path / "f", "--name", "trial", "--plan", file, "--deadline", "60")


def test_a_vector_sum_is_made_by_options(tmp_path):
    paper = ["--trust", "vector-sum", "--mechanism", "tree", "--calibration", "paper"]
    assert "against the analyzer alone" in run("federation", "init", tmp_path / "f", "--name", "trial", *PLAN, *paper)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--port", "99999"], "port must lie between 1 and 65535, got 99999"),
        (["--port", "0"], "port must be a whole number >= 1, got 0"),
        (["--store", "mysql://x"], "store must be a path or a postgresql:// URL, got 'mysql://x'"),
        (["--role", "mixer", "--port", "8080"], "--port has no effect for the role 'mixer': only a silo serves"),
        (["--role", "analyzer", "--tls-key", "k"], "--tls-key has no effect for the role 'analyzer'"),
        (["--broker-ca", "ca.pem"], "--broker-ca has no effect: the broker at nats://127.0.0.1:4222 shows no"),
        (["--tls-certificate", "a", "--tls-key", "b"], "tls_certificate must be a file that can be read, got 'a' (No"),
        (["--tls-certificate", __file__, "--tls-key", __file__], "tls_certificate and tls_key must be PEM files that"),
        (["--tls-certificate", __file__], "tls_certificate and tls_key must be given together"),
    ],
)
def test_settings_that_could_not_serve_are_refused_at_once(founded, tmp_path, options, complaint):
    file = ["--federation", founded / "federation.json"]
    assert complaint in run("federation", "join", tmp_path / "a", *file, "--name", "a", *options, ok=False)
    assert not (tmp_path / "a").exists()


def test_a_silo_joins_with_a_certificate_and_a_store_of_its_own(founded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pair = certify(tmp_path / "silo.pem")
    own = ["--tls-certificate", pair, "--tls-key", pair.with_suffix(".key"), "--store", "rows.db"]
    run("federation", "join", "a", "--federation", founded / "federation.json", "--name", "a", *own)
    settings = Home.load(tmp_path / "a").settings
    assert (settings.store, settings.tls_certificate) == (str(tmp_path / "rows.db"), str(pair))


def test_no_mixer_joins_where_there_is_none(tmp_path):
    run("federation", "init", tmp_path / "f", "--name", "trial", *PLAN, "--trust", "silo")
    file = ["--federation", tmp_path / "f" / "federation.json"]
    said = run("federation", "join", tmp_path / "m", *file, "--name", "m", "--role", "mixer", ok=False)
    assert said == "role must not be 'mixer': trust 'silo' has none"


def test_a_path_that_is_wrong_is_named_with_its_field(founded, tmp_path):
    nowhere = tmp_path / "nowhere"
    cases = [
        ("cards", ["admit", founded, nowhere]),
        ("directory", ["admit", nowhere, join(founded, tmp_path, "a")]),
        ("directory", ["provision", nowhere]),
        ("file", ["accept", tmp_path / "a", nowhere]),
        ("federation", ["join", tmp_path / "b", "--federation", nowhere, "--name", "b"]),
    ]
    for field, arguments in cases:
        said = run("federation", *arguments, ok=False)
        if field == "directory":
            assert said.startswith(f"directory must be the founder's, and {nowhere} has no federation.json")
            continue
        assert said.startswith(f"{field} must be a file that can be read, got '{nowhere}")
        assert said.endswith("(No such file or directory)")
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file" / "under"):
        said = run("federation", "init", home, "--name", "trial", *PLAN, ok=False)
        assert said.startswith(f"directory must be a directory that can be written, got '{home}' (")


def test_a_dead_broker_is_given_up_after_a_stated_time(founded, tmp_path, monkeypatch):
    complete(founded, tmp_path)
    data = json.loads((founded / "federation.json").read_text())
    data["broker"] = f"nats://127.0.0.1:{free_port()}"
    (founded / "federation.json").write_text(json.dumps(data))
    monkeypatch.setattr(founding, "PATIENCE", 1.0)
    began = time.monotonic()
    said = run("federation", "provision", founded, ok=False)
    assert said == f"the broker at {data['broker']} has not answered for 1 s"
    assert time.monotonic() - began < 10
    quiet = [one for one in logging.getLogger().handlers if isinstance(one, logging.NullHandler)]
    assert quiet  # otherwise each attempt would be one more line


def test_a_federation_is_founded_once(founded):
    assert "exists already" in run("federation", "init", founded, "--name", "trial", *PLAN, ok=False)


@pytest.mark.parametrize("change, complaint", [
    (lambda data: data.pop("plan"), "must give 'plan'"), (lambda data: data.update(extra=1), "does not know 'extra'"),
    (lambda data: data["plan"].update(rounds=-1), "rounds must be"),
])  # fmt: skip
def test_a_damaged_federation_file_is_refused(founded, change, complaint):
    data = json.loads((founded / "federation.json").read_text())
    change(data)
    with pytest.raises(ValueError, match=complaint):
        Agreement.from_dict(data)


@pytest.mark.parametrize("text", [
    "[" * 100_000, "[]", "1" * 5000, '{"id": 1}', "\udcff", '{"id": "a", "plan": [], "broker": 1, "timing": [], '
    '"operator": 1, "parties": 3}',
])  # fmt: skip
def test_whatever_is_in_a_file_of_others_is_one_kind_of_error(tmp_path, text):
    """A federation's file, a card, settings and keys: a parser's own errors came out of some of them."""
    file = tmp_path / "file.json"
    file.write_text(text, errors="surrogateescape")
    file.chmod(0o600)
    for read in (Agreement.load, PublicKeys.load, Settings.load, PartyKeys.load):
        with pytest.raises(ArgumentError):
            read(file)


def test_status_before_and_beside_a_running_silo(founded, tmp_path):
    complete(founded, tmp_path)
    known = status(tmp_path / "a")
    assert known["started"] is False
    said = run("status", tmp_path / "a")
    assert "--wide also shows: assumes." in said
    assert not any(assumption[:30] in said for assumption in known["assumes"]), "a screenful that pushes the rest away"
    shown = " ".join(run("status", tmp_path / "a", "--wide").replace("│", " ").split())
    for assumption in known["assumes"]:  # some contain commas: each begins a line of its own
        assert f"- {assumption}" in shown
    home = Home.load(tmp_path / "a")
    plan = home.agreement().plan
    with Silo.open(home.store(plan.hash), plan, name="a", secret=home.keys.seeds["salt"]) as silo:
        for _ in range(5):
            silo.decide([[1.0, 0.0]])
        silo.tick()
        known = status(tmp_path / "a")  # while the silo has the store open
        assert (known["released"], known["decisions"], known["ended"]) == (1, 5, False)
        assert 0 < known["epsilon_spent"] < 1
        assert json.loads(run("status", tmp_path / "a", "--json"))["released"] == 1
        assert "epsilon_left" in run("status", tmp_path / "a")


def test_a_party_is_run_in_its_own_role(founded, tmp_path):
    complete(founded, tmp_path)
    assert "directory of the mixer" in run("mixer", "run", tmp_path / "a", ok=False)
    assert "directory of a silo" in run("silo", "serve", tmp_path / "mixer", ok=False)
    assert "need a postgresql" in run("silo", "serve", tmp_path / "a", "--workers", "2", ok=False)
    assert "must be a party's directory" in run("analyzer", "run", tmp_path, ok=False)


def test_small_plan_is_what_the_options_say(founded):
    agreed = Agreement.load(founded / "federation.json").plan
    assert agreed == small_plan(silos=2)


def test_live_is_by_the_clock_unless_visits_are_public(tmp_path):
    run("federation", "init", tmp_path / "f", "--name", "trial", "--silos", "2", "--dim", "2", "--delta", "0.1")
    agreed = Agreement.load(tmp_path / "f" / "federation.json")
    assert str(agreed.plan.schedule) == "clock(86400, 1.1)"
    counted = PLAN[:-2]
    assert "must be a clock" in run("federation", "init", tmp_path / "g", "--name", "trial", *counted, ok=False)


def test_the_clock_begins_when_everybody_is_there(tmp_path):
    """It began with `init`, and the releases until the last party had joined were drawn empty."""
    begun = ["--silos", "2", "--dim", "2", "--delta", "0.1", "--start", str(time.time() - 3600)]
    run("federation", "init", tmp_path / "founder", "--name", "trial", *begun)
    complete(tmp_path / "founder", tmp_path)
    start = Agreement.load(tmp_path / "a" / "federation.json").timing.start
    assert start is not None
    assert start > time.time() + 3600


def test_the_brokers_configuration_has_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    certify(tmp_path / "ca.pem")
    run(
        "federation",
        "init",
        "f",
        "--name",
        "trial",
        *PLAN,
        "--broker",
        "tls://b.example.org:4333",
        "--broker-ca",
        "ca.pem",
    )
    config = json.loads((tmp_path / "f" / "nats.conf").read_text())
    paths = [
        config["jetstream"]["store_dir"],
        *config["tls"].values(),
        Home.load(tmp_path / "f/analyzer").settings.broker_ca,
    ]
    assert all(path.startswith(str(tmp_path)) for path in paths)


def test_a_new_term_with_the_same_members(founded, tmp_path):
    complete(founded, tmp_path)
    last = Agreement.load(founded / "federation.json")
    (tmp_path / "same.json").write_text(json.dumps(last.plan.as_dict()))
    assert "must differ" in run("federation", "renew", founded, "--plan", tmp_path / "same.json", ok=False)
    (tmp_path / "next.json").write_text(json.dumps(last.plan.changed(rounds=25).as_dict()))
    run("federation", "renew", founded, "--plan", tmp_path / "next.json")
    file = founded / "federation.json"
    assert "must be the one" in run("federation", "accept", tmp_path / "a", file, ok=False)
    assert "differentially private" in run("federation", "accept", tmp_path / "a", file, "--new-term")
    again = run("federation", "accept", tmp_path / "a", file, "--new-term", ok=False)
    assert again.startswith("--new-term has no effect: the file has the plan that was joined")
    party = Home.load(tmp_path / "a").party()
    assert (party.agreement.plan.rounds, party.agreement.parties) == (25, last.parties)


def test_a_federation_of_an_earlier_version_can_change_its_members_from_the_next_term_on(founded, tmp_path):
    complete(founded, tmp_path)
    last = Agreement.load(founded / "federation.json")
    dataclasses.replace(last, signer=b"").save(founded / "federation.json")
    (tmp_path / "next.json").write_text(json.dumps(last.plan.changed(rounds=25).as_dict()))
    run("federation", "renew", founded, "--plan", tmp_path / "next.json")
    assert Agreement.load(founded / "federation.json").signer == last.signer


def test_a_brokers_configuration_of_an_earlier_version_is_not_mixed_with_this_one(founded, tmp_path):
    """With one account for everybody any party could delete a stream; both blocks together the server refuses."""
    complete(founded, tmp_path)
    file, card = founded / "nats.conf", tmp_path / "a" / "a.card.json"
    config = json.loads(file.read_text())
    accounts = config.pop("accounts")
    agreed = (founded / "federation.json").read_text()
    file.write_text(json.dumps({**config, "authorization": {"users": []}}))
    for command in (("admit", founded, card), ("provision", founded)):
        said = run("federation", *command, ok=False)
        assert "`authorization`" in said
        assert "federation admit" in said
    assert (founded / "federation.json").read_text() == agreed
    with pytest.raises(ValueError, match="earlier version"):
        BrokerProcess(file, tmp_path / "log").start()
    file.write_text(json.dumps(config))  # as the text says
    run("federation", "admit", founded, card)
    assert json.loads(file.read_text())["accounts"] == accounts


@pytest.mark.parametrize("left", [b"", b" \n", b"\xff\xfe\x00", b"short"])
def test_a_damaged_token_lets_nobody_in(tmp_path, left):
    """A full disk leaves an empty file; served with it, a silo would answer whoever shows nothing."""
    homes = founding.local(tmp_path, small_plan(), ["silo-00", "silo-01", "silo-02"], Timing(start=time.time()))
    home = next(one for one in homes if one.settings.role == "silo")
    (home.path / TOKEN).write_bytes(left)
    with pytest.raises(ValueError, match="must hold a token of at least 16 characters"):
        home.token()
    with pytest.raises(ArgumentError, match="token must not be empty"):
        App([], "")


def test_status_says_when_the_next_tick_is(tmp_path):
    """A silo that waits for its clock showed nothing of it, and looked like one that does not work."""
    start = time.time() + 300
    plan = small_plan(silos=2, schedule=clock(10.0))
    homes = founding.local(tmp_path / "homes", plan, ["a", "b"], Timing(5.0, start=start))
    told = {home.settings.name: status(home.path)["next_tick"] for home in homes}
    first = datetime.fromisoformat(told["a"]).timestamp()
    assert abs(first - (start + 10.0)) <= 1.0
    assert len(set(told.values())) == 1, "it is public, and the same for all"
    counts = small_plan(silos=2, schedule=every(5), visits="public")
    (home, *_) = founding.local(tmp_path / "counting", counts, ["a", "b"], Timing(5.0, start=start))
    assert status(home.path)["next_tick"] is None


def test_another_kind_of_file_is_called_by_what_it_should_be(founded, tmp_path):
    card, file = join(founded, tmp_path, "a"), founded / "federation.json"
    assert "must be a card, as `federation join` writes it" in run("federation", "admit", founded, file, ok=False)
    for wrong in (card, founded / "nats.conf"):
        said = run("federation", "join", tmp_path / "b", "--federation", wrong, "--name", "b", ok=False)
        assert f"{wrong} must be a federation's file" in said


def test_the_founders_commands_know_the_authority_that_the_analyzer_was_given(tmp_path):
    """`doctor` failed in the founder's directory, although `init` had been told the authority."""
    authority, broker = certify(tmp_path / "ca.pem"), ["--broker", "tls://broker.example.org:4222"]
    said = run("federation", "init", tmp_path / "f", "--name", "trial", *PLAN, *broker, "--broker-ca", authority)
    assert "broker.crt and broker.pem" in " ".join(said.split())
    assert founding.authority(tmp_path / "f") == str(authority)
    said = run("federation", "init", tmp_path / "plain", "--name", "trial", *PLAN)
    assert "broker.crt" not in said
    assert founding.authority(tmp_path / "plain") == ""


def test_founding_says_which_certificates_each_node_needs_and_where(tmp_path):
    """It said "beside its configuration", which is another place with --broker-home, and left out the authority that
    nodes know each other by."""
    home = "/var/lib/fedbandit/broker"
    one, three = "tls://n1.example.org:4222", ",".join(f"tls://n{n}.example.org:4222" for n in (1, 2, 3))
    for name, broker, options in (("one", one, []), ("three", three, ["--broker-home", home])):
        said = run("federation", "init", tmp_path / name, "--name", name, *PLAN, "--broker", broker, *options)
        assert (home in said, "broker-ca.crt" in said) == (name == "three", name == "three")


def test_only_its_owner_reads_a_partys_settings(founded, tmp_path):
    """They may hold the password of a database."""
    join(founded, tmp_path, "a")
    assert (tmp_path / "a" / "party.json").stat().st_mode & 0o777 == 0o600


def test_new_keys_that_are_not_new_or_of_another_role_are_refused_for_that_reason(founded, tmp_path):
    agreed = Agreement.load(founded / "federation.json")
    card = PublicKeys.load(join(founded, tmp_path, "a"))
    agreed = agreed.admit(card)
    with pytest.raises(ArgumentError, match="but has the keys that are known"):
        agreed.rekeyed(card)
    other = PartyKeys.generate().public("a", "mixer")
    with pytest.raises(ArgumentError, match="of the silo 'a', but is of a mixer"):
        agreed.rekeyed(other)
