"""A part of theta that is each silo's own: a release to itself, what it spends, and the model that follows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedbandit import Plan, Privacy, adaptive, every
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions, unpack
from fedbandit.knowledge import NONE_YET, OwnData, local_knowledge, nothing_public, personal_model, public_model
from fedbandit.privacy import ledger
from fedbandit.privacy.accounting import compose_gdp, gaussian_sigma
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.privacy.spending import spent
from fedbandit.protocol import composition, mechanisms
from fedbandit.protocol.personal import own_entries
from fedbandit.protocol.trusts.secure_sum import PersonalSecureSum, SecureSumProtocol


def plan_of(**fields: Any) -> Plan:
    given = {"silos": 4, "rounds": 40, "dim": 3, "privacy": Privacy(1.0, 1e-5), "schedule": every(4), "personal": (0,)}
    return Plan(**{**given, **fields})


def own_protocol(plan: Plan) -> PersonalSecureSum:
    protocol = plan.protocol
    assert isinstance(protocol, PersonalSecureSum)
    return protocol


@pytest.mark.parametrize("visited", [1, 2])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_both_releases_together_spend_the_budget(share: float, visited: int) -> None:
    """mu of the sum and of the silos' own releases, worked out from the noise that is drawn."""
    plan = plan_of(personal_share=share, privacy=Privacy(1.0, 1e-5, silos_per_user=visited))
    request, protocol = plan.request, own_protocol(plan)
    moved = request.reach * request.shift.total
    total = protocol.scales.diagonal * math.sqrt(plan.silos - 1)  # one colludes
    shared, own = visited * moved / total, math.sqrt(visited) * moved / protocol.own_scales.diagonal
    budget = 1 / gaussian_sigma(1.0, 1e-5)
    assert compose_gdp(shared, own) == pytest.approx(budget, rel=1e-6)
    assert own**2 == pytest.approx(share * budget**2, rel=1e-6)
    assert plan.noise_std == pytest.approx(
        plan.changed(personal=(), personal_share=0.2).noise_std / math.sqrt(1 - share)
    )


def test_the_ledger_adds_up_to_the_promise() -> None:
    plan, entries, head = plan_of(), [], ledger.GENESIS
    for sync in range(10):
        event = plan.release("here", 1, sync)
        assert event is not None
        entries.append(ledger.append(head, event))
        head = entries[-1].hash
    assert spent(entries, mechanisms.encoder).epsilon == pytest.approx(1.0, rel=1e-9)
    cost = entries[0].event.cost
    assert isinstance(cost, ledger.Gaussian)
    alone = plan.request.mu(cost.sigma, joint_silos=True)  # too small a sigma for the shared releases by themselves
    assert alone > 1 / gaussian_sigma(1.0, 1e-5)
    said = dict(plan.guarantee.answers)["If parties collude"]
    own = replace(cost, sigma=cost.own_sigma)
    colluding = [entry._replace(event=replace(entry.event, cost=own)) for entry in entries]
    assert f"{spent(colluding, mechanisms.encoder).epsilon:.3f}"[:4] in said


def test_an_own_release_holds_its_numbers_and_no_others_with_noise_of_its_own() -> None:
    """Accepts the noise of the plan to 4 standard errors, and rejects 1.3 times as much; nothing is shared with the
    noise of the sums."""
    plan, trials, rng = plan_of(), 4_000, np.random.default_rng(0)
    protocol, mask = own_protocol(plan), own_entries(3, (0,))
    batch = rng.integers(0, 2**plan.bits, (1, 4, protocol.width))
    whole = np.broadcast_to(batch, (trials, 4, protocol.width))
    state = composition.init(protocol, (trials,))
    _, transcript = composition.send(protocol, state, whole, SimulatedNoise(rng))
    own = transcript.sent[2]
    assert mask.tolist() == [True, False, False, True, True, True, False, False, False]
    assert not own[..., ~mask].any()
    encoded = batch * 2**plan.encoder.fraction_bits
    noise = (own - encoded)[..., mask] / protocol.own_drawn_scales[mask]
    error = 4 / np.sqrt(2 * noise.size)
    assert abs(noise.mean()) < 4 / np.sqrt(noise.size)
    assert abs(noise.std() - 1) < error
    assert abs(noise.std() / 1.3 - 1) > error
    total = (protocol.total(transcript.held) - encoded.sum(axis=-2))[..., mask]
    correlation = np.corrcoef(total[:, 0], noise[:, 0, 0])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(trials)


def test_what_is_decoded_from_the_sums_is_what_it_was() -> None:
    """The release to itself leaves the shared one alone: same shares, same totals, given the same noise."""
    plan = plan_of()
    protocol, rng = own_protocol(plan), np.random.default_rng(1)
    usual = SecureSumProtocol(*(getattr(protocol, name) for name in ("encoder", "scales", "dim", "bits", "silos")))
    batches = rng.integers(0, 2**plan.bits, (3, 1, 4, protocol.width))
    one, other = composition.init(protocol, (1,)), composition.init(usual, (1,))
    for batch in batches:  # noise is drawn for the shared release first
        one, _ = composition.send(protocol, one, batch, SimulatedNoise(np.random.default_rng(5)))
        other, _ = composition.send(usual, other, batch, SimulatedNoise(np.random.default_rng(5)))
    np.testing.assert_array_equal(np.stack(one.silos.memory), np.stack(other.silos.memory))
    assert protocol.sent_parts == usual.sent_parts == 2
    assert plan.bytes_per_silo == plan.changed(personal=()).bytes_per_silo


