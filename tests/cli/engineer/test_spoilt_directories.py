"""Every command of an engineer, given a directory in which something is missing, garbled or another's, ends in one line
that says what is wrong and what to do, with an exit code that is not 0, and never in a traceback."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fedbandit as fb
from tests.cli.harness import Command, Said, assert_refused

PLAN = fb.Plan(silos=2, rounds=30, dim=2, privacy=fb.Privacy(1.0, 1e-6), schedule=fb.clock(86_400))
GARBAGE = b"\xff\x00 no {"
Spoil = Callable[[Path, Path], object]  # the party's directory, and the folder of two whole federations

READING, RUNNING = ("status", "backup", "doctor"), ("run", "forward")
ALL = (*READING, *RUNNING)
# What a command must not trip over, whatever is wrong with the directory.
OTHERS = ("health", "health --alive", "new-keys", "accept", "accept --new-term", "log", "renew", "model", "dismiss")


@pytest.fixture(scope="module")
def federations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two federations that have played a sync, and the plan of a next term."""
    folder = tmp_path_factory.mktemp("federations")
    for name, plan in (("one", PLAN), ("two", PLAN.changed(rounds=40))):
        with fb.Federation.local(plan, ["a", "b"], folder=folder / name) as federation:
            federation.tick()
    (folder / "next.json").write_text(json.dumps(PLAN.changed(rounds=50).as_dict()))
    return folder


