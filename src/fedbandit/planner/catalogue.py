"""Every protocol by name: the paper's, with its constants, and ours. What the command line and the audit speak of."""

from __future__ import annotations

from collections.abc import Callable

from fedbandit import _validate
from fedbandit.paper import presets
from fedbandit.plan import Plan
from fedbandit.schedule import Every, Schedule

Preset = Callable[[Plan, Schedule | None], Plan]


def silo(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """Silo-level LDP with exact calibration and the square-root mechanism."""
    return _ours(plan, schedule).changed(trust="silo")


def secure_sum(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """The noise of a trusted server without one."""
    return _ours(plan, schedule).changed(trust="secure-sum")


def central(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """A trusted server, the yardstick for secure-sum."""
    return _ours(plan, schedule).changed(trust="central")


def local(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """Each user adds their own noise and trusts nobody."""
    return _ours(plan, schedule).changed(trust="local", mechanism="batches")


def isolated(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """Each silo alone, without privacy: what a silo has if it stays out. It has no schedule, it never synchronises."""
    return _ours(plan, Every(plan.rounds)).changed(trust="none", privacy=None, acting="eager")


PAPER: dict[str, Preset] = {
    "fed-lin-ucb": lambda plan, schedule: presets.fed_lin_ucb(plan, schedule=schedule),
    "ldp": lambda plan, schedule: presets.ldp(plan, schedule=schedule),
    "ldp-eager": lambda plan, schedule: presets.ldp_eager(plan, schedule=schedule),
    "ldp-alt": lambda plan, schedule: presets.ldp_alt(plan, schedule=schedule),
    "sdp-amplified": lambda plan, schedule: presets.sdp_amplified(plan, schedule=schedule),
    "sdp-vector-sum": lambda plan, schedule: presets.sdp_vector_sum(plan, schedule=schedule),
    "dubey": lambda plan, schedule: presets.dubey(plan),  # the data decide its schedule
    "private-adaptive": lambda plan, schedule: presets.private_adaptive(plan),
    "super-agent": lambda plan, schedule: presets.super_agent(plan, schedule=schedule),
}
OURS: dict[str, Preset] = {
    "silo": silo,
    "secure-sum": secure_sum,
    "central": central,
    "local": local,
    "isolated": isolated,
}
NAMES = (*PAPER, *OURS)


def plan_for(name: str, plan: Plan, schedule: Schedule | None = None) -> Plan:
    """The protocol `name` for the silos, rounds, dimension and budget of `plan`; on `schedule` if one is given."""
    _validate.one_of("protocol", name, NAMES)
    return {**PAPER, **OURS}[name](plan, schedule)


def _ours(plan: Plan, schedule: Schedule | None) -> Plan:
    return plan if schedule is None else plan.changed(schedule=schedule)
