"""Log lines as text or as JSON, and the id of the request that a line belongs to.

Whoever calls a party may name a request (`X-Request-Id`); it is named here otherwise. The answer carries the name, and
so does every line that is logged while the request is worked on.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import secrets
import time
from contextvars import ContextVar
from typing import Any, Literal, get_args

__all__ = ["HEADER", "REQUEST", "STYLES", "JsonLines", "Style", "TextLines", "named", "set_up"]

Style = Literal["text", "json"]
STYLES: tuple[Style, ...] = get_args(Style)
HEADER = b"x-request-id"
REQUEST: ContextVar[str] = ContextVar("request", default="")

_FINE = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")  # a name that spoils no header and no line
_PREFIX, _COUNT = secrets.token_hex(6).encode(), itertools.count(1)
_USUAL = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"))


def named(given: bytes | None) -> bytes:
    """The name of a request: as given if that can be written down as it is, otherwise a new one."""
    if given and _FINE.fullmatch(given):
        return given
    return b"%b-%x" % (_PREFIX, next(_COUNT))


class TextLines(logging.Formatter):
    """A line for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        request = REQUEST.get()
        return super().formatMessage(record) + (f" [request {request}]" if request else "")


class JsonLines(logging.Formatter):
    """A line for machines: what is always there, the party, and whatever the line says beside its message."""

    def __init__(self, **party: str) -> None:
        super().__init__()
        self._party = party

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._party,
            "message": record.getMessage(),
        }
        if request := REQUEST.get():
            line["request"] = request
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(style: Style, **party: str) -> None:
    """Log to standard error from now on, whoever in this process logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(**party) if style == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
