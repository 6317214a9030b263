"""Backups of a party whose store others are writing: of one moment, and no more in them than was asked for."""

import errno
import json
import shutil
import sqlite3
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedbandit._validate import ArgumentError
from fedbandit.cli.main import app
from fedbandit.federation.backup import archive, saving
from fedbandit.federation.backup.restoring import restore
from fedbandit.federation.backup.saving import save
from fedbandit.federation.backup.snapshots import put_in_place, take_snapshot
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.decisions.tickets import DIGEST_BYTES
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SiloStore, open_engine
from fedbandit.federation.store.events import EventStore
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from tests.federation.operating.running import changed
from tests.federation.test_process import PLAN, founded

ACTIONS = np.array([[0.25, 0.5], [0.5, 0.25]])
RAW = ACTIONS[0].tobytes(), ACTIONS[1].tobytes()


def opened(home, **options):
    return Silo.open(home.store(PLAN.hash), PLAN, name="silo", secret=home.keys.seeds["salt"], **options)


def visit(silo, times=1):
    for _ in range(times):
        silo.reward(silo.decide(ACTIONS).id, 0.5)


@pytest.fixture
def home(tmp_path, request):
    """A silo's directory, its store in a file or in a database."""
    return founded(tmp_path / "federation", request.param and request.getfixturevalue("empty_postgres"))


both = pytest.mark.parametrize("home", ["", "postgres"], indirect=True, ids=["sqlite", "postgres"])
in_a_file = pytest.mark.parametrize("home", [""], indirect=True, ids=["sqlite"])


def facts(saved):
    """What a backup says of the store in it."""
    assert saved.store is not None
    return saved.store


def rows(path, query):
    return sqlite3.connect(path).execute(query).fetchall()


@both
def test_a_backup_beside_a_silo_that_counts_is_of_one_moment(home, tmp_path):
    """Each reward is in three tables: in no snapshot is it in one of them only."""
    with opened(home) as silo:
        visit(silo, 20)
        stop, done = threading.Event(), []

        def visitors():
            while not stop.is_set():
                visit(silo)
                done.append(1)

        writing = threading.Thread(target=visitors)
        writing.start()
        try:
            counts = []
            for number in range(8):
                before = 20 + len(done)
                saved = save(home.path, tmp_path / f"{number}.backup")
                folder = tmp_path / str(number)
                folder.mkdir()
                assert archive.take_out(tmp_path / f"{number}.backup", folder, bytes) == saved
                ((digests,),) = rows(folder / "store.db", "SELECT sum(length(digest)) FROM rewarded")
                rewarded = digests // DIGEST_BYTES
                ((users,),) = rows(folder / "store.db", "SELECT sum(users) FROM raw_rows")
                assert before <= rewarded == users == facts(saved).waiting <= 21 + len(done)
                assert rows(folder / "store.db", "PRAGMA integrity_check") == [("ok",)]
                counts.append(rewarded)
        finally:
            stop.set()
            writing.join()
    assert counts[-1] > counts[0]
    assert list(home.path.glob(".backup-*")) == []


@in_a_file
def test_what_is_in_a_backup_and_what_is_not(home, tmp_path):
    with opened(home) as silo:
        visit(silo, 3)
        saved = save(home.path, tmp_path / "file")
        assert set(saved.files) == {"party.key", "party.json", "federation.json", "token", "store.db"}
        assert (saved.party, saved.role, saved.federation) == ("silo", "silo", "trial")
        assert (saved.plan, saved.fingerprint) == (PLAN.hash, home.agreement().fingerprint)
        assert (facts(saved).kind, facts(saved).syncs, facts(saved).ledger, facts(saved).waiting) == ("sqlite", 0, 0, 3)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
        assert any(raw in (tmp_path / "file").read_bytes() for raw in RAW)
        without = save(home.path, tmp_path / "without", raw=False)
        assert (facts(without).waiting, facts(without).raw) == (3, False)
        assert not any(raw in (tmp_path / "without").read_bytes() for raw in RAW)
        assert len(silo.store.batch(1, 0)) == 3