@pytest.fixture(autouse=True)
def log_lines_as_before() -> Iterator[None]:
    """A party that is started sets up its log."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def store_of(home: Path) -> Path:
    (file,) = home.glob("*.db")
    return file


def missing(name: str) -> Spoil:
    return lambda home, _: (home / name).unlink()


def holding(name: str, content: bytes) -> Spoil:
    return lambda home, _: (home / name).write_bytes(content)


def folder(name: str) -> Spoil:
    def spoil(home: Path, _: Path) -> None:
        (home / name).unlink()
        (home / name).mkdir()

    return spoil


def another(name: str, source: str) -> Spoil:
    return lambda home, all_: shutil.copy(all_ / source, home / name)


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(home: Path, _: Path) -> None:
        data = json.loads((home / name).read_text())
        change(data)
        (home / name).write_text(json.dumps(data))

    return spoil


def store(content: bytes) -> Spoil:
    return lambda home, _: store_of(home).write_bytes(content)


def store_like(other: str) -> Spoil:
    return lambda home, all_: shutil.copy(store_of(all_ / other), store_of(home))


def sql(*statements: str, anew: bool = False) -> Spoil:
    def spoil(home: Path, _: Path) -> None:
        file = store_of(home)
        if anew:
            file.unlink()
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            for statement in statements:
                database.execute(statement)

    return spoil


class Case(NamedTuple):
    """Something wrong, words of the line that says so, and the commands that must refuse it."""

    spoil: Spoil
    words: tuple[str, ...]
    refusing: tuple[str, ...] = ALL
    roles: tuple[str, ...] = ("a", "mixer")


FEDERATION, SETTINGS, KEY = "federation.json", "party.json", "party.key"
COPY = "copy the complete file of your federation there"
CASES = {
    "no federation": Case(missing(FEDERATION), ("has no", COPY)),
    "federation is a folder": Case(folder(FEDERATION), ("has no", COPY), roles=("a",)),
    "federation garbled": Case(holding(FEDERATION, GARBAGE), ("federation.json cannot be read", COPY)),
    "federation empty": Case(holding(FEDERATION, b""), ("federation.json cannot be read", COPY), roles=("a",)),
    "federation is a list": Case(holding(FEDERATION, b"[]"), ("must be one table of fields", COPY), roles=("a",)),
    "federation of others": Case(another(FEDERATION, "two/federation.json"), ("other keys or in another role",)),
    "federation without parties": Case(
        changed(FEDERATION, lambda data: data.update(parties=[])), ("still missing: analyzer", "take the complete file")
    ),
    "no plan": Case(changed(FEDERATION, lambda data: data.update(plan={})), ("plan must give 'silos'", COPY)),
    "plan garbled": Case(changed(FEDERATION, lambda data: data.update(plan=5)), ("cannot be", COPY), roles=("a",)),
    "plan of another term": Case(
        changed(FEDERATION, lambda data: data["plan"].update(rounds=77)),
        ("a new plan begins a new term",), ("run",), ("a",),
    ),
    "times were changed": Case(
        changed(FEDERATION, lambda data: data["timing"].update(deadline=7.0)), ("changed since",), READING
    ),
    "no settings": Case(missing(SETTINGS), ("party's directory", "federation join"), RUNNING),
    "settings garbled": Case(holding(SETTINGS, GARBAGE), ("party.json cannot be read", "correct it")),
    "settings of another kind": Case(
        changed(SETTINGS, lambda data: data.update(host=5)), ("host must be a text, got 5", "correct it")
    ),
    "unknown role": Case(changed(SETTINGS, lambda data: data.update(role="king")), ("role must be one of",)),
    "another's name": Case(changed(SETTINGS, lambda data: data.update(name="zz")), ("'zz' is not a party of",)),
    "another role": Case(
        changed(SETTINGS, lambda data: data.update(role="analyzer")), ("in another role",), READING, ("a", "mixer")
    ),
    "no certificate": Case(
        changed(SETTINGS, lambda data: data.update(tls_certificate="/none.crt", tls_key="/none.key")),
        ("tls_certificate must be a file that can be read, got '/none.crt'",), ("run", "doctor"), ("a",),
    ),
    "no key": Case(missing(KEY), ("party.key is not there", "docs/bad-day.md")),
    "key is a folder": Case(folder(KEY), ("party.key must be a file",), roles=("a",)),
    "key garbled": Case(holding(KEY, GARBAGE), ("party.key cannot be read", "it is damaged", "from a backup")),
    "key cut short": Case(holding(KEY, b'{"identity": "ab"}'), ("identity must be 32 bytes in hex",)),
    "key for everybody": Case(lambda home, _: (home / KEY).chmod(0o644), ("readable by its owner only (chmod 600)",)),
    "another's key": Case(another(KEY, "two/a/party.key"), ("other keys or in another role",)),
    "no token": Case(missing("token"), ("token is not there", "or a new one"), ("run", "doctor"), ("a",)),
    "token empty": Case(holding("token", b""), ("at least 16 characters",), ("run", "doctor"), ("a",)),
    "members garbled": Case(holding("members.json", GARBAGE), ("members.json cannot be read", "newest copy")),
    "members are no list": Case(holding("members.json", b"{}"), ("must be a list of editions",)),
    "no store": Case(lambda home, _: store_of(home).unlink(), ("never started",), ("backup",)),
    "store garbled": Case(store(b"garbage " * 999), ("is damaged", "newest whole copy")),
    "store empty": Case(store(b""), ("is empty", "bring the store back"), READING),
    "store without tables": Case(sql("PRAGMA user_version = 1", anew=True), ("is empty",), READING),
    "store of another program": Case(sql("CREATE TABLE x (y)", anew=True), ("must be one of fedbandit's",)),
    "store that lost a table": Case(sql("DROP TABLE models"), ("has lost models",)),
    "store of another party": Case(store_like("one/analyzer"), ("belongs to the analyzer analyzer",)),
    "store of a later version": Case(sql("UPDATE meta SET value = x'3939' WHERE key = 'format'"), ("version",)),
    "store of the first version": Case(
        sql("UPDATE meta SET value = x'31' WHERE key = 'format'"), ("0.1.0",), ("status", "run", "forward")
    ),
    "ledger rewritten": Case(sql("UPDATE ledger SET hash = 'x'"), ("ledger",), ("status", "backup", "run"), ("a",)),
}  # fmt: skip


def arguments(command: str, home: Path, role: str, all_: Path, out: Path) -> list[str]:
    verbs = {"a": "silo serve", "mixer": "mixer run", "analyzer": "analyzer run"}
    kind, verb = verbs[role].split()
    words = {
        "run": f"{kind} {verb} {home}",
        "forward": f"{kind} forward {home}",
        "backup": f"backup {home} {out / 'backup'}",
        "log": f"silo log {home} --out {out / 'log'}",
        "new-keys": f"federation new-keys {home}",
        "accept": f"federation accept {home} {all_ / 'one' / FEDERATION}",
        "accept --new-term": f"federation accept {home} {all_ / 'two' / FEDERATION} --new-term",
        "renew": f"federation renew {home} --plan {all_ / 'next.json'} --from-nothing",
        "model": f"federation renew {out / 'founder'} --plan {all_ / 'next.json'} --model {home}",
        "dismiss": f"federation dismiss {home} b",
    }
    program, *options = command.split()
    return words.get(command, " ".join([program, str(home), *options])).split()


def one_line(said: Said) -> None:
    """Done, or refused in a line."""
    assert "Traceback" not in said.err
    assert said.code == 0 or len(said.err.strip().splitlines()) == 1, said.err


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_one_line(name: str, federations: Path, fedbandit: Command, tmp_path: Path) -> None:
    case = CASES[name]
    for role in case.roles:
        for command in (*case.refusing, *OTHERS):
            home, out = tmp_path / f"{role}-{command.replace(' ', '')}", tmp_path / f"out-{role}-{command}"
            shutil.copytree(federations / "one" / role, home)
            (out / "founder").mkdir(parents=True)
            for file in ("operator.key", FEDERATION, "nats.conf"):
                shutil.copy(federations / "one" / file, out / "founder" / file)
            case.spoil(home, federations)
            said = fedbandit(*arguments(command, home, role, federations, out))
            if command == "doctor":
                assert said.code == 2, said.out
                assert all(words in said.out for words in case.words), said.out
                failures = [line for line in said.out.splitlines() if line.startswith("failure")]
                assert len({line.partition(": ")[2] for line in failures}) == len(failures), "each reason is said once"
            elif command in case.refusing:
                assert_refused(said, case.words[0])
                assert all(words in said.err for words in case.words), (command, said.err)
            else:
                one_line(said)
            if command == "backup":
                assert not (out / "backup").exists(), "no file is made that could not be restored"


@pytest.mark.parametrize("command", [*ALL, *OTHERS])
def test_no_directory_an_empty_one_and_one_of_another_kind(
    command: str, federations: Path, fedbandit: Command, tmp_path: Path
) -> None:
    """The founder's is no party's, and a party's is not the founder's."""
    (tmp_path / "empty").mkdir()
    shutil.copytree(federations / "one", tmp_path / "one")
    shutil.copytree(federations / "one", tmp_path / "founder")
    places = [tmp_path / "nowhere", tmp_path / "empty"]
    places += [] if command in ("backup", "doctor", "renew", "dismiss") else [tmp_path / "one"]
    places += [tmp_path / "one" / "a"] if command in ("renew", "dismiss") else []
    for home in places:
        said = fedbandit(*arguments(command, home, "mixer", federations, tmp_path))
        assert (said.code, len((said.err or said.out).strip().splitlines())) == (2, 1 if said.err else 2), said
        assert "must be" in said.err + said.out
    if command in RUNNING:
        assert_refused(
            fedbandit(*arguments(command, tmp_path / "one" / "a", "mixer", federations, tmp_path)),
            "home must be the directory of the mixer, got that of the silo",
        )


@pytest.mark.parametrize(
    "spoil, words",
    [
        (missing("operator.key"), "operator.key"),
        (holding("operator.key", GARBAGE), "operator.key cannot be read"),
        (holding(FEDERATION, GARBAGE), "federation.json cannot be read"),
        (missing(FEDERATION), "must be"),
        (holding("members.json", GARBAGE), "members.json cannot be read"),
    ],
)
def test_a_founders_directory(spoil: Spoil, words: str, federations: Path, fedbandit: Command, tmp_path: Path) -> None:
    for command in ("backup", "doctor", "renew", "dismiss", "provision"):
        home = tmp_path / command
        shutil.copytree(federations / "one", home)
        spoil(home, federations)
        asked = ["federation", "provision", str(home)] if command == "provision" else []
        said = fedbandit(*(asked or arguments(command, home, "a", federations, tmp_path)))
        assert (said.code, words in said.out + said.err) == (2, True), said
        assert command == "doctor" or len(said.err.strip().splitlines()) == 1, said.err


def test_options_of_a_new_term_that_would_have_no_effect(federations: Path, fedbandit: Command, tmp_path: Path) -> None:
    shutil.copytree(federations / "one", tmp_path / "one")
    (tmp_path / "editions.json").write_text("[]")
    accept = ("federation", "accept", str(tmp_path / "one" / "a"), str(tmp_path / "editions.json"), "--new-term")
    assert_refused(fedbandit(*accept), "--new-term has no effect on editions of the members")
    store_of(tmp_path / "one" / "analyzer").unlink()  # it has no model then
    renew = ("federation", "renew", str(tmp_path / "one"), "--plan", str(federations / "next.json"), "--weight", "0.5")
    assert_refused(fedbandit(*renew), "--weight has no effect where the last term has no model yet")
