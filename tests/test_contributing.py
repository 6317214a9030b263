"""The examples in CONTRIBUTING are plug-ins like any other: taken out of the page, they must work."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from fedbandit.audit.cases import reduced
from fedbandit.audit.certificate import certificate
from fedbandit.audit.pages import markdown
from fedbandit.audit.report import audit
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.silo.book import entries
from fedbandit.federation.wire import messages
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms, trusts
from fedbandit.protocol.encoder import Encoder
from fedbandit.schedule import every
from fedbandit.simulator import tasks
from fedbandit.simulator.runner import simulate
from tests.federation.harness import Harness, federation

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
MECHANISM, TRUST = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.fixture
def plugged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both examples as files where such files go."""
    for package, name, code in ((mechanisms, "banded", MECHANISM), (trusts, "summing_mixer", TRUST)):
        folder = tmp_path / package.__name__.rpartition(".")[2]
        folder.mkdir()
        (folder / f"{name}.py").write_text(code)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    yield
    for name in ("mechanisms.banded", "trusts.summing_mixer"):
        sys.modules.pop(f"fedbandit.protocol.{name}", None)
    mechanisms.encoder.cache_clear()


@pytest.fixture
def encoder(plugged_in: None) -> Encoder:
    return mechanisms.encoder("banded", 50)


@pytest.fixture
def plan(plugged_in: None) -> Plan:
    return Plan(
        3, 20, 2, Privacy(1.0, 1e-5), trust="summing-mixer", mechanism="banded", schedule=every(5), visits="public"
    )


def test_decoder_undoes_the_encoder(encoder: Encoder) -> None:
    prefix_sums = np.tril(np.ones((50, 50)))
    np.testing.assert_allclose(encoder.decoder @ encoder.coefficients, prefix_sums, atol=1e-9)


def test_each_batch_enters_sixteen_releases(encoder: Encoder) -> None:
    assert encoder.touches == 16
    assert np.count_nonzero(encoder.coefficients, axis=0).max() == 16


def test_streaming_equals_the_matrix(encoder: Encoder) -> None:
    sums = np.random.default_rng(0).integers(-1000, 1000, (50, 3))
    state = encoder.init((3,))
    for k in range(50):
        state, encoded = encoder.step(state, sums[k])
        np.testing.assert_array_equal(encoded, encoder.coefficients[k] @ sums * 2**encoder.fraction_bits)


def test_the_trust_model_is_planned_simulated_audited_and_certified(plan: Plan) -> None:
    assert plan.guarantee.epsilon == 1.0
    assert plan.noise_std == pytest.approx(plan.changed(trust="silo").noise_std)
    result = simulate(tasks.synthetic(2, 5), {"example": plan, "silo": plan.changed(trust="silo")}, runs=2)
    assert result.regret("example").mean > 0
    report = audit(reduced(plan), trials=20_000)
    assert report.verdict == "holds"
    assert report.epsilon_lower > 0.5
    page = markdown(certificate(plan, report, date(2030, 1, 1)))
    assert "The mixer, the analyzer and all other silos may collude." in page


def test_an_audit_of_the_trust_model_notices_too_little_noise(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["fedbandit.protocol.trusts.summing_mixer"]
    right = module.gaussian_noise

    def too_little(request: object, joint_silos: bool) -> object:
        noise = right(request, joint_silos)
        return noise._replace(scales=noise.scales.times(1 / 1.5))

    monkeypatch.setattr(module, "gaussian_noise", too_little)
    assert audit(reduced(plan.changed(bits=19)), trials=20_000).verdict == "broken"


def test_the_trust_model_runs_live(plan: Plan, tmp_path: Path) -> None:
    async def scenario(running: Harness) -> None:
        state = plan.protocol.init_analyzer()
        for sync in range(len(plan.times)):
            await running.sync(sync)
            stores = [running.running[name].silo.store for name in running.silos]
            drawn = [messages.decode(store.release(1, sync).drawn) for store in stores]
            together = tuple(np.stack(arrays) for arrays in zip(*drawn, strict=True))
            state, prefix = plan.protocol.decode(state, plan.protocol.passed_on(together, ExactNoise()))
            np.testing.assert_allclose(running.outcome(sync).prefix, prefix, rtol=0, atol=1e-9)
            mixed = running.running["analyzer"].store.at(sync)
            assert set(mixed.cohort) == set(running.silos)
        for name in running.silos:
            silo = running.running[name].silo
            (event, *_) = [entry.event for entry in entries(silo.store.ledger())]
            assert (event.trust, event.released) == ("summing-mixer", plan.protocol.sends)
            assert silo.status()["epsilon_spent"] == pytest.approx(1.0)

    async def main() -> None:
        async with federation(tmp_path / "federation", plan) as running:
            await scenario(running)

    asyncio.run(main())
