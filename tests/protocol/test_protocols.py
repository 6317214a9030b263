"""R, S and A of every trust model: exact without noise, and with it the promised law, number by number."""

from __future__ import annotations

import io
import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from fedbandit.bandit.statistics import Scales, contributions, is_diagonal, width
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol import composition, mechanisms
from fedbandit.protocol import trust as trust_models
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.trusts.secure_sum import SecureSumProtocol
from fedbandit.protocol.trusts.silo import DecodedSilo, SiloProtocol
from fedbandit.schedule import every
from tests.statistical import assert_std, covariance_verdict, mean_verdict, std_verdict

SILOS, BATCH, SYNCS, DIM, BITS = 3, 4, 6, 2, 20
EPSILON, DELTA = 1.0, 1e-3
SAMPLES = 1500


def plan(trust: str, mechanism: str = "toeplitz", **fields: object) -> Plan:
    privacy = None if trust == "none" else Privacy(EPSILON, DELTA)
    return Plan(SILOS, BATCH * SYNCS, DIM, privacy, trust, mechanism, every(BATCH), bits=BITS, **fields)  # type: ignore[arg-type]


GAUSSIAN = {
    "local": plan("local", "batches"),
    "local, Zheng et al.": plan("local", "batches", calibration="literature"),
    "shuffled-users": plan("shuffled-users", "batches"),
    "silo, tree": plan("silo", "tree"),
    "silo, toeplitz": plan("silo"),
    "silo, blt": plan("silo", "blt"),
    "silo, batches": plan("silo", "batches"),
    "silo, the bias with less noise": plan("silo", ratio=4.0),
    "silo, theorem": plan("silo", "tree", calibration="paper"),
    "silo, published": plan("silo", "tree", calibration="published"),
    "P_alt": plan("silo", "tree", decode_at="silo"),
    "P_alt, batches": plan("silo", "batches", decode_at="silo"),
    "shuffle": plan("shuffle", "tree", calibration="published"),
    "secure-sum": plan("secure-sum"),
    "secure-sum, small cohort": plan("secure-sum", "tree", cohort=2),
    "secure-sum, nobody colluding": plan("secure-sum", colluding=0),
    "central": plan("central"),
    "central, Shariff & Sheffet": plan("central", "tree", calibration="literature", ratio=2.0),
}
ALL = {
    **GAUSSIAN,
    "none": plan("none"),
    "public-contexts": plan("public-contexts", "batches"),
    "vector-sum": plan("vector-sum", "tree", calibration="published"),
    "vector-sum, theorem": plan("vector-sum", "tree", calibration="paper"),
}


def points(lead: tuple[int, ...], silos: int = SILOS, users: int = BATCH, seed: int = 0) -> np.ndarray:
    """Users' packed contributions, SYNCS batches: (SYNCS, *lead, silos, users, width)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SYNCS, *lead, silos, users, DIM))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return contributions(x, rng.random(x.shape[:-1]), BITS)


def run(protocol: Protocol, batches: np.ndarray, noise: SimulatedNoise) -> tuple[np.ndarray, list[Message]]:
    """Decoded prefix sums (SYNCS, *lead, width), and every sync's messages."""
    *lead, silos = batches.shape[1:-2]
    state = composition.init(protocol, tuple(lead), silos)
    prefixes, sent = [], []
    for users in batches:
        batch = protocol.collect(state.silos, users, noise)
        state, transcript = composition.send(protocol, state, batch, noise)
        state = composition.receive(protocol, state, transcript)
        prefixes.append(state.prefix)
        sent.append(transcript.sent)
    return np.stack(prefixes), sent


def exact_prefixes(batches: np.ndarray) -> np.ndarray:
    return np.cumsum(batches.sum(axis=(-2, -3)), axis=0) * 2.0**-BITS


