"""Every trust model declares itself in its own file, what it declares is true, and a new file is a new trust model."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms, trust, trusts
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.guarantee import Calibration
from fedbandit.protocol.trust import Faith, Trust
from fedbandit.protocol.trusts import silo
from fedbandit.schedule import every

NAMES = trust.names()
CALIBRATIONS: tuple[Calibration, ...] = ("exact", "paper", "published", "literature")


def plan(name: str, calibration: Calibration | None = None, mechanism: str | None = None, **fields: object) -> Plan:
    """A plan that the trust model declares to be possible, unless it is told otherwise."""
    declared = trust.trust(name)
    silos, budget = (200, Privacy(1e-3, 1e-4)) if name == "shuffle" else (4, Privacy(1.0, 0.1))
    return Plan(
        silos,
        20,
        2,
        budget,
        name,
        mechanism or declared.mechanism or "tree",
        every(5),
        calibration=calibration or declared.calibrations[0],
        **fields,  # type: ignore[arg-type]
    )


def test_names_are_those_of_the_files() -> None:
    files = {path.stem for path in Path(trusts.__path__[0]).glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in NAMES} == files
    assert list(NAMES) == sorted(NAMES)
    assert {"none", "local", "silo", "shuffle", "vector-sum", "secure-sum", "central"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_trust_declares_itself(name: str) -> None:
    declared = trust.trust(name)
    assert isinstance(declared, Trust)
    assert declared.name == name
    assert declared.who.endswith(".")
    assert plan(name).trusting is declared
    protocol = plan(name).protocol
    assert isinstance(protocol, Protocol)
    assert protocol.sends
    assert protocol.adversaries()
    assert type(protocol).__doc__


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_trust_takes_the_calibrations_it_declares_and_refuses_the_others(name: str, calibration: Calibration) -> None:
    if calibration in trust.trust(name).calibrations:
        assert plan(name, calibration).guarantee.statement
    else:
        with pytest.raises(ArgumentError, match="calibration"):
            plan(name, calibration)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mechanism", mechanisms.names())
def test_a_trust_takes_the_mechanisms_it_declares_and_refuses_the_others(name: str, mechanism: str) -> None:
    if trust.trust(name).mechanism in (None, mechanism):
        assert plan(name, mechanism=mechanism).mechanism == mechanism
    else:
        with pytest.raises(ArgumentError, match="mechanism"):
            plan(name, mechanism=mechanism)


@pytest.mark.parametrize("name", NAMES)
def test_a_trust_decodes_where_it_declares_and_nowhere_else(name: str) -> None:
    if "silo" in trust.trust(name).decodes_at:
        assert plan(name, decode_at="silo").decode_at == "silo"
    else:
        with pytest.raises(ArgumentError, match=f"^decode_at must be 'analyzer' for trust '{name}', got 'silo'$"):
            plan(name, decode_at="silo")


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"shuffle", "vector-sum"}))  # their theorems count silos too
def test_where_silos_share_the_noise_more_of_them_need_less_and_elsewhere_each_has_all_of_it(name: str) -> None:
    few, many = plan(name), plan(name).changed(silos=16)
    less = math.sqrt(15 / 3) if trust.trust(name).shares_noise else 1.0  # one of the silos knows its own share
    assert few.protocol.scales.times(1 / less) == pytest.approx(many.protocol.scales)


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_cohort_is_everybody_where_a_trust_is_calibrated_for_all(name: str) -> None:
    everybody = plan(name).silos
    assert plan(name).smallest_cohort == everybody
    if trust.trust(name).whole or not trust.trust(name).live:
        with pytest.raises(ArgumentError, match=rf"^cohort must be left out for trust '{name}', got 3"):
            plan(name, cohort=3)
    else:
        assert plan(name, cohort=3).smallest_cohort == 3


def test_faith_asked_for_grows_from_nobody_to_everybody() -> None:
    order = ["local", "silo", "secure-sum", "central", "none"]
    faith = [trust.trust(name).faith for name in order]
    assert faith == sorted(faith)
    assert faith == list(Faith)
    assert trust.trust("shuffle").faith == trust.trust("vector-sum").faith == trust.trust("secure-sum").faith


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ArgumentError) as error:
        trust.trust("me")
    assert str(error.value) == f"trust must be one of {', '.join(NAMES)}; got 'me'"


def test_a_declaration_whose_name_does_not_fit_its_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silo, "TRUST", replace(silo.TRUST, name="central"))
    with pytest.raises(ArgumentError, match=r"^trust 'silo' must be declared as TRUST = Trust\(name='silo'") as error:
        trust.trust("silo")
    assert error.value.field == "trust"
    assert trust.trust("central").name == "central"


@pytest.mark.parametrize("declared", [None, "silo", silo.SiloProtocol])
def test_a_file_that_declares_no_trust_is_refused(declared: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silo, "TRUST", declared)
    with pytest.raises(ArgumentError, match=r"^trust 'silo' must be declared"):
        trust.trust("silo")
    monkeypatch.delattr(silo, "TRUST")
    with pytest.raises(ArgumentError, match=r"^trust 'silo' must be declared"):
        trust.trust("silo")


OWN = '''
"""Like `silo`, and the analyzer has to be believed."""

from dataclasses import replace

from fedbandit.protocol.trust import Faith
from fedbandit.protocol.trusts import silo

TRUST = replace(silo.TRUST, name="my-own", faith=Faith.ANALYZER)
'''


@pytest.fixture
def own_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder with one more trust model beside those of the library."""
    (tmp_path / "my_own.py").write_text(OWN)
    monkeypatch.setattr(trusts, "__path__", [*trusts.__path__, str(tmp_path)])
    yield "my-own"
    sys.modules.pop(f"{trusts.__name__}.my_own", None)


