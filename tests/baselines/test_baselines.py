"""Every baseline against its paper: the formulas by hand, decisions by a line-by-line loop, the promise by a search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedbandit.audit.calendar_game import calendar_game
from fedbandit.audit.cases import case, case_of
from fedbandit.audit.report import audit
from fedbandit.audit.worlds import User, neighbours
from fedbandit.bandit.statistics import unpack
from fedbandit.baselines import BASELINES, baseline
from fedbandit.baselines.chowdhury_zhou import batches
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every
from fedbandit.simulator.simulated import runs_noise
from tests.audit.faults import scaled
from tests.simulator.test_engine_reference import engine, prefix_noise
from tests.simulator.transcribed import DIM, FINE, SEED, TASK, SameUsers

EPSILON, DELTA, ALPHA = 8.0, 0.1, 0.01
SILOS, ROUNDS = 3, 20
USERS = SILOS * ROUNDS
ASKED = Plan(SILOS, ROUNDS, DIM, Privacy(EPSILON, DELTA), trust="none", bits=FINE)
Formulas = tuple[Callable[[int], float], Callable[[int], float]]  # lambda and beta of t
LARGE = Plan(10, 100, 5, Privacy(1.0, 1e-5), trust="none")  # 1,000 users


# -- numbers by hand --------------------------------------------------------------------------------------------------


def test_shariff_and_sheffets_constants_for_a_thousand_users() -> None:
    """m = 11, sigma = 4 sqrt 11 * 2 ln(4e5), Upsilon = sigma sqrt 22 (4 sqrt 5 + 2 ln 2e5)."""
    made = baseline("shariff-sheffet", LARGE)
    assert (made.silos, made.rounds, made.syncs) == (1, 1000, 1000)
    assert made.protocol.scales == pytest.approx((342.255, 484.0216, 342.255), rel=1e-5)
    upsilon = 342.255 * math.sqrt(22) * (4 * math.sqrt(5) + 2 * math.log(2e5))
    assert made.regulariser == pytest.approx(2 * upsilon, rel=1e-5)
    gamma = 342.255 * math.sqrt(11 / upsilon) * (math.sqrt(5) + math.sqrt(2 * math.log(2e5)))
    inside = 2 * math.log(200) + 5 * math.log(3 + 500 / (5 * upsilon))
    assert made.radius(500) == pytest.approx(math.sqrt(inside) + math.sqrt(3 * upsilon) + gamma, rel=1e-5)


def test_zhengs_constants_for_a_thousand_users() -> None:
    """sigma = 4 sqrt(2 ln 125000) = 19.379; lambda grows with the square root of the users so far."""
    made = baseline("zheng", LARGE)
    assert made.protocol.scales == pytest.approx((19.37922,) * 3, rel=1e-6)
    spread = 4 * math.sqrt(5) + 2 * math.log(2e5)
    gamma = 19.37922 * math.sqrt(400) * spread
    assert made.regulariser_after(400) == pytest.approx(2 * gamma, rel=1e-6)
    log = math.log(1000)
    noise = math.sqrt(3 * gamma) + 19.37922 * math.sqrt(5 * 400 / gamma)
    assert made.radius(400) == pytest.approx(2 * 19.37922 * math.sqrt(5 * log) + noise * 5 * log, rel=1e-6)


def test_chowdhury_and_zhou_hide_a_user_among_a_batch() -> None:
    """1000^0.6 = 63: fifteen batches, of which the last takes in what is left."""
    made = baseline("chowdhury-zhou", LARGE)
    assert made.times == (*range(63, 883, 63), 1000)
    assert np.diff((0, *batches(10_000).times(10_000))).min() == 251
    alone = gaussian_sigma(1.0, 1e-5) * math.sqrt(4.5)
    assert made.protocol.scales.bias == pytest.approx(alone, rel=1e-4)  # 62 others are not enough to hide among
    large = baseline("chowdhury-zhou", LARGE.changed(rounds=1000))
    assert 0.7 * alone < large.protocol.scales.bias < 0.8 * alone
    assert "Among the remaining 250 users, a message is" in str(large.guarantee)


def test_hes_radius_and_growth_for_ten_silos() -> None:
    made = baseline("he", LARGE)
    assert made.rule.limit(7) == pytest.approx(math.log(1.01))
    width = math.sqrt(5 * math.log((1 + 1000 * 100) / 0.01)) + 1
    assert made.radius(3) == made.radius(99) == pytest.approx(1 + (math.sqrt(1.1) + math.sqrt(2)) * width)
    assert not made.guarantee.promised


def test_azize_and_basus_noise_hides_a_reward_exactly() -> None:
    made = baseline("azize-basu", LARGE)
    bias, *covariance = made.protocol.scales
    assert covariance == [0.0, 0.0]
    assert gaussian_epsilon(1 / bias, 1e-5) == pytest.approx(1.0, rel=1e-4)  # one reward moves x y by 1
    phases = 1 + 5 * math.log2(1 + 500 / 5)
    noise = bias * math.sqrt(phases) * (math.sqrt(5) + math.sqrt(2 * math.log(200)))
    free = math.sqrt(2 * math.log(200) + 5 * math.log(1 + 500 / 5)) + 1
    assert made.radius(500) == pytest.approx(free + noise)
    assert "Only rewards are (1, 1e-05)-differentially private" in made.guarantee.statement
    assert not made.guarantee.promised


# -- decisions, line by line ------------------------------------------------------------------------------------------


def linucb(
    made: Plan, users: SameUsers, noise: list[np.ndarray], shift: Callable[[int], float], beta: Callable[[int], float]
) -> np.ndarray:
    """One agent, one user after the other: regret after each. `noise` of prefix k comes with what was released then."""
    W, U = np.zeros((DIM, DIM)), np.zeros(DIM)
    V, theta, width = shift(1) * np.eye(DIM), np.zeros(DIM), beta(0)
    regret, total, syncs = [], 0.0, iter(zip(made.times, noise, strict=True))
    due, added = next(syncs)
    for t in range(1, made.rounds + 1):
        x = users.contexts(t, 0)
        bounds = [a @ theta + width * math.sqrt(a @ np.linalg.solve(V, a)) for a in x]
        a = int(np.argmax(bounds))
        total += (x @ users.theta).max() - users.mean(t, 0, a)
        W, U = W + np.outer(x[a], x[a]), U + x[a] * users.reward(t, 0, a)
        regret.append(total)
        if t == due:
            h, N = unpack(added, DIM)
            V, width = W + N + shift(t) * np.eye(DIM), beta(t)
            theta = np.linalg.solve(V, U + h)
            due, added = next(syncs, (0, added))
    return np.array(regret)


def shariff_sheffet_by_hand(sigma: float) -> Formulas:
    m, tail = 1 + math.ceil(math.log2(USERS)), math.log(2 * USERS / ALPHA)
    upsilon = sigma * math.sqrt(2 * m) * (4 * math.sqrt(DIM) + 2 * tail)
    gamma = sigma * math.sqrt(m / upsilon) * (math.sqrt(DIM) + math.sqrt(2 * tail))

    def beta(t: int) -> float:
        inside = 2 * math.log(2 / ALPHA) + DIM * math.log(3 + t / (DIM * upsilon))
        return math.sqrt(inside) + math.sqrt(3 * upsilon) + gamma

    return lambda t: 2 * upsilon, beta


def zheng_by_hand(sigma: float) -> Formulas:
    log, spread = math.log(USERS), 4 * math.sqrt(DIM) + 2 * math.log(2 * USERS / ALPHA)

    def gamma(t: int) -> float:
        return sigma * math.sqrt(max(t, 1)) * spread

    def beta(t: int) -> float:
        noise = math.sqrt(3 * gamma(t)) + sigma * math.sqrt(DIM * t / gamma(t))
        return 2 * sigma * math.sqrt(DIM * log) + noise * DIM * log

    return lambda t: 2 * gamma(t), beta


@pytest.mark.parametrize("run", [0, 1])
@pytest.mark.parametrize(("name", "by_hand"), [("shariff-sheffet", shariff_sheffet_by_hand), ("zheng", zheng_by_hand)])
def test_an_agent_decides_as_its_algorithm_does(name: str, by_hand: Callable[[float], Formulas], run: int) -> None:
    made, users = baseline(name, ASKED), SameUsers(TASK, run, 1)
    noise = prefix_noise(made, name, run, pooled=True)
    shift, beta = by_hand(made.protocol.scales.off_diagonal)
    expected = linucb(made, users, noise, shift, beta)
    played = engine(made, TASK, run, name).regret[0]
    np.testing.assert_allclose(played, expected, atol=1e-9)
    other = linucb(made, users, noise, shift, lambda t: 0.01 * beta(t))
    assert np.abs(other - expected).max() > 1e-3  # a wrong radius shows


@pytest.mark.parametrize("run", [0, 1])
def test_a_batch_of_shuffled_users_teaches_the_agent_as_lemma_subg_says(run: int) -> None:
    made, users = baseline("chowdhury-zhou", ASKED), SameUsers(TASK, run, 1)
    noise = prefix_noise(made, "cz", run, pooled=True)
    lam = made.regulariser

    def beta(t: int) -> float:
        return math.sqrt(2 * math.log(2 / ALPHA) + DIM * math.log(1 + t / (DIM * lam))) + math.sqrt(lam)

    expected = linucb(made, users, noise, lambda t: lam, beta)
    np.testing.assert_allclose(engine(made, TASK, run, "cz").regret[0], expected, atol=1e-9)


@pytest.mark.parametrize("run", [0, 1])
def test_silos_that_come_alone_decide_and_ask_as_fedlinucb_does(run: int) -> None:
    """He et al.: decide by what was fetched; upload and fetch when the own determinant has grown by 1 + 1/M^2."""
    made, users = baseline("he", ASKED), SameUsers(TASK, run)
    beta = 1 + (math.sqrt(1 + 1 / SILOS) + math.sqrt(2)) * (
        math.sqrt(DIM * math.log((1 + USERS * SILOS**2) / ALPHA)) + 1
    )
    server_V, server_b = np.eye(DIM), np.zeros(DIM)
    V, b = [np.eye(DIM)] * SILOS, [np.zeros(DIM)] * SILOS
    own_W, own_U = [np.zeros((DIM, DIM))] * SILOS, [np.zeros(DIM)] * SILOS
    regret, total, uploads = [], 0.0, 0
    for t in range(1, ROUNDS + 1):
        for i in range(SILOS):
            x, theta = users.contexts(t, i), np.linalg.solve(V[i], b[i])
            a = int(np.argmax([v @ theta + beta * math.sqrt(v @ np.linalg.solve(V[i], v)) for v in x]))
            total += (x @ users.theta).max() - users.mean(t, i, a)
            own_W[i] = own_W[i] + np.outer(x[a], x[a])
            own_U[i] = own_U[i] + x[a] * users.reward(t, i, a)
            if np.linalg.det(V[i] + own_W[i]) > (1 + SILOS**-2) * np.linalg.det(V[i]):
                server_V, server_b, uploads = server_V + own_W[i], server_b + own_U[i], uploads + 1
                own_W[i], own_U[i] = np.zeros((DIM, DIM)), np.zeros(DIM)
                V[i], b[i] = server_V, server_b
        regret.append(total)
    played = engine(made, TASK, run, "he")
    np.testing.assert_allclose(played.regret[0], regret, atol=1e-9)
    assert played.syncs[0] == uploads
    assert SILOS < uploads < USERS  # some ask, and not always


@pytest.mark.parametrize("run", [0, 1])
def test_an_agent_begins_a_phase_when_its_determinant_has_doubled(run: int) -> None:
    """AdaC-OFUL: between phases nothing changes; a new one adds what the last brought, and noise of its own."""
    made, users = baseline("azize-basu", ASKED), SameUsers(TASK, run, 1)
    protocol, source = made.protocol.pooled(), runs_noise(SEED, (run,), "ab")
    sigma = made.protocol.scales.bias
    V, S, known_V, theta, phases = np.eye(DIM), np.zeros(DIM), np.eye(DIM), np.zeros(DIM), 0
    spread = sigma * (math.sqrt(DIM) + math.sqrt(2 * math.log(2 / ALPHA)))

    def radius(t: int) -> float:
        free = math.sqrt(2 * math.log(2 / ALPHA) + DIM * math.log(1 + t / DIM)) + 1
        return free + spread * math.sqrt(1 + DIM * math.log2(1 + t / DIM))

    beta, regret, total = radius(0), [], 0.0
    for t in range(1, USERS + 1):
        x = users.contexts(t, 0)
        a = int(np.argmax([v @ theta + beta * math.sqrt(v @ np.linalg.solve(known_V, v)) for v in x]))
        total += (x @ users.theta).max() - users.mean(t, 0, a)
        V, S = V + np.outer(x[a], x[a]), S + x[a] * users.reward(t, 0, a)
        regret.append(total)
        if np.linalg.det(V) > 2 * np.linalg.det(known_V):
            drawn = protocol.draw(source, (1, 1))[0, 0] * 2.0**-protocol.release_bits
            S, phases = S + drawn[:DIM], phases + 1
            known_V, theta, beta = V, np.linalg.solve(V, S), radius(t)
    played = engine(made, TASK, run, "ab")
    np.testing.assert_allclose(played.regret[0], regret, atol=1e-9)
    assert played.syncs[0] == phases
    assert 3 < phases < USERS / 2


# -- promises ---------------------------------------------------------------------------------------------------------


def moved(made: Plan) -> float:
    """The furthest that one user moves one release, in units of its noise, by a search over pairs of unit vectors."""
    bias, diagonal, off_diagonal = made.protocol.scales
    furthest = 0.0
    for angle in np.linspace(0, math.pi, 721):
        for turn in np.linspace(0, math.pi, 37):
            x, z = (np.array([math.cos(a), math.sin(a)]) for a in (turn, turn + angle))
            gap = np.outer(x, x) - np.outer(z, z)
            parts = (x - z) / bias, np.diag(gap) / diagonal, gap[0, 1] / off_diagonal
            furthest = max(furthest, math.sqrt(sum(float(np.sum(np.square(part))) for part in parts)))
    return furthest


@pytest.mark.parametrize("name", ["shariff-sheffet", "zheng"])
def test_the_noise_of_a_paper_keeps_the_promise_with_room_and_the_least_noise_without(name: str) -> None:
    for calibration, spare in (("literature", True), ("exact", False)):
        made = baseline(name, LARGE, calibration)  # type: ignore[arg-type]
        spent = gaussian_epsilon(moved(made) * made.encoder.column_norm, 1e-5)
        assert made.guarantee.promised
        assert spent <= 1.0
        assert (spent < 0.5) == spare
        if not spare:
            assert spent == pytest.approx(1.0, rel=2e-3)


def test_a_papers_noise_that_is_not_enough_promises_nothing() -> None:
    made = baseline("zheng", LARGE.changed(privacy=Privacy(60.0, 0.5)))
    assert gaussian_epsilon(moved(made), 0.5) > 60
    assert "the theorem's noise gives an exact epsilon of" in made.guarantee.statement


VERDICTS = {
    "shariff-sheffet": "holds",
    "zheng": "holds",
    "chowdhury-zhou": "holds",
    "azize-basu": "broken",  # contexts are in the clear, and an audit changes a context
    "he": "broken",
}


def test_every_baseline_has_an_audit_and_its_verdict() -> None:
    assert set(VERDICTS) == set(BASELINES)
    for name, verdict in VERDICTS.items():
        trials = 200 if name == "chowdhury-zhou" else 1_000
        assert audit(case(name, 1.0, 1e-5), trials, seed=0).verdict == verdict, name


@pytest.mark.parametrize(("name", "factor"), [("shariff-sheffet", 0.02), ("zheng", 0.1), ("chowdhury-zhou", 0.05)])
def test_an_audit_notices_too_little_noise(name: str, factor: float) -> None:
    assert audit(scaled(case(name, 1.0, 1e-5), factor), 300, seed=0).verdict == "broken"


def test_azize_and_basu_hide_a_reward_and_not_a_context() -> None:
    made = baseline("azize-basu", LARGE.changed(silos=1, rounds=8, dim=3)).changed(schedule=every(2))
    x = np.array([0.6, 0.8, 0.0])
    audited = case_of("rewards", made, (1.0, 1e-5), 20_000)

    def between(pair: tuple[User, User]) -> object:
        return replace(audited, games=(calendar_game(made, 1, neighbours(made, 1, pair)),))

    rewards = audit(between((User(x, 1.0), User(x, 0.0))), seed=0)  # type: ignore[arg-type]
    assert rewards.verdict == "nothing claimed"  # of a person as a whole; not broken at the budget either
    assert rewards.epsilon_lower > 0.1  # the noise is not larger than it need be
    contexts = audit(between((User(x, 1.0), User(x[::-1].copy(), 1.0))), seed=0)  # type: ignore[arg-type]
    assert contexts.verdict == "broken"
