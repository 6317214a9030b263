"""Small federations, founded once: what differs from history to history is what happens to them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.party import Party
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock, every
from tests.torture.simulation.machine import START
from tests.torture.simulation.models import modelled_keys, simulated

__all__ = ["DEADLINE", "NAMES", "PERIOD", "SETTINGS", "Setting", "setting"]

PERIOD, DEADLINE, SETTLE = 12.0, 8.0, 2.0  # seconds
BUDGET = Privacy(1.0, 0.1)
TWICE = Privacy(1.0, 0.1, participations=2)
SHM = Path("/dev/shm")


class Setting(NamedTuple):
    """A plan and the parties with their keys."""

    plan: Plan
    parties: dict[str, Party]
    operator: PartyKeys
    spare: dict[str, PartyKeys]  # by party: keys that it may have later
    successor: PartyKeys  # what the operator may sign with later

    @property
    def agreement(self) -> Agreement:
        return self.parties["analyzer"].agreement


def _plan(
    trust: str, silos: int, privacy: Privacy | None = BUDGET, cohort: int | None = None, *, syncs: int = 3
) -> Plan:
    return Plan(silos=silos, rounds=syncs, dim=2, privacy=privacy, trust=trust, schedule=clock(PERIOD), cohort=cohort)


_COUNTED = {"schedule": every(2), "rounds": 6, "visits": "public"}
_SLOWLY = {"schedule": every(4), "rounds": 8, "visits": "public"}  # so that somebody can be early for a while
SETTINGS: dict[str, Plan] = {
    "secure sum": _plan("secure-sum", 3, cohort=2),
    "secure sum, two syncs": _plan("secure-sum", 3, cohort=2, syncs=2),
    "secure sum of two": _plan("secure-sum", 2),
    "secure sum of two, two syncs": _plan("secure-sum", 2, syncs=2),
    "secure sum of four, visits twice": _plan("secure-sum", 4, TWICE, cohort=3),
    "secure sum, counted": _plan("secure-sum", 3, cohort=2).changed(**_COUNTED),
    "secure sum, counted, two syncs": _plan("secure-sum", 3, cohort=2).changed(**_SLOWLY),
    "silo": _plan("silo", 2, cohort=1),
    "silo, two syncs": _plan("silo", 2, cohort=1, syncs=2),
    "silo, visits twice": _plan("silo", 3, TWICE, cohort=2),
    "in the clear": _plan("none", 2, None, cohort=1),
    "in the clear, two syncs": _plan("none", 2, None, cohort=1, syncs=2),
    "in the clear, three": _plan("none", 3, None, cohort=2),
    "central": _plan("central", 2),
    "central, three": _plan("central", 3, cohort=2),
    "vector sum": plan_for("sdp-vector-sum", Plan(3, 6, 2, BUDGET, trust="none"), every(2)).changed(visits="public"),
}
SMALL = tuple(name for name in SETTINGS if name.endswith("two syncs"))  # what goes wrong at all goes wrong in these
NAMES = (*SETTINGS, *SMALL, *SMALL, *SMALL, *SMALL, *SMALL)  # drawn more often than all others


@cache
def setting(name: str, real_keys: bool) -> Setting:
    """A federation of this plan, with keys on disk like any other, or with keys of the model."""
    if not real_keys:
        real = setting(name, real_keys=True)
        spare = {name: modelled_keys(keys) for name, keys in real.spare.items()}
        return real._replace(parties=simulated(real.parties), spare=spare)
    plan = SETTINGS[name]
    timing = Timing(DEADLINE, start=START, settle=SETTLE if "twice" in name else 0.0)
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as folder:
        homes = founding.local(Path(folder), plan, [f"silo-{n}" for n in range(plan.silos)], timing)
        parties = {home.settings.name: home.party() for home in homes}
        operator = PartyKeys.load(Path(folder) / founding.OPERATOR_KEYS)
    agreement = parties["analyzer"].agreement  # the same file everywhere: one copy keeps what is computed from it
    same = {name: Party(agreement, party.keys, party.public) for name, party in parties.items()}
    spare = {name: party.keys.rotated() for name, party in same.items()}
    return Setting(agreement.plan, same, operator, spare, PartyKeys.generate())
