"""Bugs planted on purpose, and the attack that each of them lets through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedbandit.federation.http.app import App
from fedbandit.federation.http.patience import PatientProtocol
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.store.silo_store import SiloStore
from fedbandit.federation.syncs.deadlines import Deadlines
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.wire import envelopes, parcels
from fedbandit.federation.wire.broker import StreamLimits
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.parcels import SignedOutcome
from fedbandit.federation.wire.refused import Refused
from fedbandit.federation.wire.subjects import Subjects
from tests.torture.attacks.at_the_broker import AT_THE_BROKER
from tests.torture.attacks.cases import Case
from tests.torture.attacks.equivocating import EQUIVOCATING
from tests.torture.attacks.forged import FORGED
from tests.torture.attacks.huge import HUGE
from tests.torture.attacks.malformed import MALFORMED
from tests.torture.attacks.over_http import OVER_HTTP
from tests.torture.attacks.untimely import UNTIMELY

__all__ = ["PLANTED", "Planted"]

Plant = Callable[[pytest.MonkeyPatch], None]


class Planted(NamedTuple):
    """A bug, the attack that catches it, and how the case fails then."""

    name: str
    plant: Plant
    case: Case[Any]
    fails: type[BaseException] = AssertionError


def _signature_not_checked(patch: pytest.MonkeyPatch) -> None:
    def unseal(envelope: bytes, expected: Any, sender: Any, receiver: Any) -> bytes:
        envelopes._compare(envelopes.claimed(envelope), expected)
        header = envelopes._HEADER.size
        ciphertext = envelope[header + envelopes.SIGNATURE_BYTES :]
        return bytes(envelopes._SUITE.decrypt(ciphertext, receiver, info=envelope[:header]))

    patch.setattr(envelopes, "unseal", unseal)


def _opened_as(**believed: str) -> Plant:
    """A party that believes these fields of the header whatever they are."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def opened(self: Party, envelope: bytes) -> tuple[Any, bytes]:
            claim = envelopes.claimed(envelope)
            sender = self.agreement.party(claim.sender)
            ours: dict[str, Any] = {
                "federation": self.agreement.id,
                "plan": self.agreement.plan.hash,
                "receiver": self.name,
            }
            expected = claim._replace(**{name: value for name, value in ours.items() if name not in believed})
            return claim, envelopes.unseal(envelope, expected, sender.verifier, self.keys.opener)

        patch.setattr(Party, "open", opened)

    return plant


def _refusals_raised(patch: pytest.MonkeyPatch) -> None:
    def note(self: Refused, reason: BaseException) -> None:
        raise reason

    patch.setattr(Refused, "note", note)


def _size_not_limited(patch: pytest.MonkeyPatch) -> None:
    limits = founding.limits
    patch.setattr(founding, "limits", lambda agreement, age: StreamLimits(2**16, *limits(agreement, age)[1:]))


def _permission_opened(patch: pytest.MonkeyPatch) -> None:
    services = Subjects.services
    patch.setattr(Subjects, "services", lambda self, party: [*services(self, party), "$JS.API.STREAM.>"])


def _predictable_ids(patch: pytest.MonkeyPatch) -> None:
    async def publish(self: Link, subject: str, data: bytes, message_id: str) -> None:
        await self.js.publish(subject, data, headers={"Nats-Msg-Id": message_id})

    patch.setattr(Link, "publish", publish)


def _only_the_analyzer_is_compared(patch: pytest.MonkeyPatch) -> None:
    note = SeenStore.note
    patch.setattr(SeenStore, "note", lambda self, sightings, every=(): note(self, sightings, every=["analyzer"]))


def _early_models_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Agent, "_model", lambda self, context, payload, known: SignedOutcome.decode(payload, self.plan))


def _no_cap(patch: pytest.MonkeyPatch) -> None:
    count, seat = SiloStore.count, SiloStore.seat
    patch.setattr(SiloStore, "count", lambda self, *given, cap, **more: count(self, *given, cap=10**9, **more))
    patch.setattr(SiloStore, "seat", lambda self, term, people, cap, durable: seat(self, term, people, 10**9, durable))


def _set(owner: object, name: str, value: object) -> Plant:
    return lambda patch: patch.setattr(owner, name, value)


PLANTED = [
    Planted("signature not checked", _signature_not_checked, FORGED["signed_by_another"]),
    Planted("receiver not checked", _opened_as(receiver=""), FORGED["receiver_named_wrong"]),
    Planted("plan not checked", _opened_as(plan=""), FORGED["other_plan"]),
    Planted("federation not checked", _opened_as(federation=""), FORGED["other_federation"]),
    Planted("heads of others believed", _set(Party, "checked", lambda self, name, head: head), FORGED["accusation"]),
    Planted("time of a sync not checked", _set(Deadlines, "check", lambda *_: None), UNTIMELY["early_keepers"]),
    Planted("models taken at any time", _early_models_taken, UNTIMELY["last_model_first"], TimeoutError),
    Planted("heads beyond the plan taken", _set(SyncKeeper, "_checked", lambda self, name, head: self.party.checked(
        name, head)), HUGE["endless_chain_of_totals"], TimeoutError),
    Planted("refused messages not acknowledged", _refusals_raised, HUGE["brackets"], envelopes.EnvelopeError),
    Planted("cohort not checked", _set(parcels, "_cohort", lambda bits, plan: np.ones(plan.silos, np.int64)),
            MALFORMED["unknown_silos"]),
    Planted("types of arrays not checked", _set(parcels, "_check_arrays", lambda *_: None), MALFORMED["wrong_type"]),
    Planted("two stories not compared", _set(SeenStore, "_told_two", lambda *_: False),
            EQUIVOCATING["different_models"]),
    Planted("only the analyzer's heads kept", _only_the_analyzer_is_compared, EQUIVOCATING["second_total_later"]),
    Planted("ids that anybody can guess", _predictable_ids, AT_THE_BROKER["ids_of_others"], TimeoutError),
    Planted("a permission too many", _permission_opened, AT_THE_BROKER["purge"]),
    Planted("no limit of a message's size", _size_not_limited, AT_THE_BROKER["too_large"], pytest.fail.Exception),
    Planted("token not checked", _set(App, "_check_token", lambda *_: None), OVER_HTTP["wrong_token"]),
    Planted("no time limit for headers", _set(PatientProtocol, "_watch", lambda self: None), OVER_HTTP["half_open"],
            TimeoutError),
    Planted("participation cap not counted", _no_cap, OVER_HTTP["over_the_cap"]),
]  # fmt: skip
