"""docs/bad-day.md and docs/upgrading.md: their commands are run, in their order, on a federation that has ticked."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedbandit as fb
from fedbandit.cli.main import app
from fedbandit.federation.backup import passphrase
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import Home
from fedbandit.federation.store.migrations import _REASONS
from fedbandit.federation.store.schema import ADDED, EARLIER, FORMAT
from fedbandit.federation.wire.keys import PartyKeys, public_nkey
from tests.federation.small import small_plan
from tests.federation.test_one_process import CLOCK, visit

DOCS = Path(__file__).parents[2] / "docs"
PAGE, UPGRADING = ((DOCS / name).read_text() for name in ("bad-day.md", "upgrading.md"))
PLAN = small_plan(**CLOCK, cohort=2)
SERVED = re.compile(r"fedbandit silo serve [a-z-]+ --catch-up")


def commands(page, heading):
    """The commands below a heading, without their remarks."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


def run(command, code=0):
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == code, (command, result.output, result.exception)
    return " ".join(result.output.split())


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directories of the page, after two syncs, with everybody's backup."""
    monkeypatch.setattr(passphrase, "COST", 2**10)
    monkeypatch.chdir(tmp_path)
    names = ["hospital-a", "hospital-b", "hospital-c"]
    with fb.Federation.local(PLAN, names, folder="founder") as federation:
        for silo in federation.silos.values():
            visit(silo, 3)
        federation.tick(2)
        visit(federation.silos["hospital-a"], 2)
    for name in ("hospital-a", "hospital-b", "mixer"):
        shutil.move(f"founder/{name}", name)
    Path("passphrase").write_text("xyzzy\n")
    for command in commands(PAGE, "Before it"):
        run(command)
    run("fedbandit backup hospital-b hospital-b.backup --passphrase-file passphrase")
    return tmp_path


def test_a_disk_is_lost(place):
    restore, serve, without = commands(PAGE, "A disk is lost")
    token = Path("hospital-a/token").read_text()
    shutil.rmtree("hospital-a")
    said = run(f"{restore} --offline", code=1)
    assert "2 syncs, 2 entries of its ledger" in said
    assert "fedbandit silo forward hospital-a" in said
    assert Path("hospital-a/token").read_text() == token
    assert json.loads(run("fedbandit status hospital-a --json"))["released"] == 2
    assert SERVED.fullmatch(serve)
    assert "fedbandit silo forward hospital-a --yes" in PAGE
    shutil.rmtree("hospital-b")
    result = CliRunner().invoke(app, shlex.split(without)[1:])
    assert "is for a database that is still there" in str(result.exception)
    assert not Path("hospital-b").exists()
    for name in ("mixer", "analyzer"):
        manifest = json.loads(
            run(f"fedbandit restore {name}.backup {name}-2 --offline --passphrase-file passphrase --json", code=1)
        )
        assert (manifest["role"], manifest["store"]["syncs"]) == (name, 2)


def test_a_partys_key_is_lost(place):
    join, renew = commands(PAGE, "A party's key is lost")
    shutil.copy("founder/federation.json", "federation.json")
    assert "hospital-a.card.json" in run(join)
    shutil.copy("hospital-a-new/hospital-a.card.json", ".")
    Path("next.json").write_text(json.dumps(PLAN.changed(rounds=5).as_dict()))
    before = Agreement.load(Path("founder/federation.json"))
    run(renew)
    agreed = Agreement.load(Path("founder/federation.json"))
    assert [party.name for party in agreed.parties] == [party.name for party in before.parties]
    changed = [new.name for new, old in zip(agreed.parties, before.parties, strict=True) if new != old]
    assert changed == ["hospital-a"]
    nkey = public_nkey(agreed.party("hospital-a").broker)
    assert nkey in Path("founder/nats.conf").read_text()
    assert public_nkey(before.party("hospital-a").broker) not in Path("founder/nats.conf").read_text()
    accept = "fedbandit federation accept {} founder/federation.json --new-term"
    result = CliRunner().invoke(app, shlex.split(accept.format("hospital-b"))[1:])
    assert "must wait until the running term has made its last release" in str(result.exception)
    for home in ("hospital-a-new", "mixer"):
        run(accept.format(home))
        assert Home.load(Path(home)).party().agreement.fingerprint == agreed.fingerprint
    result = CliRunner().invoke(app, shlex.split("federation accept hospital-a founder/federation.json --new-term"))
    assert "it has others" in str(result.exception)  # the lost keys are nobody's any more
    run("fedbandit ledger hospital-a/silo.db")  # as the text says


def test_keys_of_somebody_else_replace_nobody(place):
    Path("next.json").write_text(json.dumps(PLAN.changed(rounds=5).as_dict()))
    Path("federation.json").write_bytes(Path("founder/federation.json").read_bytes())
    run("fedbandit federation join other --federation federation.json --name somebody-else")
    run("fedbandit federation join wrong --federation federation.json --name hospital-a --role mixer")
    before = Path("founder/federation.json").read_bytes()
    for card, words in (
        ("other/somebody-else.card.json", "not a party"),
        ("wrong/hospital-a.card.json", "the silo"),
    ):
        result = CliRunner().invoke(app, shlex.split(f"federation renew founder --plan next.json --replace {card}"))
        assert words in str(result.exception)
    assert Path("founder/federation.json").read_bytes() == before


def test_the_operators_key_is_lost(place):
    restore, renew = commands(PAGE, "The operator's key is lost")
    key = Path("founder/operator.key")
    run(restore)
    assert Path("founder-again/operator.key").read_bytes() == key.read_bytes()
    Path("next.json").write_text(json.dumps(PLAN.changed(rounds=5).as_dict()))
    result = CliRunner().invoke(app, shlex.split(renew)[1:])
    assert "move it away" in str(result.exception)
    key.unlink()
    run(renew)
    made = PartyKeys.load(key).broker.public_key().public_bytes_raw()
    assert Agreement.load(Path("founder/federation.json")).operator == made
    assert public_nkey(made) in Path("founder/nats.conf").read_text()


def test_the_other_days(place):
    (serve,) = commands(PAGE, "A silo was gone for a month")
    assert SERVED.fullmatch(serve)
    (ledger,) = commands(PAGE, "The plan is wrong")
    assert "2" in run(ledger)


def test_the_page_on_upgrading_names_every_format():
    save, _, look = commands(UPGRADING, "How")
    assert save.startswith("fedbandit backup hospital-a")
    assert look == "fedbandit doctor hospital-a"
    table = UPGRADING.split("## Formats of stores")[1]
    rows = dict(re.findall(r"^\| (\d) \| .*? \| (.*?) \|$", table, flags=re.MULTILINE)[: len(EARLIER) + 1])
    assert sorted(rows) == sorted([*EARLIER, FORMAT])
    for held, said in rows.items():
        assert said.startswith("no: ") == (held in _REASONS)
        assert held in _REASONS or held in ADDED or said.startswith("yes")
