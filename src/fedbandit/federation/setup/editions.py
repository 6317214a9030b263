"""An edition: one numbered change of the members, signed by the operator and valid from a sync on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedbandit import _validate
from fedbandit.federation.wire.keys import PublicKeys, party_name

__all__ = ["Change", "Edition"]

Change = Literal["admit", "dismiss", "rotate", "operator"]
FIELDS = ("number", "previous", "from_sync", "change", "name", "party", "operator", "signer", "signature")
_DOMAIN = b"fedbandit edition of the members\0"


@dataclass(frozen=True)
class Edition:
    """Edition `number` applies this change to the edition before it, for all syncs from `from_sync` on.

    `previous` is the hash of the edition before it; for the first edition, that of the federation's file. So a number
    stands for one list, and two different editions with one number both carry the operator's signature as a proof.
    """

    number: int  # from 1
    previous: str  # hash, in hex
    from_sync: int
    change: Change
    name: str = ""  # of the party that is admitted, dismissed, or has new keys
    party: PublicKeys | None = None  # the keys of a party that is admitted or has new keys
    operator: bytes = b""  # the operator's new key at the broker
    signer: bytes = b""  # the operator's new key for signing later editions
    signature: bytes = b""

    def __post_init__(self) -> None:
        _validate.count("number", self.number)
        _validate.count("from_sync", self.from_sync, least=0)
        _validate.one_of("change", self.change, get_args(Change))

    @property
    def hash(self) -> str:
        """The hash that the next edition names as `previous`."""
        return hashlib.sha256(self._statement).hexdigest()

    def signed(self, key: Ed25519PrivateKey) -> Edition:
        return replace(self, signature=key.sign(self._statement))

    def is_by(self, signer: bytes) -> bool:
        """Whether it was signed with this key."""
        try:
            Ed25519PublicKey.from_public_bytes(signer).verify(self.signature, self._statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    @property
    def _statement(self) -> bytes:
        data = {name: value for name, value in self.as_dict().items() if name != "signature"}
        return _DOMAIN + json.dumps(data, sort_keys=True).encode()

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "previous": self.previous,
            "from_sync": self.from_sync,
            "change": self.change,
            "name": self.name,
            "party": None if self.party is None else self.party.as_dict(),
            "operator": self.operator.hex(),
            "signer": self.signer.hex(),
            "signature": self.signature.hex(),
        }

    def encode(self) -> bytes:
        return json.dumps(self.as_dict(), sort_keys=True).encode()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Edition:
        with _validate.reading("edition"):
            _validate.known_keys("edition", data, FIELDS, required=FIELDS)
            party = data["party"]
            return cls(
                data["number"],
                str(data["previous"]),
                data["from_sync"],
                data["change"],
                party_name(data["name"]) if data["name"] else "",
                None if party is None else PublicKeys.from_dict(party),
                bytes.fromhex(data["operator"]),
                bytes.fromhex(data["signer"]),
                bytes.fromhex(data["signature"]),
            )

    @classmethod
    def decode(cls, data: bytes) -> Edition:
        return cls.from_dict(_validate.table("edition", data))
