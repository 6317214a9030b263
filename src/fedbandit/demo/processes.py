"""The processes of a federation on this machine: they are started, watched, and stopped when the block is left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.wire import broker

__all__ = ["NotUp", "Processes", "seconds_to_start", "url"]

READY = 120.0  # seconds until the broker must be up
WATCH = 0.2


class NotUp(RuntimeError):
    """A silo was not up when it had to be."""

    def __init__(self, name: str, log: str) -> None:
        super().__init__(f"silo {name} was not up when the federation's clock started: {log[-500:]}")
        self.name = name


class Processes:
    """Broker and parties, as long as the block lasts. A process that dies is started again, as a service manager would
    do. If a silo is not ready at the time `until` (seconds of the epoch), all are stopped and NotUp is raised.
    """

    def __init__(self, path: Path, homes: list[Home], until: float) -> None:
        self.path, self.homes, self.until = path, homes, until
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
            asyncio.run(asyncio.wait_for(founding.provision(self.path), READY))
            for home in self.homes:
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
        parties = [process for name, process in self._running.items() if name != "broker"]
        for group in (parties, [p for name, p in self._running.items() if name == "broker"]):
            for process in group:
                process.terminate()
            for process in group:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _start(self, name: str) -> None:
        with (self.path / f"{name}.log").open("ab") as log:
            # In a new session: Ctrl-C reaches only the demo, which then stops its parties in order.
            process = subprocess.Popen(self._commands[name], stdout=log, stderr=log, start_new_session=True)
        with self._lock:
            self._running[name] = process

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH):
            for name, process in list(self._running.items()):
                if process.poll() is not None and not self._stopping.is_set():
                    self.restarts += 1
                    self._start(name)

    def _wait_for_broker(self) -> None:
        settings = json.loads((self.path / founding.BROKER_CONFIG).read_text())
        end = time.monotonic() + READY
        while not broker.listens(settings["host"], settings["port"]):
            if time.monotonic() > end:
                raise RuntimeError(f"the broker did not come up in {READY:.0f} s; see {self.path}/broker.log")
            time.sleep(0.02)

    def _wait_for(self, home: Home) -> None:
        while time.time() < self.until:
            try:
                answer = httpx.get(f"{url(home)}/readyz", timeout=5).json()
                if answer["ready"] and answer["connected"]:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        log = (self.path / f"{home.settings.name}.log").read_text(errors="replace")
        raise NotUp(home.settings.name, log)


def seconds_to_start() -> float:
    """How long a party takes to start on this machine now, divided by the number of cores."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import fedbandit.federation.process"], check=True)
    return (time.monotonic() - began) / (os.cpu_count() or 1)


def url(home: Home) -> str:
    """The address at which a party answers."""
    return f"http://{home.settings.host}:{home.served_on}"