def _sums(theta: Any, plan: Plan, visits: int, rng: np.random.Generator) -> Any:
    x = rng.standard_normal((visits, plan.dim))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    y = np.clip(0.5 + x @ theta / 2 + 0.1 * rng.standard_normal(visits), 0, 1)
    return contributions(x, y, plan.bits, 0.5).sum(axis=0) * 2.0**-plan.bits


def test_a_silos_own_part_is_learnt_and_the_shared_part_left_alone() -> None:
    """With little noise (a large epsilon) theta of each silo comes out, to a few standard errors of its own visits."""
    plan, rng = plan_of(privacy=Privacy(5_000.0, 1e-5), centre=0.5, confidence="practical"), np.random.default_rng(2)
    shared = np.array([0.0, 0.6, -0.3])
    thetas = shared + np.array([[0.6, 0, 0], [-0.6, 0, 0], [0.3, 0, 0], [-0.3, 0, 0]])
    own = np.stack([_sums(theta, plan, 20_000, rng) for theta in thetas])
    public = public_model(plan, 9, own.sum(axis=0), 40)
    masked = np.where(own_entries(3, (0,)), own, 0.0)
    served = personal_model(plan, public, masked).model
    np.testing.assert_allclose(served.theta[:, 0], thetas[:, 0] / 2, atol=0.02)
    np.testing.assert_array_equal(served.theta[:, 1:], np.tile(public.model.theta[1:], (4, 1)))
    np.testing.assert_array_equal(served.root[2], public.model.root)


def test_noise_that_drowns_the_data_leaves_the_public_model() -> None:
    plan, rng = plan_of(privacy=Privacy(0.01, 1e-5)), np.random.default_rng(3)
    public = public_model(plan, 9, _sums(np.array([0.5, 0.5, 0.0]), plan, 50, rng) * 4, 40)
    own = np.where(own_entries(3, (0,)), _sums(np.array([0.9, 0.1, 0.0]), plan, 50, rng), 0.0)[None]
    served = personal_model(plan, public, own).model
    assert abs(served.theta[0, 0] - public.model.theta[0]) < 1e-3
    before = nothing_public(plan)
    assert before.sync == NONE_YET
    np.testing.assert_array_equal(personal_model(plan, before, own).model.theta[0], before.model.theta)


def test_what_others_tell_of_their_own_part_says_nothing_here() -> None:
    """A silo's own data decide about its own weights; of the others' sums it takes what they say about the shared ones,
    which is what is left when their own weights are free: by least squares over both, written out."""
    plan, rng = plan_of(privacy=Privacy(50_000.0, 1e-5), centre=0.5), np.random.default_rng(4)
    mine, theirs = (_sums(theta, plan, 5_000, rng) for theta in (np.array([0.6, 0.5, 0.2]), np.array([-0.6, 0.5, 0.2])))
    public = public_model(plan, 9, mine + theirs, 40)
    on_grid = np.rint(mine * 2.0**plan.bits).astype(np.int64)
    own = OwnData(on_grid, np.array(400.0), np.array(5_000), on_grid)
    known, alike = local_knowledge(plan, own, public), local_knowledge(plan.changed(personal=()), own, public)
    theta, mixed = (np.linalg.solve(one.precision, one.bias) for one in (known, alike))
    bias, covariance = unpack(np.stack([mine, theirs]), 3)
    both = np.zeros((4, 4))  # weights: mine, the two shared ones, theirs
    told = np.zeros(4)
    for silo, places in enumerate(([0, 1, 2], [3, 1, 2])):
        both[np.ix_(places, places)] += covariance[silo]
        told[places] += bias[silo]
    np.testing.assert_allclose(theta, np.linalg.solve(both, told)[:3], atol=2e-3)
    assert abs(theta[0] - 0.3) < 0.02
    assert abs(mixed[0]) < 0.1  # taken for one theta, they would cancel


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"personal": (3,)}, "personal"),
        ({"personal": (0, 0)}, "personal"),
        ({"personal": (0, 1, 2)}, "personal"),
        ({"personal": (True,)}, "personal"),
        ({"personal": 1}, "personal"),
        ({"personal": (), "personal_share": 0.3}, "personal_share"),
        ({"personal_share": 1.0}, "personal_share"),
        ({"trust": "silo"}, "personal"),
        ({"trust": "central"}, "personal"),
        ({"acting": "eager"}, "personal"),
        ({"schedule": adaptive(2.0, private=True), "colluding": 1}, "personal"),
    ],
    ids=str,
)
def test_what_cannot_be_personal_says_so(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ArgumentError) as error:
        _ = plan_of(**fields).guarantee
    assert error.value.field == field


def test_a_feature_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(ArgumentError, match=r"^personal must be numbers of features, 0 to 2, got 3$"):
        plan_of(personal=(3,))


def test_a_plan_reads_back_and_says_what_it_does() -> None:
    plan = plan_of(personal=(2, 0), personal_share=0.25)
    assert Plan.from_dict(plan.as_dict()) == plan
    assert {"personal", "personal_share"}.isdisjoint(plan.changed(personal=(), personal_share=0.2).as_dict())
    said = str(plan.guarantee)
    assert "These releases spend 25% of mu^2" in said
    assert "the public model and what their silo has released to itself" in said
    endless = plan.changed(forget=0.8, endless=True)
    assert endless.guarantee.promised
