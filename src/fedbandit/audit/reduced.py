"""Anybody's plan at a size that can be run many times: smaller only in what its guarantee does not depend on.

Schedule, mechanism, calibration and acting stay. The dimension does not matter to the largest shift of a user from 2
on; other silos do not matter to one silo's transcript; a secure sum is one with two honest silos; noise is calibrated
anew for a shorter horizon by the same rule.
"""

from __future__ import annotations

from fedbandit.audit.subjects import Subject, subject_of
from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive, Every

STEPS = 400  # synchronisations at most
DIM = 2
HONEST = 2  # silos of a secure sum, and of a trusted server
VECTOR_SUM_SILOS, VECTOR_SUM_ROUNDS = 2, 4
TRIALS = {"shuffle": 2_000, "vector-sum": 20_000}
TRIALS_OTHERWISE = 50_000


def audited(plan: Plan) -> Subject:
    """The plan under audit; without a budget there is nothing to hold it to."""
    if plan.privacy is None:
        raise ValueError("plan must have a privacy budget to be audited, got none")
    smaller = _silos(_horizon(plan.changed(dim=min(plan.dim, DIM))))
    trials = TRIALS.get(plan.trust, TRIALS_OTHERWISE)
    return subject_of("plan", smaller, (plan.privacy.epsilon, plan.privacy.delta), trials)


def _horizon(plan: Plan) -> Plan:
    """At most STEPS synchronisations; P_vec rounds every user anew for every p-sum and must be short."""
    if plan.trust == "vector-sum" and plan.rounds > VECTOR_SUM_ROUNDS:
        return plan.changed(rounds=VECTOR_SUM_ROUNDS, schedule=Every(2))
    steps = plan.rounds if isinstance(plan.schedule, Adaptive) else len(plan.times)
    return plan if steps <= STEPS else _horizon(plan.changed(rounds=plan.rounds // 2))


def _silos(plan: Plan) -> Plan:
    if plan.trust == "secure-sum":
        colluding = min(plan.colluding, 1)
        return plan.changed(silos=min(plan.cohort or plan.silos, HONEST + colluding), colluding=colluding, cohort=None)
    if plan.trust in ("central", "vector-sum"):
        return plan.changed(silos=min(plan.silos, HONEST if plan.trust == "central" else VECTOR_SUM_SILOS))
    return plan
