"""Writes envelopes.json: one envelope that opens, and some that must not. Run it when the format changes:

python -m tests.federation.wire.make_envelopes
"""

import json
from pathlib import Path

from fedbandit.federation.wire.envelopes import Context, seal
from fedbandit.federation.wire.keys import PartyKeys

FILE = Path(__file__).parent / "envelopes.json"
HEADER = 161  # bytes


def keys(vectors, name):
    return PartyKeys({seed: bytes.fromhex(value) for seed, value in vectors[name].items()})


def flipped(envelope, at, bit=1):
    return envelope[:at] + bytes([envelope[at] ^ bit]) + envelope[at + 1 :]


def main():
    vectors = json.loads(FILE.read_text())
    silo, mixer = keys(vectors, "silo"), keys(vectors, "mixer")
    context, plain = Context(**vectors["context"]), bytes.fromhex(vectors["plain"])
    to_mixer, to_silo = mixer.public("mixer", "mixer").sealing, silo.public("silo-1", "silo").sealing
    good = seal(plain, context, to_mixer, silo.signer)
    bad = [
        ("another version", "format", b"FBE1" + good[4:]),
        ("truncated in the header", "truncated", good[:50]),
        ("truncated ciphertext", "signature", good[:-1]),
        ("one bit of the sync", "sync differs", flipped(good, 5)),
        ("one bit of the kind", "kind differs", flipped(good, 4)),
        ("an unknown kind", "unknown kind", flipped(good, 4, 128)),
        ("a name that is none", "not a name", flipped(good, HEADER - 1)),
        ("a letter that no name has", "not a name", flipped(good, 41, 128)),
        ("one bit of the signature", "signature", flipped(good, HEADER + 3)),
        ("one bit of the ciphertext", "signature", flipped(good, len(good) - 7)),
        ("signed by the receiver", "signature", seal(plain, context, to_mixer, mixer.signer)),
        ("sealed for the sender", "does not open", seal(plain, context, to_silo, silo.signer)),
        ("another sync", "sync differs", seal(plain, context._replace(sync=8), to_mixer, silo.signer)),
        ("another plan", "plan differs", seal(plain, context._replace(plan="cd" * 32), to_mixer, silo.signer)),
        ("a header of 60,000 brackets", "truncated|no name|kind", b"FBE3" + b"[" * 60_000),
    ]
    vectors["envelope"] = good.hex()
    vectors["bad"] = [{"what": what, "error": error, "envelope": envelope.hex()} for what, error, envelope in bad]
    FILE.write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