def error_samples(name: str, pooled: bool = False, seed: int = 1) -> np.ndarray:
    """Decoded prefix sums minus the true ones: (SAMPLES, SYNCS, width)."""
    protocol = GAUSSIAN[name].protocol
    batches = points((SAMPLES,), seed=seed)
    if pooled:
        protocol, batches = protocol.pooled(), batches.reshape(SYNCS, SAMPLES, 1, SILOS * BATCH, -1)
    prefixes, _ = run(protocol, batches, SimulatedNoise(np.random.default_rng(seed)))
    return np.swapaxes(prefixes - exact_prefixes(batches), 0, 1)


def promised_total(name: str) -> np.ndarray:
    """Deviation of one release of all silos together, in every packed number, by the formulas on paper."""
    one_user = math.sqrt(4.5) + 2 * math.sqrt(DIM + DIM**2) * 2.0 ** -(BITS + 1)
    sigma = gaussian_sigma(EPSILON, DELTA) * one_user
    column = float(np.linalg.norm(GAUSSIAN[name].encoder.coefficients, axis=0).max())
    levels, whole = 1 + math.log2(SYNCS), 1 + math.floor(math.log2(SYNCS))
    exact = np.where(is_diagonal(DIM), sigma, sigma / math.sqrt(2))
    exact[:DIM] = sigma
    flat, symmetric = np.ones(width(DIM)), exact / sigma  # the latter is (Z + Z') / 2 off the diagonal
    if name == "silo, the bias with less noise":  # sqrt(2 + 2 s + s^2/2) for s <= 2, else sqrt(4 s), s = 4
        shift = math.sqrt(16) + 2 * math.sqrt(4 * DIM + DIM**2) * 2.0 ** -(BITS + 1)
        exact = np.where(is_diagonal(DIM), 1.0, math.sqrt(0.5)) * gaussian_sigma(EPSILON, DELTA) * shift
        exact[:DIM] = gaussian_sigma(EPSILON, DELTA) * shift / 2
    layout = np.where(is_diagonal(DIM), math.sqrt(2), 1.0)
    special: dict[str, np.ndarray] = {
        "local": math.sqrt(SILOS * BATCH) * exact,
        "local, Zheng et al.": math.sqrt(SILOS * BATCH * 32 * math.log(1.25 / DELTA)) / EPSILON * flat,
        "shuffled-users": math.sqrt(SILOS * BATCH) * exact,  # twelve are no crowd to hide in
        "silo, theorem": math.sqrt(SILOS * 8 * levels * (math.log(2 / DELTA) + EPSILON)) / EPSILON * flat,
        "silo, published": math.sqrt(SILOS * whole * (math.log(1 / DELTA) + EPSILON)) / EPSILON * symmetric,
        "shuffle": published_shuffle(whole) * math.sqrt(SILOS) * symmetric,
        "secure-sum": column * exact * math.sqrt(3 / 2),  # one of three knows its own: each adds half of the variance
        "secure-sum, small cohort": column * exact * math.sqrt(3),  # one of two: each adds all of it
        "secure-sum, nobody colluding": column * exact,
        "central": column * exact,
        # m = 1 + ceil(log2 6) levels, L^2 = 2; sqrt 2 times as much on the diagonal
        "central, Shariff & Sheffet": 4 * math.sqrt(4) * 2 * math.log(4 / DELTA) / EPSILON * layout,
    }
    return special.get(name, math.sqrt(SILOS) * column * exact)


def published_shuffle(levels: int) -> float:
    """sigma_0 of the published simulation of amplification."""
    logs = math.log(1 / DELTA) * math.log(1 + levels / (DELTA * BATCH * SYNCS)) * math.log(SILOS * levels / DELTA)
    return math.sqrt(levels * logs / SILOS) / EPSILON


def promised_correlation(name: str) -> np.ndarray:
    """B B^T: the covariance of prefix sums over syncs at unit release noise."""
    decoder = GAUSSIAN[name].encoder.decoder
    return decoder @ decoder.T