def test_a_new_file_is_a_new_trust_model(own_trust: str) -> None:
    assert own_trust in trust.names()
    made = Plan(4, 20, 2, Privacy(1.0, 0.1), trust=own_trust)
    assert made.trusting.faith is Faith.ANALYZER
    assert made.protocol.scales == made.changed(trust="silo").protocol.scales
    assert made.guarantee.promised


def test_a_protocol_without_adversaries_is_not_one() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Protocol(plan("silo").encoder, plan("silo").protocol.scales, 2, 20, 4)  # type: ignore[abstract]


@pytest.mark.parametrize("name", NAMES)
def test_one_silo_with_the_users_of_all_has_the_noise_of_all(name: str) -> None:
    """The noise of a total: of one silo as many times the variance as there are silos, unless it is drawn elsewhere."""
    made = plan(name).protocol
    pooled, times = made.pooled(), 1 if name in ("central", "local", "shuffled-users") else math.sqrt(made.silos)
    assert made.silos > 1
    assert pooled.silos == 1
    assert list(pooled.scales) == pytest.approx([times * scale for scale in made.scales], rel=1e-12, abs=0.0)


@pytest.mark.parametrize("flag", ["separate", "shares_noise", "whole", "live", "endless", "personal", "silo_sees"])
def test_which_trust_is_special_in_what(flag: str) -> None:
    """Each silo on its own; noise that silos share; a sync that all must be in; what a live federation can run, for
    ever, and with releases of silos for themselves; silos that are shown data."""
    special = {
        "separate": {"none", "local", "silo", "public-contexts"},
        "shares_noise": {"secure-sum"},
        "whole": {"shuffle", "vector-sum", "shuffled-users"},
        "live": set(NAMES) - {"local", "public-contexts", "shuffled-users"},
        "endless": {"none", "silo", "secure-sum", "central"},
        "personal": {"secure-sum"},
        "silo_sees": set(NAMES) - {"local", "shuffled-users"},
    }
    assert {name for name in NAMES if getattr(trust.trust(name), flag)} == special[flag]


def test_visits_that_lie_apart_are_refused_where_they_would_change_nothing() -> None:
    budget = Privacy(1.0, 0.1, participations=3, apart=2)
    with pytest.raises(ArgumentError, match="apart must be 0 for trust 'public-contexts'"):
        _ = Plan(4, 20, 2, budget, "public-contexts", "batches", every(5)).guarantee


def test_public_actions_are_never_chosen_by_raw_rewards() -> None:
    """Rewards are said to be hidden: an eager silo's next action, in the clear, is a function of them."""
    lazy = Plan(4, 20, 2, Privacy(1.0, 1e-5), "public-contexts", "batches", every(5))
    assert "Only rewards are (1, 1e-05)-differentially private" in lazy.guarantee.statement
    with pytest.raises(ArgumentError, match=r"^acting must be 'lazy' for trust 'public-contexts'"):
        lazy.changed(acting="eager")
