"""Decision ids that carry what the silo will need when the reward comes, sealed under the silo's own key.

Deciding then writes nothing: no row can be lost in a crash, none is left behind by a reward that never comes, and any
worker of a silo can take the reward. What the id says (the chosen features, the hash of the user) cannot be read or
altered by whoever holds it, and it is bound to the plan: in another term it is unknown.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import itertools
import os
import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice, repeat
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError

__all__ = ["DecisionExpired", "DecisionIds", "Issued", "Ticket", "UnknownDecision"]

PREFIX_BYTES, COUNT_BYTES = 6, 6
NONCE_BYTES = PREFIX_BYTES + COUNT_BYTES
PERSON_BYTES = 16
DIGEST_BYTES = 16
TAG_BYTES = 16  # of AES-GCM
GROUP_BYTES, GROUP_CHARACTERS = 3, 4  # of base64
_FROM_URL = bytes.maketrans(b"-_+/", b"+/??")  # only the URL alphabet is an id
_REWARD = struct.Struct("<d")
_HEAD = struct.Struct(f"<Bii{PERSON_BYTES}s")  # whether there is a user key, place, minutes, hash of the user
MINUTE = 60.0
RECENT = 8192  # decisions, at least, whose ids need not be opened again: most rewards come soon


class UnknownDecision(LookupError):
    """An id that this silo has not given out in this term."""


class DecisionExpired(ValueError):
    """An id whose reward was waited for long enough."""


class Ticket(NamedTuple):
    """What a decision id holds."""

    nonce: bytes
    person: bytes | None
    features: bytes  # float64, (dim,)
    place: int  # the batch that the decision belongs to
    issued: float  # unix time, to the minute


_Plain = tuple[bytes, bytes | None, bytes, int, float]  # a Ticket, and none of the garbage collector's business


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

    A nonce is a random prefix, drawn once per process, and a count: no two are alike, and those of one process lie side
    by side in the store's index, so that a reward does not touch a page of its own. Whoever holds two ids can tell how
    many decisions lie between them, and nothing else.
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
        """New ids for decisions that chose these rows of `features`, (people, dim), for these hashes of users."""
        chosen, size, minutes = features.tobytes(), self._features_bytes, int(now // MINUTE)
        rows = [chosen[at : at + size] for at in range(0, size * len(people), size)]
        nonces = [self._prefix + one.to_bytes(COUNT_BYTES, "big") for one in islice(self._count, len(rows))]
        heads = map(_head, people, places, repeat(minutes))
        plain = [head + row + self._filling for head, row in zip(heads, rows, strict=True)]
        sealed = map(self._cipher.encrypt, nonces, plain, repeat(self._context))
        raw = b"".join(chain.from_iterable(zip(nonces, sealed, strict=True)))
        # Every id has a whole number of base64's groups, so that all of them are written at once.
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
        """What the id holds; UnknownDecision for anything this silo did not issue under this plan."""
        if not isinstance(decision, str):
            raise ArgumentError("decision", f"must be the id of a decision, got {decision!r}")
        known = self._recent.get(decision) or self._less_recent.get(decision)
        return self._opened(decision) if known is None else Ticket(*known)

    def read_together(self, decisions: list[str]) -> Issued | None:
        """What many ids hold, if they are those that were issued together last, in the same order."""
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
            raise UnknownDecision("decision is of another dimension")
        return Ticket(raw[:NONCE_BYTES], person if keyed else None, features, place, minutes * MINUTE)

    def mine(self, nonce: bytes) -> bool:
        """Whether this process has issued the id with this nonce, and no earlier one."""
        return nonce.startswith(self._prefix)

    def person(self, user: str) -> bytes:
        """The salted hash under which a user is counted."""
        if not isinstance(user, str) or not user:
            raise ArgumentError("user", f"must be a text, the application's key of the person, got {user!r}")
        return hmac.digest(self._person_key, user.encode(errors="surrogatepass"), "sha256")[:PERSON_BYTES]

    def digests(self, nonces: Sequence[bytes], rewards: Sequence[float]) -> list[bytes]:
        """`digest` of many."""
        found, copy = list[bytes](), self._digest.copy
        for nonce, packed in zip(nonces, map(_REWARD.pack, rewards), strict=True):
            hashed = copy()
            hashed.update(nonce + packed)
            found.append(hashed.digest())
        return found

    def digest(self, nonce: bytes, reward: float) -> bytes:
        """Recognises the same reward for the same decision after the raw row is gone; nobody without the secret can
        tell the reward from it."""
        hashed = self._digest.copy()
        hashed.update(nonce + _REWARD.pack(reward))
        return hashed.digest()


@lru_cache(maxsize=64)  # those of people without a key are alike
def _head(person: bytes | None, place: int, minutes: int) -> bytes:
    """What an id holds beside the features."""
    return _HEAD.pack(person is not None, place, minutes, person or b"")


def _text(raw: bytes) -> str:
    """Bytes in the base64 of URLs."""
    return binascii.b2a_base64(raw, newline=False).replace(b"+", b"-").replace(b"/", b"_").decode()


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, b"fedbandit " + purpose, hashlib.sha256)
