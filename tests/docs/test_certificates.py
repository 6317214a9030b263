"""The commands of docs/operating.md that make an authority and a certificate for a node of the broker."""

from __future__ import annotations

import shlex
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks, shell_lines

(BLOCK,) = (block for block in blocks(DOCS / "operating.md") if "test_certificates.py" in block.mark)
NODE = "n1.example.org"


def made_here() -> bool:
    program = shutil.which("openssl")
    if program is None:
        return False
    return subprocess.run([program, "version"], capture_output=True, text=True).stdout.startswith("OpenSSL 3")


def shake_hands(server: ssl.SSLObject, client: ssl.SSLObject) -> None:
    """Let the two ends of a connection in memory agree; an SSLError says why they do not."""
    waiting = [client, server]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


@pytest.mark.skipif(not made_here(), reason="OpenSSL 3 is not installed")
def test_the_certificates_serve_nodes_as_servers_and_as_clients(tmp_path: Path) -> None:
    for line in shell_lines(BLOCK):
        subprocess.run(shlex.split(line), cwd=tmp_path, check=True, capture_output=True)
    server, client = (ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    for context in (server, client):
        context.load_cert_chain(tmp_path / "broker.crt", tmp_path / "broker.pem")
        context.load_verify_locations(tmp_path / "broker-ca.crt")
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        context.verify_mode = ssl.CERT_REQUIRED
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    shake_hands(server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there, server_hostname=NODE))
    stranger = ssl.create_default_context(cafile=tmp_path / "broker-ca.crt")
    with pytest.raises(ssl.SSLError):
        shake_hands(
            server.wrap_bio(there := ssl.MemoryBIO(), back := ssl.MemoryBIO(), server_side=True),
            stranger.wrap_bio(back, there, server_hostname="other.example.org"),
        )
