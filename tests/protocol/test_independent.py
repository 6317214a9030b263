"""Printed promises against a computation that shares no formula with the source.

The protocol itself is run on single impulses, of data and of noise, so that what is released is known as a linear map
from one person's data and from the noise to everything that an adversary sees. The longest move of that view by one
person, searched over people, batches and silos and measured in the noise that covers it, is mu; its delta at the
printed epsilon is an integral over two normal densities.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedbandit._arrays import Floats, Indices, Integers, Words
from fedbandit.plan import Plan
from fedbandit.privacy import ledger
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.privacy.spending import spent
from fedbandit.protocol import composition, mechanisms
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.schedule import Schedule, adaptive, clock, every, growing

IMPULSE = 2**22  # steps of the grid: large enough to be exact to seven digits where releases are rounded
DIM = 2
NODES, WEIGHTS = np.polynomial.legendre.leggauss(300)

# -- what is released, as a linear map ---------------------------------------------------------------------------------


@dataclass
class Impulses:
    """Noise that is zero but for one draw of one silo, another one in each run; it writes down what was asked for."""

    at: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by draw: runs, and the silo in each of them
    scales: list[Floats] = field(default_factory=list)
    silos: list[int] = field(default_factory=list)

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        drawn = np.zeros((*lead, len(scales)), dtype=np.int64)
        for run, silo in self.at.get(len(self.scales), []):
            drawn[run, silo] = IMPULSE
        self.scales.append(scales)
        self.silos.append(lead[-1])
        return drawn

    def words(self, shape: tuple[int, ...]) -> Words:
        return np.full(shape, 12345, dtype=np.uint64)

    def permutation(self, size: int) -> Indices:
        return np.arange(size, dtype=np.intp)

    def binomial(self, trials: int, probability: float, shape: tuple[int, ...]) -> Integers:
        raise AssertionError("no Gaussian protocol draws this")

    def rounded_total(self, values: Floats) -> Integers:
        raise AssertionError("no Gaussian protocol draws this")


See = Callable[[Protocol, Message, Message], Integers]  # sent and held (runs, silos, width) to (runs, seen, width)


def separately(protocol: Protocol, sent: Message, held: Message) -> Integers:
    """Each silo's release."""
    return sum((part.astype(np.int64) for part in sent), start=np.zeros_like(sent[0], dtype=np.int64))


def published(protocol: Protocol, sent: Message, held: Message) -> Integers:
    """What a trusted server makes public."""
    return held[0]


def total_and(colluding: int) -> See:
    """The sum over silos, and what the last silos of them have sent."""

    def see(protocol: Protocol, sent: Message, held: Message) -> Integers:
        each = separately(protocol, sent, held)
        total = each.sum(axis=SILOS, keepdims=True)
        assert np.array_equal(protocol.total(held), total[:, 0])
        return np.concatenate([total, each[:, each.shape[SILOS] - colluding :]], axis=SILOS)

    return see


class View(NamedTuple):
    """How batches and draws of noise enter all that is seen, and the noise of each number, in natural units."""

    data: Floats  # (syncs, silos, seen)
    noise: Floats  # (draws, seen)
    scales: Floats  # (width,)

    @property
    def moves(self) -> Floats:
        """How far a unit of data in each batch moves the view, in units of the noise: (syncs, silos, rank)."""
        values, vectors = np.linalg.eigh(self.noise.T @ self.noise)
        covered = values > 1e-9 * values.max()
        moved = self.data @ vectors
        assert np.abs(moved[..., ~covered]).max(initial=0.0) < 1e-6, "data without any noise"
        return np.asarray(moved[..., covered] / np.sqrt(values[covered]))


def view(plan: Plan, silos: int, see: See) -> View:
    """One impulse per run: of data in each batch of each silo, then of each draw of noise."""
    protocol, syncs = plan.protocol, plan.encoder.size
    asked = Impulses()
    assert not _seen(protocol, see, np.zeros((syncs, 1, silos), dtype=np.int64), asked).any()
    scales = asked.scales[0]
    assert all(np.array_equal(scales, other) for other in asked.scales)
    draws = [(draw, silo) for draw, count in enumerate(asked.silos) for silo in range(count)]
    runs = syncs * silos
    batches = np.zeros((syncs, runs + len(draws), silos), dtype=np.int64)
    batches[:, :runs] = IMPULSE * np.eye(runs, dtype=np.int64).reshape(syncs, silos, runs).swapaxes(1, 2)
    noise = Impulses()
    for number, (draw, silo) in enumerate(draws):
        noise.at.setdefault(draw, []).append((runs + number, silo))
    seen = _seen(protocol, see, batches, noise)
    data = seen[:runs].reshape(syncs, silos, -1) * 2.0**-plan.encoder.fraction_bits
    return View(data, seen[runs:], scales * 2.0 ** -(plan.bits + plan.encoder.fraction_bits))


