"""Commands of docs/federation.md, docs/operating.md and docs/reliability.md that need running parties, on one machine.

The organisations share a folder here, and the broker has a port that is free; nothing else is changed.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fedbandit.federation.wire.broker import free_port
from tests.docs.pages import DOCS, Block, blocks, shell_lines

STEPS = [
    block for block in blocks(DOCS / "federation.md") if "tests/test_pages.py" in block.mark and block.kind == "sh"
]
PROGRAM = (sys.executable, "-c", "from fedbandit.cli.main import main; main()")
PATIENCE = 120.0  # seconds
UP_TO_DATE = "not behind: others have seen nothing that this store does not hold"
SERVES = ("nats-server", "fedbandit analyzer run", "fedbandit mixer run", "fedbandit silo serve")


def own(page: str) -> list[Block]:
    return [block for block in blocks(DOCS / page) if "tests/docs/test_set_up.py" in block.mark]


def lines(block: Block) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in shell_lines(block)]


def program(words: list[str]) -> list[str]:
    if words[0] == "nats-server":  # beside the environment's Python
        return [str(Path(sys.executable).parent / words[0]), *words[1:]]
    assert words[0] == "fedbandit"
    return [*PROGRAM, *words[1:]]


def run(words: list[str], folder: Path, codes: tuple[int, ...] = (0,)) -> str:
    """What a command prints; it ends with one of these codes."""
    done = subprocess.run(program(words), cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in codes, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


@contextmanager
def serving(words: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until it is told to end, and then ends well."""
    with (folder / f"{'-'.join(words[:3]).replace('/', '-')}.log").open("wb") as log:
        process = subprocess.Popen(program(words), cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def founded(folder: Path) -> None:
    """Steps 1 to 4 of the page, for everybody: A, B, the mixer and the foundation, which hosts the analyzer."""
    init, join, admit, accept = STEPS
    broker = f"nats://127.0.0.1:{free_port()}"
    (founds,) = lines(init)
    run([broker if word.startswith("tls://") else word for word in founds], folder)
    federation = folder / "founder" / "federation.json"
    (folder / "federation.json").write_bytes(federation.read_bytes())
    for words in lines(join):
        port = [] if "--role" in words else ["--port", str(free_port())]
        kept = [word for word in words if word not in ("--port", "8080")]
        run([*kept, *port], folder)
        (card,) = (folder / words[3]).glob("*.card.json")
        (folder / card.name).write_bytes(card.read_bytes())
    (admits,) = lines(admit)
    assert "complete" in run(admits, folder)
    (folder / "federation.json").write_bytes(federation.read_bytes())
    (accepts,) = lines(accept)
    for home in ("hospital-a", "hospital-b", "mixer"):
        run([home if word == "hospital-a" else word for word in accepts], folder)


def answered(words: list[str], folder: Path) -> None:
    """Ask again until the answer is well."""
    end = time.monotonic() + PATIENCE
    while subprocess.run(program(words), cwd=folder, capture_output=True).returncode != 0:
        assert time.monotonic() < end, words
        time.sleep(0.3)


@pytest.mark.torture
def test_the_parties_of_the_page_are_started_looked_at_and_brought_forward(tmp_path: Path) -> None:
    founded(tmp_path)
    (started,) = own("federation.md")
    broker, provision, analyzer, mixer, silo = lines(started)
    assert all(" ".join(words).startswith(SERVES) for words in (broker, analyzer, mixer, silo))
    looked, provisioned = own("operating.md")
    (forward,) = own("reliability.md")
    other = [word.replace("hospital-a", "hospital-b") for word in silo]
    with serving(broker, tmp_path), serving(other, tmp_path), ExitStack() as rest:
        assert "streams and consumers are there" in run(provision, tmp_path)
        parties = {words[-1]: (words, ExitStack()) for words in (silo, mixer, analyzer)}
        for words, running in parties.values():
            rest.enter_context(running).enter_context(serving(words, tmp_path))
        health, alive, *doctors = lines(looked)
        answered(alive, tmp_path)
        answered(health, tmp_path)
        for words in doctors:
            said = run(words, tmp_path, codes=(0, 1))  # 1: warnings, as of a machine with few descriptors
            assert "failure" not in said, said
        for words in lines(provisioned):
            assert "streams and consumers are there" in run(words, tmp_path)
        for words in lines(forward):
            again, running = parties.pop(words[-1])
            running.close()  # a party that runs is not brought forward; the others answer it
            assert UP_TO_DATE in run(words, tmp_path)
            rest.enter_context(serving(again, tmp_path))
        assert not parties
        answered(health, tmp_path)
    status = json.loads(run(["fedbandit", "status", "hospital-a", "--json"], tmp_path))
    assert (status["released"], status["problem"]) == (0, None)


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"has no party\.json"):
        run(["fedbandit", "status", "nowhere"], tmp_path)
