"""The silo's ledger: one typed event a release, chained by hashes, so that what was spent cannot be edited later."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fedbandit.federation.store.silo import LedgerRow
from fedbandit.plan import Plan

GENESIS = "0" * 64


def entry(last: LedgerRow | None, plan: Plan, silo: str, step: int) -> LedgerRow:
    """The ledger row of release `step`, after the last one."""
    event = json.dumps(_event(plan, silo, step), sort_keys=True)
    previous = GENESIS if last is None else last.hash
    digest = hashlib.sha256((previous + event).encode()).hexdigest()
    return LedgerRow(0 if last is None else last.number + 1, digest, previous, event)


def _event(plan: Plan, silo: str, step: int) -> dict[str, Any]:
    return {"kind": "release", "plan": plan.hash, "silo": silo, "step": step, "trust": plan.trust}
