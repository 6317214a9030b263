"""examples/clinic runs as it stands: twelve live hospitals, a week of apprenticeship, a verdict from each one's log."""

from __future__ import annotations

import resource

from tests.examples.playing import played

BUSY = 120.0  # seconds of processor time, its processes included: about a minute on two cores
CHECKS = """
assert found["dim"] == 3 * (1 + 1 + 2)
assert "(1, 1e-05)-differentially private" in found["guarantee"]
first, *_, last = found["helped by week"]
assert abs(first - found["helped by old practice"]) < 0.02, "doctors choose as they always did"
assert last > first + 0.05, "the model helps more patients than the practice it learnt from"
assert len(found["verdicts"]) == 12
values = []
for judged in found["verdicts"].values():
    model = judged["model"]
    assert model["low"] < model["value"] < model["high"]
    assert model["high"] - model["low"] < 0.5
    values.append(model["value"])
assert sum(values) / 12 > first, "and the hospitals' own logs say so"
"""


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_clinic() -> None:
    before = processor_seconds()
    played("clinic", CHECKS)
    assert 1 < processor_seconds() - before < BUSY