@in_a_file
def test_what_a_killed_backup_left_behind_goes_with_the_next(home, tmp_path):
    opened(home).close()
    left = home.path / ".backup-left"
    left.mkdir()
    (left / "store.db").write_bytes(b"raw")
    save(home.path, tmp_path / "file")
    assert not left.exists()


@both
def test_a_restored_store_has_every_row(home, tmp_path, request):
    """From a file and from a database, to a file and to a database."""
    with opened(home) as silo:
        visit(silo, 5)
        EventStore(silo.store.engine, 1, 100.0).put("event", "decision", True, 1.0)
        silo.register("set", ACTIONS)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    take_snapshot(home.store(PLAN.hash), first)
    put_in_place(first, tmp_path / "copy.db")
    take_snapshot(tmp_path / "copy.db", second)
    import psycopg

    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    put_in_place(first, url)
    take_snapshot(url, third)
    for table in (*archive_tables(first),):
        found = [sorted(rows(path, f"SELECT * FROM {table}"), key=repr) for path in (first, second, third)]
        assert found[0] == found[1] == found[2], table
    with pytest.raises(ValueError, match="must be an empty database"):
        put_in_place(first, url)
    with pytest.raises(ValueError, match="must be new"):
        put_in_place(first, tmp_path / "copy.db")
    engine = open_engine(url)
    assert len(SiloStore(engine).batch(1, 0)) == 5
    engine.close()


def archive_tables(path):
    names = [name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert "events" in names
    return names


@in_a_file
def test_a_restored_silo_knows_what_the_backup_knew(home, tmp_path):
    with opened(home) as silo:
        decisions = [silo.decide(ACTIONS, user=str(n)).id for n in range(3)]
        silo.reward(decisions[0], 0.5)
        save(home.path, tmp_path / "file")
        silo.reward(decisions[1], 0.5)
    back = tmp_path / "back"
    restore(tmp_path / "file", back, passphrase=bytes)
    assert stat.S_IMODE(back.stat().st_mode) == 0o700
    assert {path.name for path in back.iterdir()} == {"party.key", "party.json", "federation.json", "token", "silo.db"}
    assert (back / "token").read_bytes() == (home.path / "token").read_bytes()
    with opened(type(home).load(back)) as silo:
        assert silo.reward(decisions[0], 0.5).repeated  # the backup knew it
        assert not silo.reward(decisions[1], 0.5).repeated  # it came after, and can be sent again
        assert silo.reward(decisions[2], 0.5).counted


@in_a_file
def test_files_that_settings_name_move_with_the_directory(home, tmp_path):
    opened(home).close()
    (home.path / "ca.pem").write_text("certificate")
    (tmp_path / "outside.pem").write_text("key")
    files = {"tls_certificate": str(home.path / "ca.pem"), "tls_key": str(tmp_path / "outside.pem")}
    replace(home.settings, **files).save(home.path / "party.json")
    assert "ca.pem" in save(home.path, tmp_path / "file").files
    restore(tmp_path / "file", tmp_path / "back", passphrase=bytes)
    settings = Home.load(tmp_path / "back").settings
    assert settings.tls_certificate == str(tmp_path / "back" / "ca.pem")
    assert settings.tls_key == str(tmp_path / "outside.pem")
    assert (tmp_path / "back" / "ca.pem").read_text() == "certificate"


@in_a_file
def test_the_commands(home, tmp_path):
    run = CliRunner().invoke
    opened(home).close()
    secret = tmp_path / "passphrase"
    secret.write_text("xyzzy\n")
    result = run(app, ["backup", str(home.path), str(tmp_path / "file"), "--passphrase-file", str(secret)])
    assert (result.exit_code, ": silo of trial" in result.output) == (0, True), result.output
    result = run(app, ["restore", str(tmp_path / "file"), str(home.path), "--passphrase-file", str(secret)])
    assert "nothing is overwritten" in str(result.exception)
    back = tmp_path / "back"
    result = run(app, ["restore", str(tmp_path / "file"), str(back), "--offline"], input="wrong\n")
    assert "wrong passphrase" in str(result.exception)
    assert not back.exists()
    result = run(app, ["restore", str(tmp_path / "file"), str(back), "--offline"], input="xyzzy\n")
    assert result.exit_code == 1
    assert f"fedbandit silo forward {back}" in result.output.replace("\n", "")
    assert "draws and closes nothing" in result.output
    result = run(app, ["restore", str(tmp_path / "file"), str(tmp_path / "b"), "--patience", "1"], input="xyzzy\n")
    assert (result.exit_code, "no answer within 1 s" in result.output) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "back", "federation", "file", "passphrase"]