def _seen(protocol: Protocol, see: See, batches: Integers, noise: Impulses) -> Floats:
    """What is seen of batches (syncs, runs, silos), whose numbers are all alike: (runs, seen)."""
    _, runs, silos = batches.shape
    state, everything = composition.init(protocol, (runs,), silos), []
    for batch in batches:
        sums = np.repeat(batch[..., None], protocol.width, axis=-1)
        state, transcript = composition.send(protocol, state, sums, noise)
        everything.append(see(protocol, transcript.sent, transcript.held))
    rows = np.concatenate(everything, axis=SILOS)
    assert (rows == rows[..., :1]).all(), "every number goes the same way"
    return np.asarray(rows[..., 0] / IMPULSE)


# -- how far one person moves it ---------------------------------------------------------------------------------------


def people(dim: int, centre: float, angles: int) -> Floats:
    """Directions all round, rewards at both ends, and nobody (the last): (people, width)."""
    if dim == DIM:
        turns = np.arange(angles) * 2 * np.pi / angles
        x = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    else:
        x = np.random.default_rng(7).standard_normal((angles, dim))
        x = np.concatenate([x / np.linalg.norm(x, axis=1, keepdims=True), np.eye(dim), -np.eye(dim)])
    rows, columns = np.triu_indices(dim)
    matrix = x[:, rows] * x[:, columns]
    rewarded = [np.hstack([(y - centre) * x, matrix]) for y in (0.0, 1.0)]
    return np.concatenate([*rewarded, np.zeros((1, rewarded[0].shape[1]))])


def pairs(plan: Plan, scales: Floats) -> Floats:
    """|u|^2, |u'|^2 and -2 <u, u'> of some people and all whom they may be exchanged for, in units of the noise."""
    assert plan.privacy is not None
    some, others = (people(plan.dim, plan.centre, angles) / scales for angles in (24, 120))
    if plan.privacy.adjacency == "add-remove":
        some = some[-1:]
    own, other = np.sum(some**2, axis=1)[:, None], np.sum(others**2, axis=1)[None]
    each = np.broadcast_arrays(own, other, -2 * some @ others.T)
    return np.stack([part.ravel() for part in each])


def largest_mu(plan: Plan, seen: View) -> float:
    """Over whom, in which batch, in whichever other batch instead, and in which silos."""
    assert plan.privacy is not None
    together = seen.moves[:, : plan.privacy.silos_per_user].sum(axis=1)
    return plan.privacy.participations * math.sqrt(longest(together, pairs(plan, seen.scales)))


def longest(moves: Floats, exchanged: Floats) -> float:
    """The largest |C_j u - C_k u'|^2 over batches j and k and over people."""
    products = moves @ moves.T
    j, k = (index.ravel() for index in np.indices(products.shape))
    weights = np.unique(np.stack([products[j, j], products[k, k], products[j, k]], axis=1).round(12), axis=0)
    return float((weights @ exchanged).max())


def delta_of(mu: float, epsilon: float) -> float:
    """The integral of p - e^epsilon q where it is positive; p and q are normal, mu apart."""
    x = epsilon / mu + mu / 2 + 7.0 * (1 + NODES)
    p, q = (np.exp(-((x - at) ** 2) / 2 + shift) for at, shift in ((mu, 0.0), (0.0, epsilon)))
    return float(7.0 * WEIGHTS @ (p - q) / math.sqrt(2 * math.pi))


def epsilon_of(mu: float, delta: float) -> float:
    low, high = 0.0, 1.0
    while delta_of(mu, high) > delta:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(mu, middle) > delta else (low, middle)
    return high


def number(text: str, before: str) -> float:
    found = re.search(re.escape(before) + r"(\d+\.?\d*(?:e-?\d+)?)", text)
    assert found is not None, f"{before!r} is not in {text}"
    return float(found[1])


# -- plans -------------------------------------------------------------------------------------------------------------

MECHANISMS = ("tree", "toeplitz", "batches", "blt", "optimal")
SCHEDULES: tuple[Schedule, ...] = (every(4), growing(1.6), clock(60.0), clock(60.0, 1.5))
Visits = tuple[Adjacency, int, int]  # adjacency, rounds of a silo, silos per user
VISITS: tuple[Visits, ...] = (
    ("replace-one", 1, 1),
    ("add-remove", 1, 1),
    ("replace-one", 3, 1),
    ("replace-one", 1, 2),
    ("add-remove", 2, 3),
)


def made(trust: str, visits: Visits = VISITS[0], **fields: Any) -> Plan:
    budget = fields.pop("budget", (1.0, 1e-5))
    given = {"silos": 4, "rounds": 8, "dim": DIM, "schedule": every(1), **fields}
    return Plan(privacy=Privacy(budget[0], budget[1], *visits), trust=trust, **given)


