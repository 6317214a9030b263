"""The processes of a federation on this machine: they are started, watched, and stopped when the block is left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from fedbandit.demo.ending import LOOK, Ending
from fedbandit.demo.guard import Guard
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.wire import broker

__all__ = ["NotUp", "Processes", "seconds_to_start", "url"]

READY = 120.0  # seconds until the broker must be up
WATCH = 0.2
GRACE = 10.0  # seconds that processes have to end by themselves, all of them together
ANSWER = 2.0  # seconds that a silo has to say whether it is ready, until it is asked again


class NotUp(RuntimeError):
    """A silo was not up when it had to be."""

    def __init__(self, name: str, log: str) -> None:
        super().__init__(f"silo {name} was not up when the federation's clock started: {log[-500:]}")
        self.name = name


class Processes:
    """Broker and parties, as long as the block lasts. A process that dies is started again, as a service manager would
    do, and all of them end if this one is killed. If a silo is not ready at the time `until` (seconds of the epoch),
    all are stopped and NotUp is raised.

    Signals are for `ending`: if a handler raised an exception here, processes could be left that nobody stops.
    """

    def __init__(self, path: Path, homes: list[Home], until: float, ending: Ending | None = None) -> None:
        self.path, self.homes, self.until, self._ending = path, homes, until, ending or Ending()
        self.restarts = 0
        self._commands: dict[str, list[str]] = {
            "broker": [str(broker.server_binary()), "-c", str(path / founding.BROKER_CONFIG)]
        }
        for home in homes:
            command = [sys.executable, "-m", "fedbandit.federation", str(home.path)]
            self._commands[home.settings.name] = command
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._guard = Guard()

    @property
    def silos(self) -> list[Home]:
        return [home for home in self.homes if home.settings.role == "silo"]

    def pid(self, name: str) -> int:
        """The id of the process that runs a party now."""
        with self._lock:
            return self._running[name].pid

    def __enter__(self) -> Self:
        try:
            self._start("broker")
            self._wait_for_broker()
            self._ending.run(asyncio.wait_for(founding.provision(self.path), READY))
            for home in self.homes:
                self._ending.check()
                self._start(home.settings.name)
            self._watcher.start()
            for home in self.silos:
                self._wait_for(home)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Terminate all processes, the broker last; kill those that do not end."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        _stop([process for name, process in self._running.items() if name != "broker"])
        _stop([process for name, process in self._running.items() if name == "broker"])
        for process in self._running.values():
            self._guard.release(process.pid)
        self._guard.close()

    def _start(self, name: str) -> None:
        with self._lock, (self.path / f"{name}.log").open("ab") as log:
            # In a new session: Ctrl-C reaches only the demo, which then stops its parties in order.
            process = subprocess.Popen(self._commands[name], stdout=log, stderr=log, start_new_session=True)
            self._guard.watch(process.pid)
            self._running[name] = process

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH):
            for name, process in list(self._running.items()):
                if process.poll() is not None and not self._stopping.is_set():
                    self.restarts += 1
                    self._guard.release(process.pid)
                    self._start(name)

    def _wait_for_broker(self) -> None:
        settings = json.loads((self.path / founding.BROKER_CONFIG).read_text())
        end = time.monotonic() + READY
        while not broker.listens(settings["host"], settings["port"]):
            if time.monotonic() > end:
                raise RuntimeError(f"the broker did not come up in {READY:.0f} s; see {self.path}/broker.log")
            self._ending.pause(0.02)

    def _wait_for(self, home: Home) -> None:
        while time.time() < self.until:
            if _is_ready(home):
                return
            self._ending.pause(0.1)
        log = (self.path / f"{home.settings.name}.log").read_text(errors="replace")
        raise NotUp(home.settings.name, log)


def _is_ready(home: Home) -> bool:
    """Whether a silo says that it is ready, and connected to the broker."""
    asked = HTTPConnection(home.settings.host, home.served_on, timeout=ANSWER)
    try:
        asked.request("GET", "/readyz")
        answer = json.loads(asked.getresponse().read())
        return bool(answer["ready"] and answer["connected"])
    except (OSError, HTTPException, ValueError):
        return False
    finally:
        asked.close()


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Terminate these processes, and kill those that have not ended when the time for all of them is over."""
    for process in processes:
        process.terminate()
    end = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    for process in processes:
        process.wait()


def seconds_to_start(ending: Ending | None = None) -> float:
    """How long a party takes to start on this machine now, divided by the number of cores."""
    ending = ending or Ending()
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", "import fedbandit.federation.process"]) as process:
        try:
            while process.poll() is None:
                ending.pause(LOOK / 5)
        finally:
            process.kill()
    if process.returncode:
        raise RuntimeError("a party cannot be started: fedbandit.federation.process cannot be imported")
    return (time.monotonic() - began) / (os.cpu_count() or 1)


def url(home: Home) -> str:
    """The address at which a party answers."""
    return f"http://{home.settings.host}:{home.served_on}"
