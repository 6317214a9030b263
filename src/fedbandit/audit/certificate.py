"""One page for a privacy officer: what is promised, to whom, why, who tried to break it, and what is not promised.

Every figure comes from the plan, its guarantee or an audit's report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date

from scipy.special import expit

from fedbandit._words import counted
from fedbandit.audit.auditor import CONFIDENCE
from fedbandit.audit.report import REFUTES, Report
from fedbandit.plan import Plan
from fedbandit.privacy.budget import at_most, exactly
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.protocol.guarantee import Acting
from fedbandit.schedule import Clock

__all__ = ["Certificate", "Section", "certificate", "promise_in_words"]

ADJACENCY: dict[Adjacency, str] = {
    "replace-one": "Two worlds are neighbours if one user, with all visits that count, is replaced by any other user.",
    "add-remove": "Two worlds are neighbours if one user, with all visits that count, takes part in only one of them.",
}
OWN_SILO = "Nothing is hidden from a user's own silo, which serves the user and sees the data."
LOCAL = (
    "A recommendation to somebody who does not count depends on the raw data of their silo's people and may reveal "
    'something about them: within a silo nothing is promised. (A plan with uncounted = "public" rules this out.)'
)
NOT_PROMISED = (
    "What is true of people in general is not hidden: learning it is the purpose.",
    "People are protected, organisations are not: what is true of a silo's people as a group may show.",
    "A user who comes more often than stated is not covered{}.",
    "Other data about the same user, released elsewhere, are not covered: their privacy loss adds up.",
    "Silos that lie about their users can spoil the model. They learn no more about others by lying.",
)

LEFT_OUT = ", unless the silo recognises them and leaves further visits out"
ACTING: dict[Acting, str] = {
    "lazy": "lazy: whoever counts is served by released sums alone",
    "eager": "eager: silos also decide by the raw sums of the batch so far",
}
MEANS = {  # verdicts that are easily taken for more than they say
    "holds": " No adversary got further than the claim allows. That is no proof: the proof is above.",
    "broken": " Do not start: the promise, or something that its proof relies on, is not true.",
}
LARGE, SMALL = 20.0, 0.005  # e^epsilon is written differently for an epsilon above or below these
THOUSAND = 1_000


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and then a list or a table."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    ordered: bool = False
    table: tuple[tuple[str, ...], ...] = ()  # the first row has the headings


@dataclass(frozen=True)
class Certificate:
    """The page as data."""

    title: str
    promise: str
    sections: tuple[Section, ...]


UNAUDITED = Section("Who tried to break it", ("Nobody: the plan has no budget, so an audit has nothing to break.",))


def certificate(plan: Plan, report: Report | None, on: date, live: Report | None = None) -> Certificate:
    """The page for a plan and its audit; `live` is the report of the live audit, if there was one. A plan without a
    budget has no audit, because there is nothing that an audit could break."""
    guarantee = plan.guarantee
    heading = "Why it holds" if guarantee.promised else "Why nothing is promised"
    sections = [
        _plan(plan),
        _who(plan),
        Section("In short", table=(("question", "answer"), *guarantee.answers) if guarantee.answers else ()),
        Section(heading, (guarantee.statement,), guarantee.steps, ordered=True),
        Section("What is assumed", (), guarantee.assumes),
        UNAUDITED if report is None else _audit(report, live, on),
        *((_not_promised(plan),) if guarantee.promised else ()),  # limits of a promise that there is
    ]
    filled = tuple(s for s in sections if s.paragraphs or s.items or s.table)
    broken = any(audited.verdict == "broken" for audited in (report, live) if audited is not None)
    return Certificate(_title(guarantee.promised, broken), promise_in_words(plan), filled)


def _title(promised: bool, broken: bool) -> str:
    if not promised:
        return "No privacy certificate"
    return "No privacy certificate: the audit broke the promise" if broken else "Privacy certificate"


def promise_in_words(plan: Plan) -> str:
    """The promise in plain words, or the guarantee's statement that there is none.

    The sentence is about events: P(S) <= e^epsilon P'(S) + delta for every S. It does not say that an observation is
    more than e^epsilon times as likely with probability at most delta: under Gaussian noise that probability is
    Phi(mu / 2 - epsilon / mu), which is larger.
    """
    guarantee = plan.guarantee
    if guarantee.epsilon is None or guarantee.delta is None:
        return guarantee.statement
    otherwise = "with anybody else's in their place" if guarantee.adjacency == "replace-one" else "without them"
    run = "as long as the run goes on" if plan.endless else "over the whole run"
    return (
        f"Any finding that {guarantee.against} can make {run} is at most {_times(guarantee.epsilon)} "
        f"times as likely with your data as {otherwise}, plus a chance of {exactly(guarantee.delta)}"
        f"{_guesses(guarantee.epsilon, guarantee.delta)}."
    )


def _times(epsilon: float) -> str:
    """e^epsilon, rounded up, in a readable form."""
    if epsilon > LARGE:
        return f"e^{exactly(epsilon)}"
    if math.exp(epsilon) >= THOUSAND:
        return f"{math.ceil(math.exp(epsilon)):,}"
    return at_most(math.exp(epsilon), 3) if epsilon > SMALL else f"1 + {at_most(math.expm1(epsilon), 2)}"


def _guesses(epsilon: float, delta: float) -> str:
    """What the promise means for somebody who guesses between two neighbours."""
    share = f"{math.ceil(1000 * _best_guess(epsilon, delta)) / 10:.1f}%"
    if share == "100.0%":
        return ", which hides next to nothing: somebody who has to guess between the two may be right every time"
    return (
        f". If they have to guess between the two, each as likely as the other, they are right at most {share} of the "
        "time"
    )


def _best_guess(epsilon: float, delta: float) -> float:
    """The largest share of right guesses between two equally likely neighbours that (epsilon, delta)-DP allows."""
    return float(1 - (1 - delta) * expit(-epsilon))


def _plan(plan: Plan) -> Section:
    budget = plan.privacy
    asked = (
        f"epsilon = {exactly(budget.epsilon)}, delta = {exactly(budget.delta)}, for the whole run" if budget else "none"
    )
    noise = (
        f"{plan.protocol.scales.bias:.5g} on the bias in one silo's release; {plan.noise_std:.5g} in the worst total"
    )
    rows = [
        ("Plan", plan.hash),
        ("Federation", f"{counted(plan.silos, 'silo')}, {_length(plan)} each, {counted(plan.dim, 'feature')}"),
        ("Budget", asked),
        ("Release", f"trust {plan.trust}, mechanism {plan.mechanism}, calibration {plan.calibration}"),
        ("Acting", ACTING[plan.acting]),
        ("Schedule", f"{plan.schedule}: {_sent(plan)}"),
        ("Noise", f"standard deviation {noise}"),
    ]
    return Section("The plan", table=(("", ""), *rows))


def _length(plan: Plan) -> str:
    """The length of a plan: in rounds, or on a clock in periods, in which any number of people may come."""
    on_clock = isinstance(plan.schedule, Clock)
    length = counted(plan.rounds, "period") + " of the clock" if on_clock else counted(plan.rounds, "round")
    return f"without an end; figures are for {length}" if plan.endless else length


def _sent(plan: Plan) -> str:
    if plan.syncs is None or plan.bytes_per_silo is None:
        return "the data decide when silos synchronise, and so how much they send"
    return f"{counted(plan.syncs, 'sync')}, {plan.bytes_per_silo:,} bytes sent by each silo"


def _who(plan: Plan) -> Section:
    budget = plan.privacy
    paragraphs = [plan.trusting.who]
    if plan.colluders:
        silos = f"At most {counted(plan.colluders, 'silo')} may collude"
        paragraphs.append(f"{silos} with the mixer or the analyzer, but not with both.")
    if budget is not None:
        paragraphs.append(ADJACENCY[budget.adjacency])
    return Section("Whom to trust, and what is compared", tuple(paragraphs))


def _not_promised(plan: Plan) -> Section:
    sees = plan.trusting.silo_sees
    local = (LOCAL,) if plan.serves_uncounted == "local" else ()
    never = tuple(one.format(LEFT_OUT if sees else "") for one in NOT_PROMISED)
    return Section("What is not promised", (), (*((OWN_SILO,) if sees else ()), *local, *never))


def _audit(report: Report, live: Report | None, on: date) -> Section:
    claim = report.claim
    claimed = (
        "nothing is claimed"
        if claim is None
        else f"claimed: {exactly(claim.epsilon)} at delta = {exactly(claim.delta)}"
    )
    head = (
        f"On {on.isoformat()} the protocol was run {report.trials:,} times in each of two neighbouring worlds, seed "
        f"{report.seed}. With {CONFIDENCE:.0%} confidence epsilon is at least "
        f"{report.epsilon_lower:.4g} ({claimed}). Verdict: {report.verdict}.{MEANS.get(report.verdict, '')}"
    )
    rows = [
        (f.adversary, f"{f.hits / f.trials:.4f}", f"{f.alarms / f.trials:.4f}", f"{f.epsilon_lower:.4g}")
        for f in report.findings
    ]
    return Section(
        "Who tried to break it",
        (
            head,
            f"Audited: {report.described}.{_cut(report)} If it is above the claim, the largest bound "
            f"{REFUTES[report.worst.bound]}.",
            _checked(report),
            _live(live),
        ),
        table=(("adversary", "right about world 1", "false alarms", "epsilon at least"), *rows),
    )


def _cut(report: Report) -> str:
    """How the plan was made smaller for the audit."""
    return f" To run it many times, the plan was made smaller: {report.cut}." if report.cut else ""


def _checked(report: Report) -> str:
    """The result of the checks, in a sentence."""
    number = sum(check.tests for check in report.checks)
    tests = f"{counted(number, 'test')} of the noise itself and of times and sizes of messages"
    if report.failed:
        failed = ". ".join(report.failed)
        return f"Of {tests} some failed. {failed}."
    return f"{'The' if number == 1 else 'All'} {tests} came out as claimed."


def _live(live: Report | None) -> str:
    if live is None:
        return "The live path (stores, live noise, sealed messages) was not part of this audit."
    return f"On the live path, {live.trials:,} runs of each world: verdict {live.verdict}. {_checked(live)}"
