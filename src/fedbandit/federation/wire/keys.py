"""A party's three key pairs: to sign its messages, to open messages sealed for it, and to log in at the broker.

The broker key is separate because an untrusted broker chooses what is signed with it. Private keys are in one file that
only its owner can read; they never leave the machine on which they were made.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
import stat
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey

from fedbandit import _validate
from fedbandit._validate import ArgumentError

__all__ = [
    "NAME_BYTES",
    "PUBLIC_BYTES",
    "ROLES",
    "PartyKeys",
    "PublicKeys",
    "Role",
    "as_role",
    "party_name",
    "public_nkey",
    "read_secret",
    "write_secret",
]

SEED_BYTES = {"identity": 32, "mlkem": 64, "x25519": 32, "broker": 32, "salt": 32}
PUBLIC_BYTES = {"identity": 32, "mlkem": 1184, "x25519": 32, "broker": 32}
NAME_BYTES = 40  # the longest name of a party or a federation
Role = Literal["silo", "mixer", "analyzer"]
ROLES: tuple[Role, ...] = get_args(Role)
LOST_SECRET = "put it back from a backup; if there is none, docs/bad-day.md says what to do"
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_BYTES}}}")
_NKEY_USER = 20 << 3  # the kind byte of a user key: it makes the text begin with U


@dataclass(frozen=True)
class PublicKeys:
    """The public keys of a party, with its name and role: what the others know of it."""

    name: str
    role: Role
    identity: bytes
    mlkem: bytes
    x25519: bytes
    broker: bytes

    @cached_property
    def verifier(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.identity)

    @cached_property
    def sealing(self) -> MLKEM768X25519PublicKey:
        return MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(self.mlkem), X25519PublicKey.from_public_bytes(self.x25519)
        )

    def as_dict(self) -> dict[str, str]:
        keys = {name: getattr(self, name).hex() for name in ("identity", "mlkem", "x25519", "broker")}
        return {"name": self.name, "role": self.role, **keys}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PublicKeys:
        """Read the keys from a table. Keys of a wrong size are refused here; everything else is checked when a key is
        used, because a silo sends to only two of perhaps a thousand parties."""
        _validate.known_keys("public keys", data, cls.__dataclass_fields__, required=("name", "role"))
        try:
            keys = {name: bytes.fromhex(data[name]) for name in ("identity", "mlkem", "x25519", "broker")}
        except (KeyError, TypeError) as error:
            raise ArgumentError("public keys", f"are incomplete: {error}") from None
        for name, size in PUBLIC_BYTES.items():
            if len(keys[name]) != size:
                raise ArgumentError("public keys", f"must have {size} bytes for {name}, got {len(keys[name])}")
        return cls(party_name(data["name"]), as_role(data["role"]), **keys)

    @classmethod
    def load(cls, path: Path) -> PublicKeys:
        """Read the keys on a card that a party has sent, and check them."""
        with _validate.reading(str(path)):
            data = _validate.table(str(path), path.read_bytes())
            if not data.keys() & {"name", "role"}:
                raise ArgumentError(str(path), "must be a card, as `federation join` writes it")
            public = cls.from_dict(data)
            _ = public.verifier, public.sealing  # fails if the keys cannot be used
            return public


@dataclass(frozen=True)
class PartyKeys:
    """A party's private keys, kept as seeds, and the salt under which a silo hashes its users' keys."""

    seeds: dict[str, bytes]

    @classmethod
    def generate(cls) -> PartyKeys:
        return cls({name: secrets.token_bytes(size) for name, size in SEED_BYTES.items()})

    def rotated(self) -> PartyKeys:
        """New keys for the same party. The salt under which a silo hashes its users' keys stays the same, because
        otherwise everybody would be counted anew."""
        return PartyKeys({**PartyKeys.generate().seeds, "salt": self.seeds["salt"]})

    def save(self, path: Path) -> None:
        """Write a new file with mode 0600; an existing file is never overwritten."""
        text = json.dumps({name: seed.hex() for name, seed in self.seeds.items()}, indent=1)
        write_secret(path, text.encode())

    @classmethod
    def load(cls, path: Path) -> PartyKeys:
        content = read_secret(path)
        try:
            with _validate.reading(str(path)):
                data = _validate.table(str(path), content)
                _validate.known_keys(str(path), data, SEED_BYTES)
                seeds = {name: bytes.fromhex(data.get(name, "")) for name in SEED_BYTES}
                for name, size in SEED_BYTES.items():
                    if len(seeds[name]) != size:
                        raise ArgumentError(
                            str(path), f"cannot be used: {name} must be {size} bytes in hex, got {len(seeds[name])}"
                        )
        except ArgumentError as error:
            raise ArgumentError(error.field, f"{error.message}; it is damaged: {LOST_SECRET}") from None
        return cls(seeds)

    @cached_property
    def identity(self) -> bytes:
        """The public key by which others verify the signatures of these keys."""
        return Ed25519PrivateKey.from_private_bytes(self.seeds["identity"]).public_key().public_bytes_raw()

    @cached_property
    def signer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seeds["identity"])

    @cached_property
    def broker(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seeds["broker"])

    @cached_property
    def opener(self) -> MLKEM768X25519PrivateKey:
        return MLKEM768X25519PrivateKey(self._mlkem(), self._x25519())

    def public(self, name: str, role: Role) -> PublicKeys:
        return PublicKeys(
            party_name(name),
            as_role(role),
            self.identity,
            self._mlkem().public_key().public_bytes_raw(),
            self._x25519().public_key().public_bytes_raw(),
            self.broker.public_key().public_bytes_raw(),
        )

    def _mlkem(self) -> MLKEM768PrivateKey:
        return MLKEM768PrivateKey.from_seed_bytes(self.seeds["mlkem"])

    def _x25519(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.seeds["x25519"])


def as_role(text: str) -> Role:
    """The role with this name; ArgumentError if there is none."""
    return _validate.one_of("role", text, ROLES)


def public_nkey(key: bytes) -> str:
    """NATS's spelling of a raw Ed25519 public key: base32 of a kind byte, the key and a CRC-16."""
    if len(key) != 32:
        raise ArgumentError("key", f"must be 32 bytes, got {len(key)}")
    body = bytes([_NKEY_USER]) + key
    checked = body + struct.pack("<H", binascii.crc_hqx(body, 0))
    return base64.b32encode(checked).decode().rstrip("=")


def party_name(name: str) -> str:
    """A name that is safe in a broker subject, a file name and a table: letters, digits, - and _, at most 40."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ArgumentError("name", f"must be 1 to {NAME_BYTES} letters, digits, '-' or '_', got {name!r}")
    return name


def write_secret(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read; refuse to replace one. If it cannot be written in full, e.g. because
    the disk is full, nothing is left."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(
            f"{path} already exists, and a key is never overwritten: has this party joined before?"
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


def read_secret(path: Path) -> bytes:
    """Read a secret; refuse one that other users of the machine can read."""
    if not path.exists():
        raise ArgumentError(str(path), f"is not there: {LOST_SECRET}")
    if not path.is_file():
        raise ArgumentError(str(path), f"must be a file: {LOST_SECRET}")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ArgumentError(str(path), f"must be readable by its owner only (chmod 600); its mode is {mode:o}")
    return path.read_bytes()
