"""The silo's ledger: one typed event a release, chained by hashes, so that what was spent cannot be edited later."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedbandit.federation.store.silo import LedgerRow
from fedbandit.plan import Plan
from fedbandit.privacy import ledger
from fedbandit.privacy.ledger import BinomialRelease, ClearRelease, Entry, Event, GaussianRelease
from fedbandit.privacy.spending import Spent, spent
from fedbandit.protocol import mechanisms
from fedbandit.protocol.vector_sum import VectorSumProtocol

WORDS = {
    "silo": "noisy sums of one batch, to the analyzer",
    "shuffle": "noisy sums of one batch, through the shuffler",
    "vector-sum": "counts of ones of one p-sum, through the mixer",
    "secure-sum": "noisy sums of one batch, in two shares",
    "central": "sums of one batch, to the trusted server, which adds the noise",
}


def entry(last: LedgerRow | None, event: Event) -> LedgerRow:
    """The ledger row of an event, after the last one."""
    chained = ledger.append(ledger.GENESIS if last is None else last.hash, event)
    number = 0 if last is None else last.number + 1
    return LedgerRow(number, chained.hash, chained.previous, ledger.event_to_json(event))


def event(plan: Plan, silo: str, term: int, step: int) -> Event | None:
    """What release `step` spends; None for a plan that has no budget (trust `none`)."""
    if plan.privacy is None:
        return None
    privacy, protocol = plan.privacy, plan.protocol
    common: dict[str, Any] = {
        "silo": silo,
        "plan": plan.hash,
        "term": term,
        "trust": plan.trust,
        "mechanism": plan.mechanism,
        "steps": plan.encoder.steps,
        "step": step,
        "released": WORDS[plan.trust],
        "adjacency": privacy.adjacency,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
    }
    if plan.trust == "central":
        return ClearRelease(**common, receiver="analyzer")
    if isinstance(protocol, VectorSumProtocol):
        node = protocol.node(step + 1)
        return BinomialRelease(**common, noise_bits=node.noise_bits, users=node.users)
    own = protocol.scales[plan.dim]  # on the diagonal of the covariance
    summed = plan.trust == "secure-sum"
    honest = (plan.cohort or plan.silos) - plan.colluding if summed else 1
    visits = privacy.silos_per_user if summed else math.sqrt(privacy.silos_per_user)
    shift = plan.request.shift.total * visits
    return GaussianRelease(**common, sigma=own * math.sqrt(honest), own_sigma=own, sensitivity=shift)


def entries(rows: Sequence[LedgerRow]) -> list[Entry]:
    """The chain as it is on disk, verified."""
    chain = [Entry(row.previous, ledger.event_from_json(row.event), row.hash) for row in rows]
    ledger.verify(chain)
    return chain


def spending(rows: Sequence[LedgerRow]) -> Spent:
    """What the ledger says was spent, composed over its terms."""
    return spent(entries(rows), mechanisms.encoder)
