"""Asking a party that runs on this machine how it is: by its own settings, over TLS if it serves over TLS."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit._validate import ArgumentError
from fedbandit.federation.setup.certificates import check_pair, trusting
from fedbandit.federation.setup.home import Home

__all__ = ["Answered", "ask"]

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # addresses to listen on that nobody can call
PATIENCE = 10.0  # seconds


class Answered(NamedTuple):
    """What a party has answered: a status, and a table if the answer is one."""

    status: int
    body: dict[str, Any]


def ask(home: Home, call: str, *, patience: float = PATIENCE, token: bool = False) -> Answered:
    """Call the party of this directory; OSError if it does not answer. Only who has its own certificate is asked."""
    settings, port = home.settings, home.served_on
    if not port:
        raise ArgumentError("health_port", "must be set in party.json: this party says nowhere how it is")
    host = ANYWHERE.get(settings.host, settings.host)
    if settings.tls_certificate:
        check_pair(settings.tls_certificate, settings.tls_key)
        context = trusting(Path(settings.tls_certificate))
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=patience, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=patience)
    shown = {"Authorization": f"Bearer {home.token()}"} if token else {}
    try:
        connection.request("GET", call, headers=shown)
        answer = connection.getresponse()
        return Answered(answer.status, _table(answer.read()))
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP is spoken on {host} port {port} ({type(error).__name__})") from None
    finally:
        connection.close()


def _table(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
