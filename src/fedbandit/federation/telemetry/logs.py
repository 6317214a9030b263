"""Log lines as text or as JSON, and the id of the request that a line belongs to.

A caller may name a request (`X-Request-Id`); otherwise it gets a name here. The answer carries the name, and so does
every line that is logged while the request is handled.
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

_FINE = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")  # a name that is safe in a header and in a log line
_PREFIX, _COUNT = secrets.token_hex(6).encode(), itertools.count(1)
_USUAL = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"))


def named(given: bytes | None) -> bytes:
    """The name of a request: the given one if it is safe to write, otherwise a new one."""
    if given and _FINE.fullmatch(given):
        return given
    return b"%b-%x" % (_PREFIX, next(_COUNT))


class TextLines(logging.Formatter):
    """Formats log lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        request = REQUEST.get()
        return super().formatMessage(record) + (f" [request {request}]" if request else "")


class JsonLines(logging.Formatter):
    """Formats log lines for machines: the usual fields, the party, and any extra fields of the line."""

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
    """Send all log lines of this process to standard error from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(**party) if style == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