def test_every_trust_model_is_covered() -> None:
    assert {planned.trust for planned in ALL.values()} == set(trust_models.names())


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("vector-sum")])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_without_noise_every_trust_decodes_the_exact_prefix_sums(
    name: str, lead: tuple[int, ...], no_noise: SimulatedNoise
) -> None:
    batches = points(lead)
    prefixes, _ = run(ALL[name].protocol, batches, no_noise)
    assert prefixes.shape == (SYNCS, *lead, width(DIM))
    rounded = ALL[name].encoder.rounding_units
    np.testing.assert_allclose(prefixes, exact_prefixes(batches), rtol=0, atol=1e-9 if rounded == 0 else 1e-6)


@pytest.mark.parametrize("pooled", [False, True], ids=["silo by silo", "pooled"])
@pytest.mark.parametrize("name", GAUSSIAN)
def test_released_noise_has_the_promised_deviation_in_every_number(name: str, pooled: bool) -> None:
    errors = error_samples(name, pooled)
    deviations = np.sqrt(np.diag(promised_correlation(name)))[:, None] * promised_total(name)
    assert_std(errors.astype(float), deviations)
    assert mean_verdict(errors, 0.0, deviations).accepted
    np.testing.assert_allclose(GAUSSIAN[name].noise_law.bias, deviations[:, 0], rtol=1e-6)
    np.testing.assert_allclose(GAUSSIAN[name].noise_law.diagonal, deviations[:, DIM], rtol=1e-6)
    np.testing.assert_allclose(GAUSSIAN[name].noise_law.off_diagonal, deviations[:, DIM + 1], rtol=1e-6)
    assert GAUSSIAN[name].noise_std == pytest.approx(deviations[:, 0].max(), rel=1e-6)


@pytest.mark.parametrize("pooled", [False, True], ids=["silo by silo", "pooled"])
@pytest.mark.parametrize("name", GAUSSIAN)
def test_released_noise_has_the_promised_correlation_over_syncs_and_none_over_numbers(name: str, pooled: bool) -> None:
    errors = error_samples(name, pooled, seed=2)
    correlation, totals = promised_correlation(name), promised_total(name)
    for entry in range(width(DIM)):
        promised = correlation * totals[entry] ** 2
        verdict = covariance_verdict(errors[:, :, entry], promised)
        assert verdict.accepted, verdict.detail
        assert not covariance_verdict(errors[:, :, entry], promised * 1.3**2).accepted
        assert not covariance_verdict(errors[:, :, entry], promised / 1.3**2).accepted
        assert not covariance_verdict(
            errors[:, :, entry], np.diag(np.diag(promised))
        ).accepted  # fresh noise per prefix
    last = np.diag(correlation[-1, -1] * totals**2)
    assert covariance_verdict(errors[:, -1], last).accepted
    mixed = np.sqrt(np.outer(np.diag(last), np.diag(last)))  # a third of the noise shared by all numbers
    assert not covariance_verdict(errors[:, -1], 2 / 3 * last + 1 / 3 * mixed).accepted


@pytest.mark.parametrize("name", ["silo, tree", "silo, toeplitz", "silo, theorem", "shuffle", "secure-sum"])
def test_each_silo_adds_its_own_noise_to_each_release(name: str) -> None:
    planned, rng = GAUSSIAN[name], np.random.default_rng(4)
    batches = np.zeros((SYNCS, SAMPLES, SILOS, 1, width(DIM)), dtype=np.int64)
    _, sent = run(planned.protocol, batches, SimulatedNoise(rng))
    noise = np.stack([sum(array.view(np.int64) for array in messages) for messages in sent], axis=1)
    units = 2.0**planned.protocol.release_bits
    per_silo = planned.protocol.scales.packed(DIM)
    np.testing.assert_allclose(per_silo * math.sqrt(SILOS), promised_total(name), rtol=1e-6)
    assert_std(noise[:, [0, -1]] / units, per_silo)
    flat = (noise[:, :, :, 0] / units).reshape(SAMPLES, -1)  # syncs and silos, one number: all independent
    assert covariance_verdict(flat, np.eye(flat.shape[1]) * per_silo[0] ** 2).accepted