@in_a_file
def test_a_store_that_is_named_by_its_whole_path_comes_back(home, tmp_path):
    """In the party's own directory it could not: that is not there before all of it is. In a folder that is gone it
    needs another place."""
    for name in ("my.db", "store.db"):
        path = tmp_path / f"new-{name}" / name
        changed(home, store=str(home.path / name))
        opened(Home.load(home.path)).close()
        save(home.path, tmp_path / name)
        restore(tmp_path / name, path.parent, passphrase=bytes, store=str(path))
        assert Home.load(path.parent).settings.store == str(path)
        assert len(rows(path, "SELECT * FROM terms")) == 1
        assert [one.name for one in path.parent.glob("*store*")] == [one for one in [name] if "store" in one]
    shutil.rmtree(home.path)
    with pytest.raises(ArgumentError, match="there is no such folder; name another with --store"):
        restore(tmp_path / "my.db", tmp_path / "again", passphrase=bytes)
    assert not (tmp_path / "again").exists()


@in_a_file
@pytest.mark.parametrize("fault", ["disk", "store"])
def test_a_full_disk_is_named_and_not_the_file_that_was_being_copied(home, tmp_path, monkeypatch, fault):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "party.json")

    def grown(*arguments):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    opened(home).close()
    if fault == "disk":
        monkeypatch.setattr(shutil, "copyfile", full)
    else:
        monkeypatch.setattr(saving, "take_snapshot", grown)
    with pytest.raises(ArgumentError, match="disk is full: while a backup is made, it needs as much room"):
        save(home.path, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert not list(home.path.glob(".backup-*"))


@in_a_file
def test_what_could_not_be_restored_is_not_saved(home, tmp_path):
    opened(home).close()
    (home.path / "my certificate.pem").write_text("certificate")
    files = {"tls_certificate": str(home.path / "my certificate.pem"), "tls_key": str(tmp_path / "outside.pem")}
    changed(home, **files)
    with pytest.raises(ArgumentError, match=r"must have plain names for files, got 'my certificate\.pem'"):
        save(home.path, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_options_that_have_no_effect_are_refused(tmp_path):
    """They were taken, and whoever gave them believed that something had come of it."""
    home = founded(tmp_path / "founder")
    opened(home).close()
    open_engine(tmp_path / "founder" / "analyzer" / f"analyzer-{PLAN.hash[:12]}.db").close()
    (tmp_path / "pass").write_text("xyzzy\n")
    save(home.path, tmp_path / "plain")
    save(tmp_path / "founder", tmp_path / "operator")
    new, sealed = str(tmp_path / "new"), ["--passphrase-file", str(tmp_path / "pass")]
    analyzer, founder = tmp_path / "founder" / "analyzer", tmp_path / "founder"
    for words, says in [
        (["backup", home.path, new, "--encrypt", *sealed], "--encrypt has no effect with --passphrase-file"),
        (["backup", analyzer, new, "--without-raw"], "--without-raw has no effect on the analyzer"),
        (["backup", founder, new, "--without-raw"], "--without-raw has no effect on the founder"),
        (
            ["restore", tmp_path / "plain", new, *sealed],
            "--passphrase-file has no effect on a backup that is not sealed",
        ),
        (
            ["restore", tmp_path / "plain", new, "--offline", "--patience", "5"],
            "--patience has no effect with --offline",
        ),
        (["restore", tmp_path / "plain", new, "--offline", "--broker-ca", "x"], "--broker-ca has no effect with --off"),
        (
            ["restore", tmp_path / "plain", new, "--broker-ca", tmp_path / "pass"],
            "--broker-ca has no effect: the broker",
        ),
        (["restore", tmp_path / "plain", new, "--patience", "0"], "patience must be a finite number > 0"),
        (["restore", tmp_path / "operator", new, "--offline"], "--offline has no effect on a founder's backup"),
        (["restore", tmp_path / "operator", new, "--store", "x.db"], "--store has no effect on a founder's backup"),
        (["restore", tmp_path / "operator", new, "--without-store"], "--without-store has no effect on a founder's"),
        (["status", home.path, "--port", "8000"], "--port has no effect without --web"),
        (["status", home.path, "--web", "--json"], "--json has no effect with --web"),
    ]:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert says in str(result.exception), (words, result.output, result.exception)
        assert not (tmp_path / "new").exists()


def test_a_founder_of_a_cluster_has_the_configuration_of_every_node_again(tmp_path):
    """They were not in the backup: whoever restored it wrote new ones, with another secret and other paths."""
    urls = ",".join(f"nats://127.0.0.1:{broker.free_port()}" for _ in range(3))
    place = tmp_path / "founder"
    founding.found(place, "trial", PLAN, urls, Timing(start=time.time()), Path("/var/lib/fedbandit/broker"))
    save(place, tmp_path / "file")
    restore(tmp_path / "file", tmp_path / "back", passphrase=bytes)
    for number in (1, 2, 3):
        name = f"broker-{number}/nats.conf"
        assert (tmp_path / "back" / name).read_bytes() == (place / name).read_bytes()
    founding.admit(tmp_path / "back", [])
    assert (tmp_path / "back" / "broker-2" / "nats.conf").read_bytes() == (
        place / "broker-2" / "nats.conf"
    ).read_bytes()
    assert sorted(one.name for one in (tmp_path / "back").iterdir()) == sorted(one.name for one in place.iterdir())


def test_a_founders_directory_has_its_own(tmp_path):
    founded(tmp_path / "founder")
    saved = save(tmp_path / "founder", tmp_path / "file")
    assert (saved.role, saved.store) == ("operator", None)
    restore(tmp_path / "file", tmp_path / "back", passphrase=bytes)
    for name in ("operator.key", "federation.json"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "founder" / name).read_bytes()


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_founder_that_was_put_back_elsewhere_has_its_broker_there(nodes, tmp_path, monkeypatch):
    """Its configuration named the directory that was lost: a broker that was started by it stored its streams there,
    and did not find its certificates."""
    urls = ",".join(f"tls://127.0.0.1:{broker.free_port()}" for _ in range(nodes))
    monkeypatch.chdir(tmp_path)
    founding.found(tmp_path / "founder", "trial", PLAN, urls, Timing(start=time.time()))
    files = [f"broker-{number + 1}/nats.conf" if nodes > 1 else "nats.conf" for number in range(nodes)]
    by_hand = {"log_file": "/var/log/nats.log", "pid_file": str(tmp_path / "founder-2" / "pid")}
    for name in files:
        found = json.loads((tmp_path / "founder" / name).read_text())
        (tmp_path / "founder" / name).write_text(json.dumps(found | by_hand))
    save(Path("founder"), tmp_path / "file")
    (tmp_path / "founder").rename(tmp_path / "lost")
    restore(tmp_path / "file", Path("elsewhere") / "again", passphrase=bytes)
    for name in files:
        before, after = (json.loads((tmp_path / one / name).read_text()) for one in ("lost", "elsewhere/again"))
        assert json.dumps(after) == json.dumps(before).replace(f"{tmp_path}/founder/", f"{tmp_path}/elsewhere/again/")
        assert Path(after["jetstream"]["store_dir"]) == (tmp_path / "elsewhere" / "again" / name).parent / "jetstream"
        assert (tmp_path / "elsewhere" / "again" / name).stat().st_mode & 0o077 == 0
