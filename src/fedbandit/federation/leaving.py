"""The end of a process that has threads and was told to end."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn

__all__ = ["leave"]


def leave(code: int) -> NoReturn:
    """End this process now. Everything is closed and on disk. To take the interpreter down in order takes seconds on a
    busy machine, and waits for threads: one may be compiling, another may wait for a database that hangs."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # nobody may be reading any more
            stream.flush()
    os._exit(code)
