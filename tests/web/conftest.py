"""Servers of the pages, a small federation to look at, and a browser where there is one."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit.bench.page_speed import year_of_a_hundred
from fedbandit.federation import one_process
from fedbandit.federation.one_process import Federation
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock
from fedbandit.web.planner.planner_page import planner_server
from fedbandit.web.planner.playing import warm_up
from fedbandit.web.server import PageServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DAY = 86_400.0
DONE = 8  # syncs of the small federation when tests begin


@contextmanager
def running(server: PageServer) -> Iterator[PageServer]:
    """A server at work, ended when the block is left."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def planner() -> Iterator[PageServer]:
    """The planner, once the simulator is compiled: in a fresh clone that takes a while."""
    warm_up()
    with running(planner_server()) as server:
        yield server


def visit_all(federation: Federation, people: int, random: np.random.Generator) -> None:
    """So many people come to every silo."""
    theta = np.array([0.7, 0.2, 0.1, 0.6])
    for silo in federation.silos.values():
        for number in range(people):
            actions = random.normal(size=(4, 4))
            actions /= np.linalg.norm(actions, axis=1, keepdims=True)
            decision = silo.decide(actions, user=f"{silo.version} {number}")
            silo.reward(decision.id, float(random.random() < 0.5 + 0.35 * actions[decision.action] @ theta))
        silo.flush()


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Three hospitals, a week and a day after they began; what is shown of them is read from their directories."""
    began = one_process.START
    one_process.START = time.time() - (DONE + 0.4) * DAY
    plan = Plan(silos=3, rounds=60, dim=4, privacy=Privacy(1.0, 1e-6), schedule=clock(DAY), people=40)
    random = np.random.default_rng(5)
    try:
        with Federation.local(plan, ["north", "east", "west"], folder=tmp_path_factory.mktemp("federation")) as made:
            for _ in range(DONE):
                visit_all(made, 24, random)
                made.tick()
            yield made
    finally:
        one_process.START = began


@pytest.fixture(scope="session")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an analyzer with a hundred silos, some of them away now and then, after 300 of 365 syncs."""
    return year_of_a_hundred(tmp_path_factory.mktemp("hundred")).path


@pytest.fixture(scope="session")
def pictures() -> Path | None:
    """Where screenshots go, for the documentation: FEDBANDIT_SCREENSHOTS=docs/figures."""
    folder = os.environ.get("FEDBANDIT_SCREENSHOTS")
    return None if folder is None else Path(folder)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium. Where it or Playwright is missing, tests that need it are skipped and say so."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: pip install playwright")
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def open_(browser: Any) -> Iterator[Any]:
    """Opens a page; at the end nothing was said on the console, and nothing came from another host."""
    contexts, said, asked = [], list[str](), list[str]()

    def opened(url: str, width: int = 1280, height: int = 800, scheme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    provoked = ("401", "422", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "Content Security Policy")
    assert [text for text in said if not any(word in text for word in provoked)] == []
    assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:"))] == []
