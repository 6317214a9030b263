"""docs/paper.md: every file, test and command it names is there, and every measured line is what the command prints."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from typer.core import TyperGroup

from fedbandit import presets
from fedbandit.cli.main import COMMANDS, loaded
from fedbandit.paper import regret_bounds
from fedbandit.paper.claims import CLAIMS, PaperClaim, gap, ranges, user_shift
from fedbandit.paper.claims.gap import gap_claim
from fedbandit.paper.claims.growth import growth_claims
from fedbandit.paper.figures import PAPER_PANELS
from fedbandit.plan import Plan
from fedbandit.planner.studies import shuffle_map, shuffling
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import joint_shift

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "fedbandit"


def quoted() -> list[str]:
    return re.findall(r"`([^`]+)`", PAGE)


def test_named_files_and_tests_exist():
    paths = [text for text in quoted() if re.fullmatch(r"[\w/]+\.py(::\w+)?", text)]
    assert len(paths) > 60
    for text in paths:
        path, _, test = text.partition("::")
        file = ROOT / path if path.startswith("tests/") else PACKAGE / path
        assert file.exists(), text
        if test:
            assert f"def {test}(" in file.read_text(encoding="utf-8"), text


def test_named_commands_exist():
    commands = [text.split()[1:] for text in quoted() if text.startswith("fedbandit ")]
    assert commands
    for name, *rest in commands:
        assert name in COMMANDS, name
        command = loaded(name)
        if isinstance(command, TyperGroup):
            assert rest[0] in command.commands, rest


def printed(claim: PaperClaim) -> bool:
    """Whether the page has the claim, its outcome and every measured line as they are computed now."""
    lines = (f"**{claim.name}** ({claim.outcome}): {claim.paper}", *(f"- {line}\n" for line in claim.measured))
    return all(line in PAGE for line in lines)


LONG = pytest.mark.torture  # simulations that take most of a minute each


@pytest.mark.parametrize("make", [*CLAIMS, pytest.param(gap_claim, marks=LONG)], ids=lambda make: make.__name__)
def test_measured_lines_are_what_the_command_prints(make):
    claim = make()
    assert printed(claim), claim


@LONG
def test_measured_growth_is_what_the_command_prints():
    for claim in growth_claims():
        assert printed(claim), claim


def test_a_number_that_drifts_is_told():
    claim = CLAIMS[0]()
    drifted = claim._replace(measured=(claim.measured[0].replace("1.0000", "1.0010"),))
    assert printed(claim)
    assert not printed(drifted)


def numbers_of_the_findings() -> list[str]:
    """Sentences of the findings and the tables, with the numbers in them computed."""
    amplified = Plan(1_000_000, 100, 10, Privacy(1e-3, 1e-6), trust="none", bits=12)
    lemma = presets.sdp_amplified(amplified)
    ninth = lemma.protocol.scales.bias / lemma.changed(calibration="exact").protocol.scales.bias
    gain = math.sqrt(100) / (4 * math.sqrt(math.log(4)))
    kappa, delta, last = 9, 0.1, ranges.LARGEST_SHARE
    paying = [(epsilon, silos) for epsilon, silos in ranges.PAYING if ranges.noise_ratio(epsilon, silos) < 1]
    assert [epsilon for epsilon, _ in paying] == [1e-5, 1e-4]
    dropped = kappa * last * math.expm1(last) / (2 * last * math.sqrt(2 * kappa * math.log(2 / delta)))
    advanced, basic = ranges.p_sum_noise(0.2, delta, kappa)
    alone = Plan(1, gap.ROUNDS, gap.DIM, privacy=gap.BUDGET, trust="silo")
    releases = [preset(alone).encoder.size for preset in (presets.super_agent, presets.ldp)]
    pairs = {silos: Plan(silos, 1_000, 5, Privacy(1.0, 1e-6)) for silos in (2, 3, 4)}
    quiet = [silos for silos, plan in pairs.items() if plan.noise_std < 0.999 * plan.changed(trust="silo").noise_std]
    assert quiet[0] == shuffle_map.SECURE_SUM_PAYS
    lone = pairs[3].noise_std / pairs[3].changed(trust="central").noise_std
    assert math.isclose(lone, math.sqrt(3 / 2), rel_tol=1e-3)
    speaks = regret_bounds.silos_where_theorem_sdp_speaks(10_000, 400, 10)
    moved = user_shift.replaced_user(presets.ldp_eager(Plan(100, 10_000, 10, Privacy(1.0, 1e-5))))
    return [
        f"computed, the noise is {'a ninth' if round(ninth) == 9 else ninth} at M = 1e6, T = 100 and (1e-3, 1e-6)",
        f"both sums move by {moved.bias / math.sqrt(2):.0f} sqrt(2)",
        f"largest at c = -1/2: sqrt({joint_shift('replace-one') ** 2:g})",
        f"μ = sqrt({joint_shift('replace-one') ** 2:g}κ)/σ_0, which is sqrt(9/8) ε where K is a power of 2",
        f"{gain:.1f} times at N = 100 and not {math.sqrt(100):.0f}",
        f"the order of the theorem, times about {2 * math.sqrt(24e4 * 3 / 16):.0f} L",
        f"that term is {dropped / 1e6:.0f} million times ε (κ = {kappa}, δ = {delta:g})",
        f"at κ = 9 with {'half' if round(basic / advanced, 1) == 0.5 else basic / advanced} the noise",
        f"because it has {releases[0] / releases[1]:g} times as many releases",
        f"one of {presets.ldp(Plan(100, 10_000, 10, Privacy(1.0, 0.1))).syncs} syncs exceeds what β_t allows",
        f"at δ = 1e-{-math.log10(shuffling.MAP_DELTA):.0f}, B = {shuffling.MAP_BATCH}, d = {shuffling.MAP_DIM}. A dash",
        f"it never does up to 10^{math.log10(shuffling.MOST_ON_MAP):.0f} silos",
        f"| way | T | {' | '.join(f'ε = {epsilon:g}' for epsilon in shuffle_map.TABLED)} |",
        f"which is less than silo-level LDP's from {quiet[0]} silos on",
        f"they add less noise from {quiet[0]} silos on, at every ε and T",
        f"the joint sensitivity sqrt({joint_shift('replace-one') ** 2:g}) of both streams",
        f"With {paying[0][1]:,} silos at ε = 1e-5, or {paying[1][1]:,} at 1e-4, it does beat Theorem *LDP* (δ = 1e-4;",
        f"with the paper's own constants and over M = {gap.SILOS[0]} to {gap.SILOS[-1]}",
        f"at ε_0 = {ranges.LARGEST_SHARE:g}, the end of P_vec's own range",
        f"until M is tens of {'millions' if 1e7 < speaks < 1e8 else speaks}",
    ]


def test_a_number_in_the_text_of_a_finding_is_what_is_computed():
    text = " ".join(PAGE.split())
    for sentence in numbers_of_the_findings():
        assert sentence in text, sentence


def test_exponents_in_the_text_are_those_measured_below_it():
    """F18 rounds what the growth claims print, and those are compared with the command."""
    late = {
        name: re.search(rf"\*\*cost by {name}\*\*.*?late, [^:]*: exponent (-?[\d.]+)", PAGE, flags=re.DOTALL)
        for name in ("ε", "M")
    }
    measured = {name: float(found[1]) for name, found in late.items() if found is not None}
    assert f"ε^{measured['ε']:.1f} for ε^-1/2, M^{measured['M']:.1f} for M^3/4" in " ".join(PAGE.split())


def test_the_papers_items_are_numbered_through_and_none_is_without_an_outcome():
    rows = [row.strip("|\n ").split(" | ") for row in re.findall(r"^\| \d+ \|.*$", PAGE, flags=re.MULTILINE)]
    items = [row for row in rows if len(row) == 5]
    assert [int(row[0]) for row in items] == list(range(1, 60))
    for row in items:
        assert all(cell.strip() for cell in row), row
        assert "partly" not in row[4], row


def test_a_figures_row_has_the_gallerys_conclusion():
    for panel in PAPER_PANELS:
        (row,) = [line for line in PAGE.splitlines() if f"| `fedbandit paper run {panel.name}` |" in line]
        summary = json.loads((ROOT / "docs" / "gallery" / f"{panel.name}.json").read_text(encoding="utf-8"))
        assert row.endswith(f"| {summary['conclusion']} |")


def test_every_numbered_thing_of_the_paper_has_a_row():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert sum("| Theorem" in row for row in rows) >= 3
    for name in (
        "Silo-level LDP", "SDP", "Privacy leakage", "Boundedness", "Regularity", "sub-Gaussian", "Private-FedLinUCB",
        "P_alt", "P_vec^T", "P_1D", "Lazy", "Dubey", "Sensitivity vs. norm", "Corollary *LDP*", "Corollary *SDP*",
        "Lemma *amp*", "weak Fed-DP", "com-gap", "det-new", "Key techniques", "Non-unique users",
        "Lemma *general*", "Lemma *subG*", "Lemma *informal*", "p-sums", "Shuffled tree-based",
    ):  # fmt: skip
        assert any(name in row for row in rows), name