def grid() -> Iterator[tuple[str, Plan]]:
    """Trust x schedule x mechanism x adjacency x participations x silos per user, and what else moves the noise."""
    for trust, mechanism, schedule, visits in product(("silo", "secure-sum", "central"), MECHANISMS, SCHEDULES, VISITS):
        plan = made(trust, visits, mechanism=mechanism, schedule=schedule)
        yield f"{trust} {mechanism} {schedule} {' '.join(map(str, visits))}", plan
    for mechanism, visits in product(("tree", "batches"), VISITS):
        yield f"decoded {mechanism} {visits}", made("silo", visits, mechanism=mechanism, decode_at="silo")
    for trust, centre, ratio, budget in product(
        ("silo", "secure-sum"), (0.0, 0.5, 0.8), (0.25, 1.0, 5.0), ((0.1, 1e-3), (8.0, 1e-9))
    ):
        yield f"{trust} {centre} {ratio} {budget}", made(trust, centre=centre, ratio=ratio, budget=budget)
    for cohort, colluding, silos_per_user in product((2, 3, 4), (0, 1, 2), (1, 2)):
        if colluding < cohort:
            visits = (*VISITS[0][:2], silos_per_user)
            yield (
                f"{cohort} {colluding} {silos_per_user}",
                made("secure-sum", visits, cohort=cohort, colluding=colluding),
            )
    for dim in (1, 3):
        yield f"dim {dim}", made("silo", dim=dim)


PLANS = dict(grid())


def sees(plan: Plan) -> See:
    return {"silo": separately, "secure-sum": total_and(plan.colluders), "central": published}[plan.trust]


@pytest.mark.parametrize("name", PLANS)
def test_the_printed_epsilon_is_true_and_asks_for_no_more_noise_than_it_needs(name: str) -> None:
    plan = PLANS[name]
    guarantee = plan.guarantee
    assert guarantee.epsilon is not None
    assert guarantee.delta is not None
    mu = largest_mu(plan, view(plan, plan.smallest_cohort, sees(plan)))
    assert delta_of(mu, guarantee.epsilon) <= guarantee.delta * (1 + 1e-6)
    printed = number(str(guarantee), "mu-GDP with mu = ")
    assert mu <= printed + 5.1e-6
    if is_sharp(plan):
        assert mu >= 0.998 * printed


def is_sharp(plan: Plan) -> bool:
    """Whether the worst case was looked at: people of every direction, all of whose silos take part and are honest."""
    assert plan.privacy is not None
    return plan.dim == DIM and plan.privacy.silos_per_user <= plan.smallest_cohort - plan.colluders


SHARED = {name: plan for name, plan in PLANS.items() if plan.trust == "secure-sum" and plan.schedule != every(4)}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_left_if_more_of_them_collude_is_true(name: str) -> None:
    plan = SHARED[name]
    assert plan.privacy is not None
    delta, answers = plan.privacy.delta, dict(plan.guarantee.answers)["If parties collude"]
    together = epsilon_of(largest_mu(plan, view(plan, plan.smallest_cohort, separately)), delta)
    for text, before in (
        (plan.guarantee.statement, "each silo's own noise still gives ("),
        (answers, "mixer and analyzer together, even with all other silos: epsilon = "),
        (str(plan.guarantee.steps), "an exact epsilon of "),
    ):
        assert together <= number(text, before) * (1 + 1e-3)
        if is_sharp(plan):
            assert together >= number(text, before) * (1 - 5e-3)
    if plan.smallest_cohort - plan.colluders == 1:
        assert "more silos together gain nothing" in answers
        return
    more = epsilon_of(largest_mu(plan, view(plan, plan.smallest_cohort, total_and(plan.colluders + 1))), delta)
    printed = number(answers, "even with one of the two: epsilon = ")
    assert more <= printed * (1 + 1e-3)
    if plan.privacy.silos_per_user < plan.smallest_cohort - plan.colluders:
        assert more >= printed * (1 - 5e-3)