def test_local_noise_is_each_users_own() -> None:
    """One user alone already carries the whole noise, and the silo adds none."""
    protocol = GAUSSIAN["local"].protocol
    noise = SimulatedNoise(np.random.default_rng(6))
    users = np.zeros((SAMPLES, 1, width(DIM)), dtype=np.int64)
    state = protocol.init((SAMPLES,))
    batch = protocol.collect(state, users, noise)
    assert_std(batch.astype(np.float64) * 2.0**-BITS, promised_total("local") / math.sqrt(SILOS * BATCH))
    np.testing.assert_array_equal(protocol.release(state, batch, noise)[1][0], batch)


def test_central_noise_is_drawn_once_by_the_server() -> None:
    protocol, batches = GAUSSIAN["central"].protocol, points((2,))
    noise = SimulatedNoise(np.random.default_rng(6))
    state = protocol.init((2, SILOS))
    _, (sent,) = protocol.release(state, batches[0].sum(axis=-2), noise)
    np.testing.assert_array_equal(sent, batches[0].sum(axis=-2) * 2**protocol.encoder.fraction_bits)
    (mixed,) = protocol.mix((sent,), noise)
    assert mixed.shape == (2, 1, width(DIM))
    assert (mixed[:, 0] != sent.sum(axis=1)).all()


def test_a_shuffler_permutes_uniformly_and_keeps_every_message() -> None:
    protocol, noise = GAUSSIAN["shuffle"].protocol, SimulatedNoise(np.random.default_rng(8))
    messages = np.arange(3)[:, None] * np.ones((1, width(DIM)), dtype=np.int64)
    orders = Counter(tuple(protocol.mix((messages,), noise)[0][:, 0].tolist()) for _ in range(6000))
    assert set(orders) == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}
    # 6000 throws into 6 cells: 1000 each, deviation 29; 6 deviations allow for a fair one
    assert max(abs(count - 1000) for count in orders.values()) < 6 * math.sqrt(6000 / 6 * 5 / 6)


def test_p_alt_sends_what_the_server_of_p_would_decode() -> None:
    batches = points((5,))
    p, p_alt = GAUSSIAN["silo, tree"].protocol, GAUSSIAN["P_alt"].protocol
    assert isinstance(p, SiloProtocol)
    assert isinstance(p_alt, DecodedSilo)
    decoded, _ = run(p, batches, SimulatedNoise(np.random.default_rng(3)))
    directly, sent = run(p_alt, batches, SimulatedNoise(np.random.default_rng(3)))
    np.testing.assert_array_equal(decoded, directly)
    np.testing.assert_array_equal(sent[-1][0].sum(axis=-2) * 2.0**-BITS, directly[-1])


def test_p_alt_needs_whole_numbers_to_decode_with() -> None:
    with pytest.raises(ValueError, match=r"^decode_at must be 'analyzer' unless the mechanism decodes with whole"):
        plan("silo", "toeplitz", decode_at="silo")


@pytest.mark.parametrize("name", ALL)
def test_messages_are_plain_integer_arrays_one_row_per_silo(name: str) -> None:
    parts = ALL[name].protocol.parts
    _, sent = run(ALL[name].protocol, points((2,)), SimulatedNoise(np.random.default_rng(0)))
    for messages in sent:
        assert isinstance(messages, tuple)
        assert len(messages) == len(parts)
        for array, part in zip(messages, parts, strict=True):
            assert array.dtype == part.dtype
            assert array.dtype in (np.int64, np.uint64)
            assert array.shape == (2, SILOS, width(DIM))
            again = np.frombuffer(array.tobytes(), dtype=array.dtype).reshape(array.shape)
            np.testing.assert_array_equal(array, again)


