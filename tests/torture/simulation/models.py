"""Models of what costs most and decides nothing in a history: seals, signatures, noise, and models fitted twice.

A signature is a keyed hash, a seal a keyed hash around the message; both have the real ones' lengths, and whoever does
not have the key, or changes a byte, fares as with the real ones. Noise is real and dealt from a stock. One history in
`THOROUGH` is played with the real things, and its course is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, cast
from unittest.mock import patch

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit.linucb import Fit
from fedbandit.federation.exact import exact_noise
from fedbandit.federation.exact.binomial import binomial
from fedbandit.federation.setup import editions
from fedbandit.federation.setup.party import Party
from fedbandit.federation.wire import envelopes
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys, Role
from fedbandit.plan import Plan

__all__ = ["THOROUGH", "modelled", "modelled_keys", "simulated"]

THOROUGH = 16  # one history in so many has real keys and draws its own noise
ENCAPSULATED, TAG = 1120, 16  # bytes that sealing adds, before and after the message
STOCK = 32  # draws of each kind that are dealt again and again

_numbers = itertools.count()  # two seals of the same message differ


class _Key:
    """Signs, checks, seals and opens: whoever has the object has the key, so that there is one for both sides."""

    def __init__(self, identity: bytes) -> None:
        self._identity = identity

    def sign(self, data: bytes) -> bytes:
        return blake2b(data, key=self._identity, digest_size=envelopes.SIGNATURE_BYTES).digest()

    def verify(self, signature: bytes, data: bytes) -> None:
        if not compare_digest(signature, self.sign(data)):
            raise InvalidSignature

    def public_key(self) -> _Key:
        return self

    def tag(self, *parts: bytes) -> bytes:
        return blake2b(b"".join(parts), key=self._identity, digest_size=TAG).digest()


class _Seals:
    """In the place of the HPKE suite."""

    def encrypt(self, plain: bytes, receiver: _Key, *, info: bytes) -> bytes:
        encapsulated = next(_numbers).to_bytes(ENCAPSULATED, "little")
        return encapsulated + plain + receiver.tag(encapsulated, info, plain)

    def decrypt(self, ciphertext: bytes, receiver: _Key, *, info: bytes) -> bytes:
        encapsulated, plain, tag = ciphertext[:ENCAPSULATED], ciphertext[ENCAPSULATED:-TAG], ciphertext[-TAG:]
        if not compare_digest(tag, receiver.tag(encapsulated, info, plain)):
            raise InvalidTag
        return plain


class _Keys(PartyKeys):
    @cached_property
    def signer(self) -> Ed25519PrivateKey:
        return cast(Ed25519PrivateKey, _key(self._identity))

    @cached_property
    def opener(self) -> MLKEM768X25519PrivateKey:
        return cast(MLKEM768X25519PrivateKey, _key(self._identity))

    @property
    def _identity(self) -> bytes:
        return PartyKeys(self.seeds).signer.public_key().public_bytes_raw()

    def public(self, name: str, role: Role) -> PublicKeys:
        return _PublicKeys(**_fields(super().public(name, role)))


class _PublicKeys(PublicKeys):
    @cached_property
    def verifier(self) -> Ed25519PublicKey:
        return cast(Ed25519PublicKey, _key(self.identity))

    @cached_property
    def sealing(self) -> MLKEM768X25519PublicKey:
        return cast(MLKEM768X25519PublicKey, _key(self.identity))


@cache
def _key(identity: bytes) -> _Key:
    return _Key(identity)


def simulated(parties: dict[str, Party]) -> dict[str, Party]:
    """The same parties with keys of this model."""
    known = {name: _PublicKeys(**_fields(party.public)) for name, party in parties.items()}
    agreement = next(iter(parties.values())).agreement
    agreement = replace(agreement, parties=tuple(known[party.name] for party in agreement.parties))
    return {name: Party(agreement, _Keys(party.keys.seeds), known[name]) for name, party in parties.items()}


def modelled_keys(keys: PartyKeys) -> PartyKeys:
    """The same keys, of this model."""
    return _Keys(keys.seeds)


def _fields(public: PublicKeys) -> dict[str, Any]:
    return {name: getattr(public, name) for name in PublicKeys.__dataclass_fields__}


class _Stock:
    """Draws that were made once, dealt in turn."""

    def __init__(self) -> None:
        self._gaussians: dict[tuple[bytes, tuple[int, ...]], Iterator[Integers]] = {}
        self._binomials: dict[tuple[int, float], Iterator[int]] = {}
        self._gaussian, self._binomial = exact_noise._gaussian, binomial

    def gaussian(self, scales: Floats, lead: tuple[int, ...]) -> Integers:
        key = (scales.tobytes(), lead)
        if key not in self._gaussians:
            self._gaussians[key] = itertools.cycle([self._gaussian(scales, lead) for _ in range(STOCK)])
        return next(self._gaussians[key]).copy()

    def binomial(self, trials: int, probability: float) -> int:
        key = (trials, probability)
        if key not in self._binomials:
            self._binomials[key] = itertools.cycle([self._binomial(*key) for _ in range(STOCK)])
        return next(self._binomials[key])


_stock = _Stock()
_fit = Plan.fit
_fits: dict[tuple[str, bytes, int], Fit] = {}


def _known_fit(plan: Plan, prefix: Floats, round_: int, prior: Floats | None = None) -> Fit:
    """The model of these sums: everybody in a history fits the same ones."""
    assert prior is None, "only simulated runs have priors of their own"
    key = (plan.hash, prefix.tobytes(), round_)
    if key not in _fits:
        if len(_fits) > 100:
            _fits.clear()
        _fits[key] = _fit(plan, prefix, round_)
    return _fits[key]


@contextmanager
def modelled() -> Iterator[None]:
    """Seals and noise are those of this model."""
    with (
        patch.object(envelopes, "_SUITE", _Seals()),
        patch.object(editions, "PublicKeys", _PublicKeys),
        patch.object(exact_noise, "_gaussian", _stock.gaussian),
        patch.object(exact_noise, "binomial", _stock.binomial),
        patch.object(Plan, "fit", _known_fit),
    ):
        yield
