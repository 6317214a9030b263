"""What a silo puts on the wire for a release: the message of its trust model, sealed for those who may read it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbandit.federation import messages
from fedbandit.federation.party import Party
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.silo import StoredRelease
from fedbandit.federation.subjects import release_roles
from fedbandit.plan import Plan
from fedbandit.protocol.base import Message
from fedbandit.protocol.silo import catch_up


def waits_for_outcomes(plan: Plan) -> bool:
    """Trust `silo` makes up for missed rounds, so it must know first which of the earlier releases arrived."""
    return plan.trust == "silo" and plan.decode_at != "silo"


def can_be_sealed(plan: Plan, step: int, earlier: Sequence[StoredRelease]) -> bool:
    """Whether all is known that the message of `step` depends on."""
    settled = (ReleaseState.INCLUDED, ReleaseState.MISSED)
    return not waits_for_outcomes(plan) or all(r.state in settled for r in earlier if r.step < step)


def message(plan: Plan, release: StoredRelease, earlier: Sequence[StoredRelease]) -> Message:
    """The release as it is sent. Only trust `silo` folds missed releases in: that is post-processing of what was
    accounted for there, but elsewhere the noise of a round comes from the other silos in it."""
    drawn = _arrays(release.drawn)
    if not waits_for_outcomes(plan):
        return drawn
    past = [r for r in earlier if r.step < release.step]
    if all(r.state is ReleaseState.INCLUDED and r.sent == r.drawn for r in past):
        return drawn
    releases = [_arrays(r.drawn)[0] for r in past] + [drawn[0]]
    delivered = {r.step: _arrays(r.sent)[0].astype(float) for r in past if r.state is ReleaseState.INCLUDED}
    return (np.rint(catch_up(plan.encoder, releases, delivered)).astype(np.int64),)


def sealed(party: Party, step: int, sent: Message) -> bytes:
    """The envelopes of a release, one for each role that gets one, in the order in which they are published."""
    federation = party.federation
    trust = federation.plan.trust
    if trust == "secure-sum":
        for_mixer, for_analyzer = sent
        plain = {"mixer": messages.encode([for_mixer]), "analyzer": messages.encode([for_analyzer])}
    elif trust == "shuffle":
        inner = party.seal_anonymously("release", federation.holder("analyzer"), step, messages.encode(sent))
        plain = {"mixer": inner}
    else:
        plain = {role: messages.encode(sent) for role in release_roles(trust)}
    return messages.pack(
        [party.seal("release", federation.holder(role), step, plain[role]) for role in release_roles(trust)]
    )


def _arrays(data: bytes | None) -> Message:
    if data is None:
        raise ValueError("release was not drawn yet")
    return messages.decode(data)
