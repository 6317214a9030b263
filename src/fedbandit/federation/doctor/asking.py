"""Asks a party that runs on this machine for its state, by its own settings: over TLS if it serves over TLS."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any, NamedTuple

from fedbandit._validate import ArgumentError
from fedbandit.federation.setup.certificates import check_pair, trusting
from fedbandit.federation.setup.home import Home

__all__ = ["ANYWHERE", "Answered", "ask"]

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # addresses to listen on, and what to call instead
PATIENCE = 10.0  # seconds


class Answered(NamedTuple):
    """The answer of a party: its status, and its body if that is a JSON object."""

    status: int
    body: dict[str, Any]


def ask(home: Home, call: str, *, patience: float = PATIENCE, token: bool = False) -> Answered:
    """Call the party of this directory. Over TLS, only its own certificate is accepted. OSError: no answer."""
    settings, port = home.settings, home.served_on
    if not port:
        raise ArgumentError("health_port", "must be set in party.json: so far this party reports its state nowhere")
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
        raise ConnectionError(f"{host} port {port} does not speak HTTP ({type(error).__name__})") from None
    finally:
        connection.close()


def _table(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
