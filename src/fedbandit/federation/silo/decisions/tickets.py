"""Decision ids that carry what the silo will need when the reward comes, sealed under the silo's own key.

So deciding writes nothing: no row can be lost in a crash, no row stays behind if the reward never comes, and any worker
of the silo can take the reward. The holder of an id can neither read nor alter what it carries (the chosen features,
the hash of the user). The id is bound to plan and term: in another term it is unknown.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import itertools
import os
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, repeat
from operator import add
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError

__all__ = ["DIGEST_BYTES", "DecisionExpired", "DecisionIds", "Issued", "Ticket", "UnknownDecision", "issuer_of"]

PREFIX_BYTES, COUNT_BYTES = 6, 6
NONCE_BYTES = PREFIX_BYTES + COUNT_BYTES
PERSON_BYTES = 16
DIGEST_BYTES = 16
TAG_BYTES = 16  # of AES-GCM
GROUP_BYTES, GROUP_CHARACTERS = 3, 4  # of base64
_FROM_URL = bytes.maketrans(b"-_+/", b"+/??")  # an id uses the URL alphabet only
_REWARD = struct.Struct("<d")
_HEAD = struct.Struct(f"<Bii{PERSON_BYTES}s")  # whether there is a user key, place, minutes, hash of the user
MINUTE = 60.0
RECENT = 8192  # decisions, at least, that are remembered, so that their ids need not be opened: most rewards come soon


class UnknownDecision(LookupError):
    """This silo has not issued such an id in this term."""


class DecisionExpired(ValueError):
    """The time for the reward of this decision is over."""


class Ticket(NamedTuple):
    """The contents of a decision id."""

    nonce: bytes
    person: bytes | None
    features: bytes  # float64, (dim,)
    place: int  # the batch that the decision belongs to
    issued: float  # unix time, to the minute


_Plain = tuple[bytes, bytes | None, bytes, int, float]  # a Ticket as a tuple that needs no garbage collection


class Issued(NamedTuple):
    """Ids that were issued together, and what each of them holds."""

    ids: list[str]
    nonces: list[bytes]
    people: Sequence[bytes | None]
    features: list[bytes]
    places: Sequence[int]
    issued: float


class DecisionIds:
    """Issues and reads decision ids; `secret` never leaves the silo.

    A nonce is a random prefix, drawn once per process, and a count. No two are alike, and the nonces of one process are
    neighbours in the store's index, so that rewards share its pages. Somebody who holds two ids can tell how many
    decisions were made between them, and nothing else.
    """

    def __init__(self, secret: bytes, plan_hash: str, dim: int) -> None:
        self._cipher = AESGCM(_derive(secret, b"decision id"))
        self._person_key = _derive(secret, b"user key")
        self._digest = blake2b(key=_derive(secret, b"reward digest"), digest_size=DIGEST_BYTES)
        self._prefix, self._count = os.urandom(PREFIX_BYTES), itertools.count()
        self._context = plan_hash.encode()
        self._features_bytes = 8 * dim
        bare = NONCE_BYTES + _HEAD.size + self._features_bytes + TAG_BYTES
        self._filling = bytes(-bare % GROUP_BYTES)
        self._bytes = bare + len(self._filling)
        self._characters = self._bytes // GROUP_BYTES * GROUP_CHARACTERS
        self._recent: dict[str, _Plain] = {}
        self._less_recent: dict[str, _Plain] = {}
        self._together: Issued | None = None

    def issue(
        self, features: Floats, people: Sequence[bytes | None], places: Sequence[int], now: float = 0.0
    ) -> list[str]:
        """New ids for decisions that chose these rows, (people, dim); `people` are the hashes of the users."""
        chosen, size, minutes = features.tobytes(), self._features_bytes, int(now // MINUTE)
        rows = [chosen[at : at + size] for at in range(0, size * len(people), size)]
        nonces = [self._prefix + one.to_bytes(COUNT_BYTES, "big") for one in islice(self._count, len(rows))]
        heads = _heads(people, places, minutes)
        plain = [head + row + self._filling for head, row in zip(heads, rows, strict=True)]
        sealed = map(self._cipher.encrypt, nonces, plain, repeat(self._context))
        raw = b"".join(map(add, nonces, sealed))
        # Every id is a whole number of base64 groups, so one call encodes all of them.
        written, length = _text(raw), self._characters
        ids = [written[at : at + length] for at in range(0, len(written), length)]
        self._together = Issued(ids, nonces, people, rows, places, minutes * MINUTE)
        return list(ids)

    def issue_one(self, features: Floats, person: bytes | None, place: int, now: float) -> str:
        """A new id for one decision that chose this row, (dim,)."""
        chosen, minutes = features.tobytes(), int(now // MINUTE)
        nonce = self._prefix + next(self._count).to_bytes(COUNT_BYTES, "big")
        decision = _text(self._sealed(nonce, _head(person, place, minutes), chosen))
        recent = self._recent
        recent[decision] = (nonce, person, chosen, place, minutes * MINUTE)
        if len(recent) >= RECENT:
            self._recent, self._less_recent = {}, recent
        return decision

    def _sealed(self, nonce: bytes, head: bytes, features: bytes) -> bytes:
        return nonce + self._cipher.encrypt(nonce, head + features + self._filling, self._context)

    def read(self, decision: str) -> Ticket:
        """The contents of an id; UnknownDecision for anything that this silo did not issue under this plan."""
        if not isinstance(decision, str):
            raise ArgumentError("decision", f"must be the id of a decision, got {decision!r}")
        known = self._recent.get(decision) or self._less_recent.get(decision)
        return self._opened(decision) if known is None else Ticket(*known)

    def read_together(self, decisions: list[str]) -> Issued | None:
        """The contents of many ids if they are exactly the ones last issued together, in the same order; else None."""
        known = self._together
        return known if known is not None and known.ids == decisions else None

    def _opened(self, decision: str) -> Ticket:
        try:
            raw = binascii.a2b_base64(decision.encode().translate(_FROM_URL), strict_mode=True)
            plain = self._cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], self._context)
        except (binascii.Error, InvalidTag, ValueError):
            raise UnknownDecision("decision is unknown to this silo, or from an earlier term") from None
        keyed, place, minutes, person = _HEAD.unpack_from(plain)
        features = plain[_HEAD.size : _HEAD.size + self._features_bytes]
        if len(raw) != self._bytes:
            raise UnknownDecision("decision has another dimension than this plan")
        return Ticket(raw[:NONCE_BYTES], person if keyed else None, features, place, minutes * MINUTE)

    @property
    def issuer(self) -> bytes:
        """What the nonces of this process begin with."""
        return self._prefix

    def person(self, user: str) -> bytes:
        """The salted hash under which a user is counted."""
        if not isinstance(user, str) or not user:
            raise ArgumentError("user", f"must be a text, the application's key of the person, got {user!r}")
        return hmac.digest(self._person_key, user.encode(errors="surrogatepass"), "sha256")[:PERSON_BYTES]

    def digests(self, nonces: Sequence[bytes], rewards: Sequence[float]) -> list[bytes]:
        """The `digest` of each of many rewards."""
        found, copy = list[bytes](), self._digest.copy
        for nonce, packed in zip(nonces, map(_REWARD.pack, rewards), strict=True):
            hashed = copy()
            hashed.update(nonce + packed)
            found.append(hashed.digest())
        return found

    def digest(self, nonce: bytes, reward: float) -> bytes:
        """A keyed hash that recognises the same reward of the same decision after the raw row is deleted. Without the
        secret, nobody can tell the reward from it."""
        hashed = self._digest.copy()
        hashed.update(nonce + _REWARD.pack(reward))
        return hashed.digest()


@lru_cache(maxsize=64)  # people without a key who come in the same minute share one
def _head(person: bytes | None, place: int, minutes: int) -> bytes:
    """The part of an id's contents before the features."""
    return _HEAD.pack(person is not None, place, minutes, person or b"")


def _heads(people: Sequence[bytes | None], places: Sequence[int], minutes: int) -> Iterable[bytes]:
    """The head of each decision; usually they are all alike, and one is made."""
    if people and people.count(None) == len(people) and places.count(places[0]) == len(people):
        return repeat(_head(None, places[0], minutes), len(people))
    return map(_head, people, places, repeat(minutes))


def issuer_of(nonce: bytes) -> bytes:
    """What tells the processes apart that issue ids."""
    return nonce[:PREFIX_BYTES]


def _text(raw: bytes) -> str:
    """Bytes in URL-safe base64."""
    return binascii.b2a_base64(raw, newline=False).replace(b"+", b"-").replace(b"/", b"_").decode()


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, b"fedbandit " + purpose, hashlib.sha256)
