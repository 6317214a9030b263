"""The example in CONTRIBUTING is a mechanism like any other: taken out of the page, it must work."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fedbandit.protocol.encoder import Encoder

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def encoder() -> Encoder:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    namespace: dict[str, object] = {"__name__": "banded"}
    exec(compile(code, str(PAGE), "exec"), namespace)
    made = namespace["encoder"](50)  # type: ignore[operator]
    assert isinstance(made, Encoder)
    return made


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
