"""Alarms for a party's page, by the rules of deploy/monitoring/alerts.yml: what is wrong, and what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fedbandit._words import lasting
from fedbandit.federation.telemetry.troubles import Troubles

__all__ = ["NOTHING", "Alarm", "Facts", "alarms", "overdue"]

OVERDUE = 120.0  # seconds beyond the deadline
IN_A_ROW = 3  # consecutive syncs without a silo
RECENT = 10  # number of syncs among which skipped ones are reported
CERTIFICATE = 14 * 86_400.0
DISK = 1e9  # bytes
NOTHING: Mapping[str, Any] = MappingProxyType({})
DOCTOR = "run `fedbandit doctor DIR` there"


class Facts(NamedTuple):
    """What the rules look at."""

    troubles: Troubles = NOTHING
    overdue: float | None = None  # seconds since the tick of the oldest sync without a result
    deadline: float = 0.0
    states: str = ""  # of the syncs so far, one letter each
    missed: Mapping[str, int] = NOTHING  # by silo, the number of last syncs in a row without it
    elsewhere: int = 0  # number of parties that work under another plan
    refusals: Mapping[str, int] = NOTHING
    overspent: bool = False
    gain_high: float | None = None  # upper end of the interval of the mean reward's change
    machine: Mapping[str, float] = NOTHING  # metrics of the machine


class Alarm(NamedTuple):
    """One alarm; `rule` is its name in alerts.yml."""

    rule: str
    says: str
    do: str


def alarms(facts: Facts) -> Iterator[Alarm]:
    """The alarms that these facts raise, the most serious first."""
    rules = {"store": "FedbanditStoreFails", "broker": "FedbanditBrokerAway"}
    for kind, says in facts.troubles.items():
        yield Alarm(rules.get(kind, "FedbanditProblem"), says, f"docs/operating.md has what to do about {kind!r}")
    if facts.overspent:
        yield Alarm("FedbanditBudgetOverspent", "more was spent than the plan promises", "stop it; look at its ledger")
    if facts.elsewhere:
        says = f"{facts.elsewhere} parties work under another plan"
        yield Alarm("FedbanditAnotherPlan", says, "compare fingerprints; `federation accept`, then restart")
    if facts.overdue is not None and facts.overdue > facts.deadline + OVERDUE:
        yield Alarm("FedbanditSyncStalled", f"a sync is overdue by {lasting(facts.overdue)}", DOCTOR)
    for silo, count in facts.missed.items():
        if count >= IN_A_ROW:
            yield Alarm("FedbanditSiloMissing", f"silo {silo} was not in the last {count} syncs", DOCTOR)
    if "s" in facts.states[-RECENT:]:
        yield Alarm(
            "FedbanditSyncSkipped", "some of the last syncs were skipped: too few silos came", "see who is away"
        )
    if facts.refusals:
        said = ", ".join(f"{count:,} as {reason}" for reason, count in sorted(facts.refusals.items()))
        yield Alarm("FedbanditRefusesMessages", f"messages were refused: {said}", "the log says whose and why")
    if facts.gain_high is not None and facts.gain_high < 0:
        yield Alarm("FedbanditEarnsLess", "rewards are lower than in the first weeks", "look at what has changed")
    yield from _of_machine(facts.machine)


def overdue(moment: float | None) -> float | None:
    """Seconds since the tick at this moment; None if it is in the future or unknown."""
    since = -1.0 if moment is None else time.time() - moment
    return since if since > 0 else None


def _of_machine(machine: Mapping[str, float]) -> Iterator[Alarm]:
    if machine.get("fedbandit_certificate_seconds", CERTIFICATE) < CERTIFICATE:
        yield Alarm("FedbanditCertificateEnds", "the certificate ends within two weeks", "renew it, then restart")
    if machine.get("fedbandit_disk_free_bytes", DISK) < DISK:
        yield Alarm("FedbanditDiskFull", "less than 1 GB is left on the disk", "make room: a full disk takes no reward")
    if not machine.get("fedbandit_keys_readable", 1.0):
        yield Alarm("FedbanditKeysUnreadable", "the keys cannot be read: the next start fails", "chmod 600 party.key")