def written_and_read(state: Stream) -> Stream:
    file = io.BytesIO()
    np.savez(file, *state.memory, done=state.done)
    file.seek(0)
    data = np.load(file, allow_pickle=False)
    return Stream(int(data["done"]), tuple(data[f"arr_{i}"] for i in range(len(state.memory))))


@pytest.mark.parametrize("name", ALL)
def test_states_survive_a_round_trip_to_disk_bit_for_bit(name: str) -> None:
    protocol, batches = ALL[name].protocol, points((2,))

    def play(through_disk: bool) -> tuple[np.ndarray, list[Message]]:
        noise = SimulatedNoise(np.random.default_rng(5))
        state = composition.init(protocol, (2,))
        prefixes, sent = [], []
        for users in batches:
            batch = protocol.collect(state.silos, users, noise)
            state, transcript = composition.send(protocol, state, batch, noise)
            state = composition.receive(protocol, state, transcript)
            if through_disk:
                silos, analyzer = written_and_read(state.silos), written_and_read(state.analyzer)
                state = state._replace(silos=silos, analyzer=analyzer)
            prefixes.append(state.prefix)
            sent.append(transcript.sent)
        return np.stack(prefixes), sent

    (stayed, stayed_sent), (returned, returned_sent) = play(False), play(True)
    assert stayed.tobytes() == returned.tobytes()
    for before, after in zip(stayed_sent, returned_sent, strict=True):
        assert [array.tobytes() for array in before] == [array.tobytes() for array in after]


ABSENCES = [(0,), (2,), (1, 2), (0, 3, 4), (0, 1, 2, 3, 4), (4, 6), (1, 3, 5)]
SILO_KINDS: list[tuple[type[Protocol], str]] = [
    *((SiloProtocol, name) for name in mechanisms.names()),
    (DecodedSilo, "tree"),
    (DecodedSilo, "batches"),
]


def made_of(kind: type[Protocol], mechanism: str, syncs: int = 8) -> Protocol:
    """A protocol of two silos without noise, of packed statistics of five numbers."""
    return kind(mechanisms.encoder(mechanism, syncs), Scales.flat(0.0), DIM, BITS, 2)


@pytest.mark.parametrize("missed", ABSENCES)
@pytest.mark.parametrize("mechanism", mechanisms.names())
def test_catching_up_makes_the_prefix_what_it_would_have_been(mechanism: str, missed: tuple[int, ...]) -> None:
    """Two silos, one misses some syncs: wherever it delivers, the server's prefix is that of two that never left."""
    protocol = made_of(SiloProtocol, mechanism)
    rng = np.random.default_rng(1)
    present, away = rng.integers(-(2**40), 2**40, (2, 8, 5))  # noisy releases, drawn at every tick
    together, alone = protocol.init_analyzer(), protocol.init_analyzer()
    arrived: dict[int, Message] = {}
    for k in range(8):
        alone, wanted = protocol.decode(alone, (np.stack([present[k], away[k]]),))
        messages = [present[k]]
        if k not in missed:
            arrived[k] = protocol.outgoing([(release,) for release in away[: k + 1]], dict(arrived))
            assert arrived[k][0].dtype == np.int64
            messages.append(arrived[k][0])
        together, got = protocol.decode(together, (np.stack(messages),))
        if k not in missed:
            np.testing.assert_allclose(got * 2.0**BITS, wanted * 2.0**BITS, rtol=0, atol=1e-9 * 2**43)
        else:  # what is missing is missed until then
            assert np.abs(got - wanted).max() > 1


@pytest.mark.parametrize(("kind", "mechanism"), [*SILO_KINDS, (SecureSumProtocol, "tree")])
def test_a_silo_that_never_missed_sends_its_own_releases(kind: type[Protocol], mechanism: str) -> None:
    protocol = made_of(kind, mechanism)
    releases = [(release,) for release in np.random.default_rng(1).integers(-1000, 1000, (8, 5))]
    arrived: dict[int, Message] = {}
    for k in range(8):
        arrived[k] = protocol.outgoing(releases[: k + 1], dict(arrived))
        np.testing.assert_array_equal(arrived[k][0], releases[k][0])