@pytest.mark.parametrize("visits", VISITS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_in_the_local_model_every_visit_has_noise_of_its_own(schedule: Schedule, visits: Visits) -> None:
    plan = made("local", visits, mechanism="batches", schedule=schedule)
    noise = Impulses()
    plan.protocol.collect(plan.protocol.init((1,)), np.zeros((1, 1, plan.protocol.width), dtype=np.int64), noise)
    (scales,) = noise.scales
    mu = math.sqrt(visits[1] * visits[2] * longest(np.ones((1, 1)), pairs(plan, scales * 2.0**-plan.bits)))
    assert delta_of(mu, 1.0) <= 1e-5 * (1 + 1e-6)
    assert mu >= 0.998 * number(str(plan.guarantee), "mu-GDP with mu = ")


PAPERS = {
    "silo": made("silo", mechanism="tree", calibration="paper"),
    "silo, small epsilon": made("silo", mechanism="tree", calibration="paper", budget=(0.1, 0.1)),
    "silo, add-remove": made(
        "silo", ("add-remove", 1, 1), mechanism="tree", calibration="paper", schedule=growing(1.6)
    ),
    "silo, batches": made("silo", mechanism="batches", calibration="paper"),
    "silo, two rounds": made("silo", ("add-remove", 2, 1), mechanism="tree", calibration="paper"),
    "silo, two silos": made("silo", ("replace-one", 1, 2), mechanism="tree", calibration="paper"),
}


@pytest.mark.parametrize("name", PAPERS)
def test_the_exact_check_of_the_papers_noise_is_true(name: str) -> None:
    plan = PAPERS[name]
    assert plan.privacy is not None
    exact = epsilon_of(largest_mu(plan, view(plan, plan.silos, separately)), plan.privacy.delta)
    printed = number(str(plan.guarantee), "this is exactly (" if plan.guarantee.promised else "exact epsilon of ")
    assert exact == pytest.approx(printed, rel=5e-3, abs=1e-9)
    assert plan.guarantee.promised == (exact <= plan.privacy.epsilon)


@pytest.mark.parametrize("schedule", [every(5), clock(60.0, 2.0)], ids=str)
def test_behind_a_shuffler_the_noise_alone_keeps_the_promise(schedule: Schedule) -> None:
    plan = Plan(2000, 20, DIM, Privacy(1e-3, 1e-4), "shuffle", "tree", schedule, calibration="paper")
    exact = delta_of(largest_mu(plan, view(plan, 2, separately)), 1e-3)
    assert plan.guarantee.promised
    assert exact <= 1e-4


@pytest.mark.parametrize("visits", VISITS)
@pytest.mark.parametrize("trust", ["silo", "secure-sum"])
def test_releases_and_a_private_rule_keep_the_promise_together(trust: str, visits: Visits) -> None:
    """The rule sees covariances alone, in a tree over rounds; the releases may follow every round."""
    plan = made(trust, visits, mechanism="tree", schedule=adaptive(3.0, private=True))
    released = largest_mu(plan, view(plan, plan.silos, sees(plan)))
    rule, rounds, entries = plan.rule, plan.rounds, DIM * (DIM + 1) // 2
    columns = np.zeros((rounds, rounds))
    for at in range(rounds):
        state = rule.init((1,))
        for round_ in range(rounds):
            covariance = np.full((1, entries), IMPULSE if round_ == at else 0, dtype=np.int64)
            state, _ = rule.step(state, covariance, np.eye(DIM)[None], Impulses())
            columns[at, round_] = state.node[0, 0] / IMPULSE
    scales = np.concatenate([np.full(DIM, np.inf), rule.node_scales * 2.0**-plan.bits])
    seen = visits[1] * math.sqrt(visits[2] * longest(columns, pairs(plan, scales)))
    assert delta_of(math.hypot(released, seen), 1.0) <= 1e-5 * (1 + 1e-6)
    printed = number(str(plan.guarantee), "mu-GDP with mu = ")
    assert released == pytest.approx(printed * math.sqrt(0.5), rel=2e-3)
    assert seen == pytest.approx(printed * math.sqrt(0.5), rel=2e-3)


@pytest.mark.parametrize("trust", ["silo", "secure-sum"])
@pytest.mark.parametrize("schedule", [every(4), growing(1.6)], ids=str)
def test_acting_eagerly_a_whole_batch_is_covered(trust: str, schedule: Schedule) -> None:
    plan = made(trust, acting="eager", schedule=schedule)
    others = max(b - a for a, b in zip((0, *plan.times), plan.times, strict=False))
    assert others > 1
    mu = others * largest_mu(plan, view(plan, plan.smallest_cohort, sees(plan)))
    assert delta_of(mu, 1.0) <= 1e-5 * (1 + 1e-6)
    assert mu >= 0.998 * number(str(plan.guarantee), "mu-GDP with mu = ")


@pytest.mark.parametrize(
    "name", [name for name, plan in PLANS.items() if plan.trust != "central" and is_sharp(plan)][::7]
)
def test_a_ledger_of_all_releases_has_spent_just_that(name: str) -> None:
    plan = PLANS[name]
    entries: list[ledger.Entry] = []
    for sync in range(plan.encoder.size):
        event = plan.release("a", 1, sync)
        assert event is not None
        entries.append(ledger.append(entries[-1].hash if entries else ledger.GENESIS, event))
    mu = largest_mu(plan, view(plan, plan.smallest_cohort, sees(plan)))
    assert spent(entries, mechanisms.encoder).mu == pytest.approx(mu, rel=2e-3)
