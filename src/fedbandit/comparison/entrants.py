"""The protocols that are compared: the paper's, ours and those of the literature, each with its audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedbandit import presets
from fedbandit.audit.cases import Case, case, reduced
from fedbandit.baselines import BASELINES, baseline
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trust import Faith

__all__ = ["ENTRANTS", "TRUSTED", "YOURS", "Entrant", "asked_plan", "yours"]

YOURS = "yours"
TRUSTED = {  # whom a user has to trust, in a word
    Faith.NOBODY: "nobody",
    Faith.OWN_SILO: "own silo",
    Faith.TWO_WHO_DO_NOT_COLLUDE: "two",
    Faith.ANALYZER: "analyzer",
    Faith.EVERYBODY: "all",
}
EXACT = " exact"  # suffix of a protocol that adds the least sufficient noise instead of the noise of its paper


class Entrant(NamedTuple):
    """A protocol that takes part."""

    name: str
    plan: Callable[[Plan], Plan]
    cases: Callable[[Sequence[Plan]], list[Case]] | None  # audits of the plans asked for; None: nothing is ever sent


def asked_plan(silos: int, rounds: int, dim: int, privacy: Privacy) -> Plan:
    """The plan that every entrant is given: its size and budget, from which it makes its own plan."""
    return Plan(silos, rounds, dim, privacy, trust="none")


def yours(planned: Callable[[Plan], Plan]) -> Entrant:
    """The entrant for a user's own protocol. Its plans may differ from instance to instance, so each is audited, with a
    second silo: nobody has tested that its silos draw noise of their own."""
    return Entrant(YOURS, planned, lambda asked: [_reduced(planned, one, beside=1) for one in asked])


def _preset(name: str) -> Entrant:
    audited = None if name in presets.ALONE else _named(name)
    return Entrant(name, lambda asked: presets.plan_for(name, asked), audited)


def _practical(name: str) -> Entrant:
    """The preset with practical radii, which the theorem does not cover. Its promise and its audit are the preset's."""
    return Entrant(
        f"{name} practical",
        lambda asked: presets.plan_for(name, asked.changed(confidence="practical")),
        _named(name),
    )


def _baseline(name: str) -> Entrant:
    return Entrant(name, lambda asked: baseline(name, asked), _named(name))


def _exact(name: str) -> Entrant:
    def planned(asked: Plan) -> Plan:
        return baseline(name, asked, "exact")

    return Entrant(name + EXACT, planned, lambda asked: [_reduced(planned, asked[0])])


def _exact_vector_sum() -> Entrant:
    """P_vec with the number of noise bits that its promise needs, instead of the theorem's."""
    name = "sdp-vector-sum"
    return Entrant(
        name + EXACT,
        lambda asked: presets.plan_for(name, asked).changed(calibration="exact"),
        _named("vector-sum"),
    )


def _named(name: str) -> Callable[[Sequence[Plan]], list[Case]]:
    """The audit case of that name, at the budget that was asked for."""
    return lambda asked: [case(name, *_budget(asked[0]))]


def _reduced(planned: Callable[[Plan], Plan], asked: Plan, beside: int = 0) -> Case:
    """The entrant's plan, reduced to a size that can be audited; a plan without a budget is held to the asked one."""
    plan = planned(asked)
    return reduced(plan if plan.privacy is not None else plan.changed(privacy=asked.privacy), beside)


def _budget(asked: Plan) -> tuple[float, float]:
    assert asked.privacy is not None
    return asked.privacy.epsilon, asked.privacy.delta


ENTRANTS = (
    *map(_preset, ("fed-lin-ucb", "isolated")),
    _baseline("he"),
    *map(_baseline, (name for name in BASELINES if name != "he")),
    *map(_exact, (name for name, known in BASELINES.items() if len(known.calibrations) > 1)),
    *map(_preset, ("dubey", "private-adaptive", "ldp", "sdp-amplified", "sdp-vector-sum")),
    _exact_vector_sum(),
    *map(_preset, ("silo", "secure-sum", "local")),
    *map(_practical, ("silo", "secure-sum")),
)
