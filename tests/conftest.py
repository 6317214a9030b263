"""Where test vectors lie, sources of noise, the same examples every time, signals as usual, and one core for each
process of tests."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import settings

from fedbandit._arrays import Integers
from fedbandit.privacy.noise import SimulatedNoise

VECTORS = Path(__file__).parent / "vectors"
settings.register_profile("the same examples every time", derandomize=True, deadline=None, database=None)
settings.load_profile("the same examples every time")


class NoNoise(SimulatedNoise):
    """Gaussians are zero; words, permutations and roundings stay random, since they change no total."""

    def gaussian(self, scales: np.ndarray, lead: tuple[int, ...] = ()) -> Integers:
        return np.zeros((*lead, len(scales)), dtype=np.int64)


LEAST = {  # what `make torture` must have done
    "crash points": 500,
    "simulated histories": 20_000,
    "storage faults": 20,
    "attacks": 60,
    "fuzzed inputs": 1_000_000,
    "planted bugs caught": 25,
    "soaked ticks": 10_000,
    "ticks without an end": 5_000,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make torture` runs tests/torture in full, `make test` in part."""
    parser.addoption("--full", action="store_true", help="run tests/torture in full, and end with its table")


def pytest_configure() -> None:
    """Signals mean what they usually do, here and in what tests start: whoever starts the tests in the background, or
    with nohup, has them ignored."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _done(config: pytest.Config) -> dict[str, int]:
    """How much the tests that passed say they did, by the names of `LEAST`."""
    done = dict.fromkeys(LEAST, 0)
    for report in config.pluginmanager.getplugin("terminalreporter").stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == "torture":
                done[value[0]] += value[1]
    return done


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table that `make torture` ends with."""
    if not config.getoption("--full"):
        return
    done = _done(config)
    terminalreporter.section("torture")
    for kind, least in LEAST.items():
        word = "" if done[kind] >= least else "  TOO FEW"
        terminalreporter.line(f"{kind:<22}{done[kind]:>12,}   at least {least:,}{word}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The whole torture suite fails if it has done too little, skipped tests included; a file of it does not."""
    config = session.config
    whole = config.getoption("--full") and config.args == ["tests"] and not config.getoption("--collect-only")
    if not whole or hasattr(config, "workerinput") or session.exitstatus:
        return
    done = _done(config)
    if any(done[kind] < least for kind, least in LEAST.items()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> None:
    """Tests run in several processes, more than there are cores since many wait: compiled loops would be in the way."""
    numba.set_num_threads(1)


@pytest.fixture
def vectors() -> Callable[[str], Any]:
    """Known answers by name."""
    return lambda name: json.loads((VECTORS / f"{name}.json").read_text())


@pytest.fixture
def noise() -> SimulatedNoise:
    """A seeded source of noise."""
    return SimulatedNoise(np.random.default_rng(20240521))


@pytest.fixture
def no_noise() -> SimulatedNoise:
    """A source whose Gaussians are all zero."""
    return NoNoise(np.random.default_rng(7))
