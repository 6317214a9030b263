"""NATS's spelling of Ed25519 public keys: base32 of a kind byte, the key, and a CRC-16, so typing errors show."""

from __future__ import annotations

import base64
import binascii
import struct

USER = 20 << 3  # makes the text begin with U


def public_nkey(key: bytes) -> str:
    """The user nkey of a raw Ed25519 public key."""
    if len(key) != 32:
        raise ValueError(f"key must be 32 bytes, got {len(key)}")
    body = bytes([USER]) + key
    checked = body + struct.pack("<H", binascii.crc_hqx(body, 0))
    return base64.b32encode(checked).decode().rstrip("=")
