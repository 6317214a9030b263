"""A party that is told to end ends soon, whatever it is doing and whatever hangs."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
import pytest

from fedbandit.demo.processes import url
from fedbandit.federation import leaving
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import SETTINGS, Home
from fedbandit.federation.wire import broker, link
from fedbandit.federation.wire.link import Link
from tests.federation.conftest import postgres_server
from tests.federation.test_process import decide, founded
from tests.federation.test_process import wait_until as wait_for

MAIN = "from fedbandit.cli.main import main; main()"
SOON = leaving.END + 12.0  # seconds; until the fault was mended, nothing here ended at all


def wait_until(condition, seconds=400.0):
    """What must have happened before the test begins may take minutes on a machine that does other work."""
    return wait_for(condition, seconds)


@contextlib.contextmanager
def running(before, *words, **variables):
    """A command of the program, after some lines of code."""
    command = [sys.executable, "-c", f"{before}\n{MAIN}", *map(str, words)]
    process = subprocess.Popen(command, env=os.environ | variables)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ends(process):
    """Whether the process ends soon after SIGTERM; how long it took, and its exit code."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(SOON)
    return time.monotonic() - began, code


def well(home):
    return wait_until(lambda: httpx.get(f"{url(home)}/healthz", timeout=5).status_code == 200)


def test_while_it_compiles(tmp_path):
    """The event loop waited for the thread, and the interpreter too."""
    silo = founded(tmp_path)
    marker = tmp_path / "compiles"
    slow = f"""
import time, pathlib
from fedbandit.federation.silo.serving import Silo

def quicken(self):
    pathlib.Path({str(marker)!r}).touch()
    time.sleep(60)

Silo.quicken = quicken
"""
    with running(slow, "silo", "serve", silo.path) as process:
        wait_until(marker.exists)
        took, code = ends(process)
    assert (took < leaving.END, code) == (True, 0)


@contextlib.contextmanager
def frozen(server):
    """A database server that hangs: its processes are stopped."""
    main = server._process.pid
    children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    pids = [main, *map(int, children)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def rewarded(silo, decision):
    headers = {"Authorization": f"Bearer {silo.token()}"}
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(f"{url(silo)}/v1/decisions/{decision}/reward", json={"reward": 1.0}, headers=headers, timeout=60)


def test_a_silo_whose_database_hangs(tmp_path):
    """A reward waited for the answer for ever, and the silo for the reward."""
    with postgres_server() as server:
        silo = founded(tmp_path, server.url)
        with running("", "silo", "serve", silo.path) as process:
            decision = wait_until(lambda: decide(silo).json())["id"]
            with frozen(server):
                threading.Thread(target=rewarded, args=(silo, decision), daemon=True).start()
                time.sleep(1.0)
                assert ends(process)


def test_an_analyzer_whose_database_hangs(tmp_path):
    """Its event loop waited for the answer, and did not hear the signal."""
    with postgres_server() as server:
        founded(tmp_path)
        analyzer = Home.load(tmp_path / "analyzer")
        port = broker.free_port()
        replace(analyzer.settings, store=server.url, health_port=port).save(analyzer.path / SETTINGS)
        analyzer = Home.load(analyzer.path)
        with contextlib.ExitStack() as stack:
            stack.enter_context(broker.BrokerProcess(tmp_path / founding.BROKER_CONFIG, tmp_path / "broker.log"))
            asyncio.run(founding.provision(tmp_path))
            stack.enter_context(running("", "silo", "serve", tmp_path / "silo"))
            process = stack.enter_context(running("", "analyzer", "run", analyzer.path))
            # It reads its store once the silo has said how far it has seen it come.
            wait_until(lambda: httpx.get(f"{url(analyzer)}/readyz", timeout=5).json()["ready"])
            stack.enter_context(frozen(server))
            time.sleep(1.0)
            with pytest.raises(httpx.TimeoutException):
                httpx.get(f"{url(analyzer)}/healthz", timeout=2)
            assert ends(process)


def marked(mark):
    """Processes that were started with this mark."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def gone(mark):
    """Whether no process with this mark is left; the rest is killed."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not marked(mark), SOON)
    left = marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return not left


def test_workers_that_are_just_being_started(tmp_path, empty_postgres):
    """The signal ended the process that starts them, and left the first one."""
    silo, mark = founded(tmp_path, empty_postgres), f"fedbandit-test-{os.getpid()}-{time.time_ns()}"
    early = """
import os, signal
from fedbandit.federation.workers import _Crew

def start(self, *args, real=_Crew._start):
    worker = real(self, *args)
    os.kill(os.getpid(), signal.SIGTERM)
    return worker

_Crew._start = start
"""
    with running(early, "silo", "serve", silo.path, "--workers", "2", MARK=mark) as process:
        code = process.wait(400)
    assert (gone(mark), code) == (True, 0)


def test_workers_whose_parent_is_killed(tmp_path, empty_postgres):
    """They went on by themselves, and kept the port from those who served the silo next."""
    silo, mark = founded(tmp_path, empty_postgres), f"fedbandit-test-{os.getpid()}-{time.time_ns()}"
    with running("", "silo", "serve", silo.path, "--workers", "2", MARK=mark) as process:
        well(silo)
        assert len(marked(mark)) >= 3
        process.kill()
        process.wait()
        assert gone(mark)


def test_a_broker_that_says_no_goodbye_holds_up_nobody(monkeypatch):
    """Over TLS, a broker that hung held up the end of a party for half a minute."""
    monkeypatch.setattr(link, "CLOSING", 0.1)
    aborted = []

    class Transport:
        class _io_writer:
            class transport:
                @staticmethod
                def abort():
                    aborted.append(True)

    class Client:
        is_closed, _transport = False, Transport

        async def close(self):
            await asyncio.sleep(60)

    closing = Link.__new__(Link)
    monkeypatch.setattr(closing, "client", Client(), raising=False)
    began = time.monotonic()
    asyncio.run(closing.close())
    assert time.monotonic() - began < 10.0
    assert aborted == [True]


@pytest.mark.parametrize("error", [None, ValueError])
def test_a_task_that_loses_a_cancellation_is_cancelled_again(monkeypatch, error):
    monkeypatch.setattr(leaving, "AGAIN", 0.01)
    lost = []

    async def work():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost.append(True)
                if len(lost) == 3:
                    if error:
                        raise error from None
                    raise

    async def scenario():
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await leaving.ended(task)

    with pytest.raises(error) if error else contextlib.nullcontext():
        asyncio.run(scenario())
    assert len(lost) == 3


def test_psycopg_is_the_one_that_hangs():
    """A guard for the two tests above: a stopped server gives no answer, and no error."""
    with postgres_server() as server, psycopg.connect(server.url) as connection:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(connection.execute("SELECT 1").fetchone()), daemon=True)
        with frozen(server):
            thread.start()
            thread.join(1.0)
            assert thread.is_alive()
        thread.join(20.0)
        assert answers == [(1,)]


def test_a_silo_whose_disk_is_full(tmp_path):
    """It ended with code 2 and an error, as if it had not been able to start."""
    silo = founded(tmp_path)
    with running("", "silo", "serve", silo.path) as process:
        decision = wait_until(lambda: decide(silo).json())["id"]
        rewarded(silo, decision)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        decide(silo)
        took, code = ends(process)
    assert (took < SOON, code) == (True, 0)
