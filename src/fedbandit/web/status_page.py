"""`fedbandit status --web`: the page of the party in a directory, on this machine, for those who have its token."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from fedbandit.federation.status import HomeBoard
from fedbandit.web.server import PageServer, Reply, Visit, as_json

__all__ = ["status_server"]

BOARD = "/v1/board"  # the path that a running party serves: the page is the same


def status_server(home: Path, port: int, token: str) -> PageServer:
    """A server on the loopback address. The store is opened read-only."""
    board, expected = HomeBoard(home), f"Bearer {token}".encode()

    def read(visit: Visit) -> Reply:
        if not hmac.compare_digest(visit.headers.get("authorization", "").encode(), expected):
            problem = {"field": "authorization", "message": "must be 'Bearer' and the token that was printed"}
            return as_json({"errors": [problem]}, 401)
        reply = as_json(board.read())
        tag = f'"{hashlib.blake2b(reply.body, digest_size=12).hexdigest()}"'
        if visit.headers.get("if-none-match") == tag:
            return reply._replace(status=304, body=b"")
        return reply._replace(headers={"etag": tag})

    return PageServer("127.0.0.1", port, "operations.html", {BOARD: read})
