"""`fedbandit demo`, what it says of a run."""

from __future__ import annotations

from typing import Any

import pytest

from fedbandit.cli.engineer import demo_command
from fedbandit.cli.engineer.demo_command import demo, demo_plan, spent_in_words
from fedbandit.privacy.budget import Privacy

PLAN = demo_plan(3, 60, "central", Privacy(1.0, 0.1))


def known(epsilon: float | None, against: str | None) -> dict[str, Any]:
    return {"epsilon_spent": epsilon, "spent_against": against}


def test_it_says_what_the_silo_that_spent_most_has_spent_and_against_whom() -> None:
    statuses = [known(0.9, "everybody but the analyzer"), known(0.99996, "everybody but the analyzer")]
    assert spent_in_words(PLAN, statuses) == "1 of 1 at delta = 0.1 (replace-one), against everybody but the analyzer"
    assert spent_in_words(PLAN, [known(0.0, None)]) == "0 of 1 at delta = 0.1 (replace-one)"


def test_no_number_is_never_zero() -> None:
    assert spent_in_words(PLAN, [known(0.9, "everybody"), known(None, "nobody")]) == "no bound"
    assert spent_in_words(PLAN.changed(trust="none", privacy=None), [known(0.0, None)]) == "-"


def test_what_is_not_installed_is_named_with_the_extra_that_brings_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("nats", "numba"):
        monkeypatch.setattr(demo_command, "find_spec", lambda name, missing=missing: None if name == missing else name)
        with pytest.raises(ImportError, match=rf"No module named '{missing}': pip install 'fedbandit\[demo\]'"):
            demo()