@pytest.mark.parametrize("kind", [DecodedSilo, SecureSumProtocol])
def test_elsewhere_a_silo_that_was_away_sends_what_it_drew_and_nothing_of_what_it_missed(kind: type[Protocol]) -> None:
    protocol = made_of(kind, "tree")
    releases = [(release,) for release in np.random.default_rng(1).integers(-1000, 1000, (8, 5))]
    assert not protocol.waits
    for k in range(8):
        assert protocol.outgoing(releases[: k + 1], {})[0] is releases[k][0]


@pytest.mark.parametrize("mechanism", mechanisms.names())
def test_kept_weights_are_what_the_analyzer_sees_of_an_absent_silo(mechanism: str) -> None:
    protocol, syncs = made_of(SecureSumProtocol, mechanism), 8
    encoder = protocol.encoder
    for count in (0, 1, 2, 5):
        for missed in combinations(range(syncs), count):
            received = encoder.coefficients.copy()
            received[list(missed)] = 0.0
            seen = encoder.decoder @ received  # weight of each batch in each prefix
            for k in range(syncs):
                weights = protocol.kept_weights(missed, k)
                np.testing.assert_allclose(weights, seen[k, : k + 1], rtol=0, atol=1e-12)
                assert weights.min() >= -1e-12
                assert weights.max() <= 1 + 1e-12
                if not missed:
                    np.testing.assert_allclose(weights, 1.0)


@pytest.mark.parametrize("missed", [(), *ABSENCES, (5, 6, 7)])
@pytest.mark.parametrize(("kind", "mechanism"), SILO_KINDS)
def test_a_silo_that_catches_up_keeps_the_weights_that_it_says(
    kind: type[Protocol], mechanism: str, missed: tuple[int, ...], no_noise: SimulatedNoise
) -> None:
    """Each batch is a unit vector of its own, so that the server's prefix sum shows the weight of every batch."""
    protocol = made_of(kind, mechanism)
    state, analyzer = protocol.init(), protocol.init_analyzer()
    drawn: list[Message] = []
    arrived: dict[int, Message] = {}
    for k in range(8):
        batch = np.eye(1, 5, k, dtype=np.int64)[0] * 2**35  # batches after the fifth are empty
        state, message = protocol.release(state, batch, no_noise)
        drawn.append(message)
        if k in missed:
            analyzer, prefix = protocol.decode(analyzer, (np.zeros((1, 5), dtype=np.int64),))
        else:
            arrived[k] = protocol.outgoing(drawn, dict(arrived))
            analyzer, prefix = protocol.decode(analyzer, (arrived[k][0][None],))
        weights = protocol.kept_weights(missed, k)
        assert len(weights) == k + 1
        np.testing.assert_allclose(prefix[: k + 1] * 2.0 ** (BITS - 35), weights[:5], rtol=0, atol=1e-8)
        if k not in missed:
            np.testing.assert_allclose(weights, 1.0)


def test_the_tests_of_noise_reject_what_is_wrong(noise: SimulatedNoise) -> None:
    """Two mistakes that were made before: noise not divided over silos, and noise added to prefixes, not releases."""
    errors = error_samples("secure-sum")
    deviations = np.sqrt(np.diag(promised_correlation("secure-sum")))[:, None] * promised_total("secure-sum")
    assert not std_verdict(errors, deviations * math.sqrt(SILOS)).accepted
    fresh = noise.generator.normal(size=errors.shape) * deviations
    promised = promised_correlation("secure-sum") * promised_total("secure-sum")[0] ** 2
    assert std_verdict(fresh, deviations).accepted
    assert not covariance_verdict(fresh[:, :, 0], promised).accepted
