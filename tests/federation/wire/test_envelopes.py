"""Envelopes: what opens, and everything that must not."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit.federation.wire.envelopes import (
    OVERHEAD,
    Context,
    EnvelopeError,
    claimed,
    seal,
    seal_anonymously,
    unseal,
    unseal_anonymously,
)
from fedbandit.federation.wire.keys import PartyKeys

SILO, MIXER, OTHER = PartyKeys.generate(), PartyKeys.generate(), PartyKeys.generate()
CONTEXT = Context("trial", "ab" * 32, "release", "silo-1", "mixer", 7)
PLAIN = b"noisy sums" * 100
TO_MIXER = MIXER.public("mixer", "mixer").sealing
FROM_SILO = SILO.public("silo-1", "silo").verifier


VECTORS = json.loads((Path(__file__).parent / "envelopes.json").read_text())


def known_keys(name):
    return PartyKeys({seed: bytes.fromhex(value) for seed, value in VECTORS[name].items()})


def open_known(text):
    """Open an envelope of the vectors as the one for the mixer in sync 7."""
    sender = known_keys("silo").public("silo-1", "silo").verifier
    return unseal(bytes.fromhex(text), Context(**VECTORS["context"]), sender, known_keys("mixer").opener)


def test_a_known_envelope_opens():
    assert open_known(VECTORS["envelope"]) == bytes.fromhex(VECTORS["plain"])


@pytest.mark.parametrize("bad", VECTORS["bad"], ids=lambda bad: bad["what"])
def test_known_bad_envelopes_do_not(bad):
    with pytest.raises(EnvelopeError, match=bad["error"]):
        open_known(bad["envelope"])


def envelope():
    return seal(PLAIN, CONTEXT, TO_MIXER, SILO.signer)


def test_the_receiver_opens_what_the_sender_sealed():
    assert unseal(envelope(), CONTEXT, FROM_SILO, MIXER.opener) == PLAIN
    assert claimed(envelope()) == CONTEXT


def test_the_message_cannot_be_seen_and_two_seals_differ():
    first, second = envelope(), envelope()
    assert PLAIN[:20] not in first
    assert first != second
    assert len(first) == len(second)


@pytest.mark.parametrize("field, value", [
    ("federation", "other"), ("plan", "cd" * 32), ("kind", "mixed"), ("sender", "silo-2"),
    ("receiver", "analyzer"), ("sync", 8),
])  # fmt: skip
def test_an_envelope_opens_in_its_own_context_only(field, value):
    with pytest.raises(EnvelopeError, match=field):
        unseal(envelope(), CONTEXT._replace(**{field: value}), FROM_SILO, MIXER.opener)


def test_a_header_that_was_rewritten_breaks_the_signature():
    whole = envelope()
    forged = whole[:5] + b"\x08" + whole[6:]
    with pytest.raises(EnvelopeError, match="signature"):
        unseal(forged, CONTEXT._replace(sync=8), FROM_SILO, MIXER.opener)


def test_another_signer_is_refused():
    forged = seal(PLAIN, CONTEXT, TO_MIXER, OTHER.signer)
    with pytest.raises(EnvelopeError, match="signature is not silo-1's"):
        unseal(forged, CONTEXT, FROM_SILO, MIXER.opener)


def test_another_receiver_cannot_open_it():
    with pytest.raises(EnvelopeError, match="does not open"):
        unseal(envelope(), CONTEXT, FROM_SILO, OTHER.opener)


def test_every_altered_byte_is_noticed():
    whole = envelope()
    for at in range(0, len(whole), 37):
        altered = bytearray(whole)
        altered[at] ^= 1
        with pytest.raises(EnvelopeError):
            unseal(bytes(altered), CONTEXT, FROM_SILO, MIXER.opener)


@pytest.mark.parametrize("length", [0, 3, 5, 6, 60, 200, 500, 1300])
def test_a_truncated_envelope_is_refused(length):
    with pytest.raises(EnvelopeError):
        unseal(envelope()[:length], CONTEXT, FROM_SILO, MIXER.opener)


@pytest.mark.parametrize("name", ["", "two words", "*", "a" * 41, "\0ab", "a\0b", "\u00e9"])
def test_a_header_with_a_name_that_is_none_is_refused_even_if_it_is_signed(name):
    odd = seal(PLAIN, CONTEXT._replace(federation=name), TO_MIXER, SILO.signer)
    if len(name) > 40:  # the field has no room for more: it is another name, and no name is that of a federation
        assert claimed(odd).federation == name[:40]
        return
    with pytest.raises(EnvelopeError, match="not a name"):
        claimed(odd)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=3000), st.booleans())
def test_whatever_the_bytes_they_are_refused(data, marked):
    with pytest.raises(EnvelopeError):
        unseal(b"FBE3" + data if marked else data, CONTEXT, FROM_SILO, MIXER.opener)


def test_the_overhead_is_what_it_is_said_to_be():
    assert len(envelope()) == len(PLAIN) + OVERHEAD


def test_another_version_is_refused():
    with pytest.raises(EnvelopeError, match="format"):
        unseal(b"FBE2" + envelope()[4:], CONTEXT, FROM_SILO, MIXER.opener)


def test_anonymous_messages_say_nothing_of_the_sender():
    nobody = CONTEXT._replace(sender="*", receiver="analyzer")
    sealed = seal_anonymously(PLAIN, nobody, TO_MIXER)
    assert b"silo" not in sealed
    assert unseal_anonymously(sealed, nobody, MIXER.opener) == PLAIN
    with pytest.raises(EnvelopeError):
        unseal_anonymously(sealed, nobody._replace(sync=8), MIXER.opener)
    with pytest.raises(ValueError, match="sender must be"):
        seal_anonymously(PLAIN, CONTEXT, TO_MIXER)
