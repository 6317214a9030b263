"""On the Open Bandit logs: the click rate of each logged policy, from the other's log."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.evaluation.evaluating import Evaluation, evaluate
from fedbandit.evaluation.targets import given, uniform
from tests.evaluation.open_bandit import decisions_of, frequencies, needs_data, read

pytestmark = [pytest.mark.shared, needs_data]


@pytest.fixture(scope="module")
def predicted() -> dict[str, tuple[Evaluation, float]]:
    """Of each policy: its evaluation by the other's log, and its own click rate."""
    random, thompson = read("random"), read("bts")
    shown = frequencies(thompson)[random["place"].to_numpy()].ravel()
    return {
        "thompson": (evaluate(decisions_of(random), {"other": given(shown)}), float(thompson["click"].mean())),  # type: ignore[arg-type]
        "random": (evaluate(decisions_of(thompson), {"other": uniform}), float(random["click"].mean())),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
@pytest.mark.parametrize("policy", ["random", "thompson"])
def test_each_policys_click_rate_is_predicted_from_the_others_log(
    predicted: dict[str, tuple[Evaluation, float]], policy: str, estimator: str
) -> None:
    found, rate = predicted[policy]
    one = found["other"].worth[estimator]  # type: ignore[index]
    assert one.low <= rate <= one.high, f"{one} does not hold {rate}"
    assert one.high - one.low < 5 * rate, "an interval that holds anything"


def test_a_click_rate_that_is_wrong_is_not_within_the_interval(
    predicted: dict[str, tuple[Evaluation, float]],
) -> None:
    """The random log knows that no policy of the week earned ten times as much."""
    for found, rate in predicted.values():
        for one in found["other"].worth.values():
            assert not one.low <= 10 * rate <= one.high


def test_untrue_propensities_are_refused() -> None:
    log = decisions_of(read("random"))
    halved = type(log)(log.rows, log.offsets, log.action, np.full(len(log), 0.025), log.reward)
    assert "are not true" in str(evaluate(halved, {"uniform": uniform})["uniform"].refused)
