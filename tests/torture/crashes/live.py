"""A federation of real processes over a real broker: users come by HTTP, and whoever dies is started again at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np

from fedbandit._validate import ArgumentError
from fedbandit.demo.processes import url
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.store import read_engine
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.plan import Plan
from tests.torture.crashes import victim
from tests.torture.crashes.conductor import Served

__all__ = ["LiveFederation"]

DEADLINE, PATIENCE = 240.0, 300.0  # seconds: on a busy machine, too, no sync is skipped and what must happen has
WATCH = 0.05
SETTLE, SETTLE_LAST = 0.3, 1.5  # seconds for rewards under way
GONE = 410  # the answer to a reward that comes after the last release
SEATED = "SELECT coalesce(max(seated), 0) FROM terms"
MODELS = "SELECT count(*) FROM models"
PUBLISHED = "SELECT count(*) FROM syncs WHERE state = 'published'"
ACTIONS = [[1.0, 0.0], [0.6, 0.8]]
_server = multiprocessing.get_context("forkserver")


class LiveFederation:
    """All parties but the broker are forked from one process that has read the code already."""

    def __init__(self, path: Path, plan: Plan, stops: dict[str, int]) -> None:
        self.path, self.plan, self.deaths = path, plan, 0
        names = [f"silo-{number}" for number in range(plan.silos)]
        homes = founding.local(path, plan, names, Timing(DEADLINE, SETTLE, SETTLE_LAST, start=time.time()))
        self.homes: dict[str, Home] = {home.settings.name: home for home in homes}
        self.silos, self.served = names, list[Served]()
        self.broker = broker.BrokerProcess(path / founding.BROKER_CONFIG, path / "broker.log")
        self._stops = dict(stops)
        self._running: dict[str, BaseProcess] = {}
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def store(self, name: str) -> Path:
        return Path(self.homes[name].store(self.plan.hash))

    def __enter__(self) -> Self:
        self.broker.start()
        asyncio.run(founding.provision(self.path))
        for name in self.homes:
            self._start(name)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._watcher.join()
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.join(10)
            process.kill()
        self.broker.stop()

    def kill(self, *names: str) -> None:
        """kill -9 from outside; the broker is started again here, all others by the watcher."""
        for name in names:
            if name == "broker":
                self.broker.kill()
            else:
                self._running[name].kill()
        if "broker" in names:
            self.broker.start()

    def ask(self, name: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """A request to a silo, made again until it is answered; None if it comes too late for good."""
        home = self.homes[name]
        headers = {"Authorization": f"Bearer {home.token()}"}
        end = time.monotonic() + PATIENCE
        while True:
            try:
                answer = httpx.post(f"{url(home)}{path}", json=body, headers=headers, timeout=10)
                if answer.is_success:
                    return dict(answer.json())
                if answer.status_code == GONE:
                    return None
                problem = answer.text
            except httpx.HTTPError as error:
                problem = repr(error)
            if time.monotonic() > end:
                raise AssertionError(f"{name} does not answer: {problem}; {self._log(name)}")
            time.sleep(0.05)

    def serve(self, name: str, reward: float) -> None:
        """A person comes to a silo and is rewarded."""
        decision = self.ask(name, "/v1/decisions", {"actions": ACTIONS})
        assert decision is not None
        answer = self.ask(name, f"/v1/decisions/{decision['id']}/reward", {"reward": reward})
        if answer is not None:
            features = np.array(ACTIONS[decision["action"]])
            self.served.append(Served(name, decision["id"], features, reward, [answer["batch"]]))

    def play(self, disturb: Callable[[int], None] = lambda sync: None) -> None:
        """The whole term; `disturb` is called when the users of a batch have come."""
        for sync, places in enumerate(self.plan.times):
            for name in self.silos:
                while self._read(name, SEATED) < places:
                    self.serve(name, len(self.served) / 100)
            disturb(sync)
            self.until("analyzer", PUBLISHED, sync + 1)
        for name in self.silos:
            self.until(name, MODELS, len(self.plan.times))

    def _read(self, name: str, query: str) -> int:
        """A number from a party's store; 0 if there is none yet."""
        try:
            engine = read_engine(self.store(name))
            with engine.read() as sql:
                ((value,),) = sql.all(query)
            engine.close()
        except (sqlite3.OperationalError, ArgumentError):  # no file, or one without tables
            return 0
        return int(value)

    def until(self, name: str, query: str, number: int) -> None:
        """Until a number in a party's store has grown to this."""
        end = time.monotonic() + PATIENCE
        while (found := self._read(name, query)) < number:
            assert time.monotonic() < end, f"{found} of {number}: {query}; {[self._log(other) for other in self.homes]}"
            time.sleep(0.05)

    def _start(self, name: str) -> None:
        home = self.homes[name]
        arguments = (home.path, self.store(name), self._stops.pop(name, 0), home.path / "log")
        self._running[name] = _server.Process(target=victim.be, args=arguments, daemon=True)
        self._running[name].start()

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH):
            for name, process in list(self._running.items()):
                if process.exitcode is not None and not self._stopping.is_set():
                    self.deaths += 1
                    self._start(name)

    def _log(self, name: str) -> str:
        log = self.homes[name].path / "log"
        return log.read_text(errors="replace")[-600:] if log.exists() else ""
