"""A signal to end is obeyed wherever it arrives, once, and where nothing is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedbandit.demo import processes
from fedbandit.demo.ending import ENDING, Ending, heeded
from fedbandit.demo.guard import Guard

CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


def tell(number):
    os.kill(os.getpid(), number)


def work(*steps):
    for step in steps:
        step()


class Last:
    """What its destructor raises is printed and lost."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        tell(self.number)


@pytest.mark.parametrize("number", CODES)
def test_what_is_said_in_a_destructor_is_not_lost(number):
    with heeded() as ending:
        Last(number)
        with pytest.raises(SystemExit) as ended:
            ending.check()
    assert ended.value.code == CODES[number]


def test_ctrl_c_is_obeyed_in_the_same_places():
    with heeded() as ending:
        tell(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            ending.pause(60)


def test_what_runs_in_an_event_loop_is_cancelled_however_often_it_takes():
    cancelled = []

    async def stubborn():
        tell(signal.SIGTERM)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(time.monotonic())
                if len(cancelled) == 3:
                    raise

    with heeded() as ending, pytest.raises(SystemExit):
        ending.run(stubborn())
    assert len(cancelled) == 3


def test_a_result_or_an_error_of_the_event_loop_is_passed_on():
    async def work(result):
        if result is None:
            raise ValueError("nothing")
        return result

    assert Ending().run(work(7)) == 7
    with pytest.raises(ValueError, match="nothing"):
        Ending().run(work(None))


def test_a_second_signal_cuts_nothing_short():
    done = []

    def twice(ending):
        try:
            tell(signal.SIGTERM)
            ending.pause(60)
        finally:
            for number in ENDING:
                tell(number)
                done.append(number)

    with heeded() as ending, pytest.raises(SystemExit) as ended:
        twice(ending)
    assert done == list(ENDING)
    assert ended.value.code == 143


def test_a_long_computation_is_interrupted():
    with heeded() as ending, pytest.raises(SystemExit), ending.at_once():
        work(lambda: tell(signal.SIGTERM), lambda: pytest.fail("it went on"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_if_the_interruption_is_lost_the_program_ends_with_the_computation():
    reached = []
    with heeded() as ending, pytest.raises(SystemExit), ending.at_once():
        work(lambda: Last(signal.SIGTERM), lambda: reached.append(True))
    assert reached


def test_a_signal_that_the_program_was_started_to_ignore_stays_ignored():
    """`nohup fedbandit demo` was ended by the end of the session."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with heeded() as ending:
            tell(signal.SIGHUP)
            ending.check()
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back():
    before = [signal.getsignal(one) for one in ENDING]
    with heeded():
        assert [signal.getsignal(one) for one in ENDING] != before
    assert [signal.getsignal(one) for one in ENDING] == before


def test_processes_that_do_not_end_are_killed_after_one_time_for_all_of_them(monkeypatch):
    """Each had its own ten seconds, one after the other."""
    monkeypatch.setattr(processes, "GRACE", 1.0)
    deaf = ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done"]
    started = [subprocess.Popen(deaf, stdout=subprocess.PIPE, start_new_session=True) for _ in range(6)]
    outputs = [process.stdout for process in started if process.stdout is not None]
    for output in outputs:
        output.readline()  # from here on it is deaf
    began = time.monotonic()
    processes._stop(started)
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 6
    assert time.monotonic() - began < 4.0
    for output in outputs:
        output.close()


@pytest.mark.parametrize("number", CODES)
def test_a_benchmark_that_is_told_to_end_stops_what_it_has_started(tmp_path, number):
    """Silo, broker and database server went on, without anybody to stop them."""
    note = tmp_path / "note"
    program = f"""
import pathlib, subprocess, sys, time
from fedbandit.cli.researcher import bench_command

def measure(progress):
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        pathlib.Path({str(note)!r}).write_text(f"{{process.pid}} ")
        time.sleep(300)
    finally:
        process.terminate()
        process.wait()

bench_command._figures = lambda live: measure
sys.argv = ["fedbandit", "bench", "--live"]
from fedbandit.cli.main import main
main()
"""
    with subprocess.Popen([sys.executable, "-c", program]) as bench:
        end = time.monotonic() + 300
        while not (note.exists() and note.read_text().endswith(" ")):
            assert time.monotonic() < end
            time.sleep(0.05)
        bench.send_signal(number)
        assert bench.wait(60) == CODES[number]
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), signal.SIGKILL)


def running(pid):
    """Whether a process runs; one that has ended may still wait for somebody who asks how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("deaf", [False, True])
def test_what_a_killed_demo_has_started_ends(tmp_path, deaf):
    """Broker and parties of a demo that was killed with `kill -9` went on, without anybody to stop them."""
    silo = "trap '' TERM; exec sleep 300" if deaf else "exec sleep 300"
    commands = {"broker": ["sleep", "300"], "silo": ["sh", "-c", silo]}
    program = f"""
import pathlib, time
from fedbandit.demo.processes import Processes
processes = Processes(pathlib.Path({str(tmp_path)!r}), [], 0.0)
processes._commands = {commands!r}
for name in processes._commands:
    processes._start(name)
print(*(processes.pid(name) for name in processes._commands), flush=True)
time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        started = [int(pid) for pid in demo.stdout.readline().split()]
        assert len(started) == 2
        assert all(running(pid) for pid in started)
        demo.kill()
    end = time.monotonic() + 60
    while any(running(pid) for pid in started):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_guard_lets_go_of_what_has_ended():
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as other:
        guard = Guard()
        guard.watch(other.pid)
        guard.release(other.pid)  # as if it had ended, and another process had got its number
        guard.close()
        assert other.poll() is None
        other.kill()


def test_a_guard_that_was_killed_disturbs_nobody():
    guard = Guard()
    guard.watch(os.getpid())
    assert guard._process is not None
    guard._process.kill()
    guard._process.wait()
    for _ in range(3):
        guard.release(os.getpid())
    guard.close()
