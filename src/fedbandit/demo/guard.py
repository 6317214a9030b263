"""Ends the processes that a program has started if the program is killed before it has ended them.

The guard is a process of its own. It hears of the others through a pipe whose far end only the program holds. When that
end is closed, nobody is left who would stop those that it still knows of.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

__all__ = ["Guard"]

GRACE = 10.0  # seconds that processes have to end by themselves
LOOK = 0.05  # seconds between looks at who is still there


class Guard:
    """The program's side, for all its threads. The process begins with the first one that it is to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def watch(self, pid: int) -> None:
        """If the program is gone, end the process with this id."""
        with self._lock:
            if self._process is None:
                # This file alone, which imports little. In a new session: Ctrl-C reaches only the program.
                command = [sys.executable, "-I", __file__]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
            self._tell(f"+{pid}")

    def release(self, pid: int) -> None:
        """This process has ended, and its id may soon be another's."""
        with self._lock:
            self._tell(f"-{pid}")

    def close(self) -> None:
        """The program ends: nothing more is watched, and what still is must end now."""
        with self._lock:
            if self._process is not None:
                self._process.communicate()
                self._process = None

    def _tell(self, text: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # somebody has killed the guard
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()


def guard(told: Iterable[str]) -> None:
    """Keep account of processes until nothing more is said, then end them."""
    watched: set[int] = set()
    for line in told:
        (watched.add if line[0] == "+" else watched.discard)(int(line[1:]))
    end = time.monotonic() + GRACE
    left = {pid for pid in watched if _signalled(pid, signal.SIGTERM)}
    while left and time.monotonic() < end:
        time.sleep(LOOK)
        left = {pid for pid in left if _signalled(pid, 0)}
    for pid in left:
        _signalled(pid, signal.SIGKILL)


def _signalled(pid: int, number: int) -> bool:
    """Whether there is such a process; it gets the signal."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    guard(sys.stdin)
