"""What the theorems say where they apply, and steps of their proofs that claim too much."""

from __future__ import annotations

import math

from fedbandit import presets
from fedbandit.paper.claims.claim import CONFIRMED, NARROWER_RANGE, OTHER_CONSTANT, REFUTED, PaperClaim
from fedbandit.paper.regret_bounds import bound, cap_of_theorem_sdp, order_sdp, silos_where_theorem_sdp_speaks
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import tree_levels
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.data.lasso import GROUPS

__all__ = [
    "bad_epochs",
    "batches_claim",
    "counted_by_line_15",
    "features_by_field",
    "fewest_silos",
    "line_15_claim",
    "linear_claim",
    "shuffling_condition_claim",
    "title_claim",
    "union_claim",
]

SILOS, ROUNDS, DIM, SYNCS = 100, 10_000, 10, 400
FIELDS = ("whole document", "body", "anchor", "title", "URL")  # of MSLR's features up to 125, by id mod 5


def linear_claim() -> PaperClaim:
    """Theorem SDP and Corollary SDP: sqrt(MT), in a range of epsilon that shrinks with T."""
    shares = {rounds: _privacy_share(rounds) for rounds in (1_000, 10_000, 100_000)}
    cap, speaks = cap_of_theorem_sdp(SILOS, ROUNDS, SYNCS), silos_where_theorem_sdp_speaks(ROUNDS, SYNCS, DIM)
    words = ", ".join(f"{share:.1f} at T = {rounds:,}" for rounds, share in shares.items())
    return PaperClaim(
        "Theorem SDP",
        "for ε <= sqrt(κ)/(C_1 T sqrt(M)) the regret is of order sqrt(MT/ε), that of a super agent",
        NARROWER_RANGE if min(shares.values()) > 1 else CONFIRMED,
        (
            "at the largest ε the privacy term is T M^(3/4) times logarithms: linear in T; hidden constants read as 1, "
            f"M = {SILOS}, d = {DIM}, it is {words} times the MT that can be lost",
            f"it lies below MT from M = {speaks:.1e} on (T = {ROUNDS:,}, K = {SYNCS}, the largest ε and δ allowed)",
            f"the ε of Figure 1(a), 0.001 and 0.0001, are {1e-3 / cap:.0f} and {1e-4 / cap:.1f} times the largest ε",
        ),
    )


def _privacy_share(rounds: int) -> float:
    """The privacy term of Theorem SDP divided by MT, at the largest epsilon and delta that the theorem allows."""
    syncs = rounds // 25
    budget = Privacy(cap_of_theorem_sdp(SILOS, rounds, syncs), tree_levels(syncs) / rounds)
    plan = presets.ldp(Plan(SILOS, rounds, DIM, privacy=budget, bits=8))
    return order_sdp(plan).privacy / (SILOS * rounds)


def shuffling_condition_claim() -> PaperClaim:
    """Theorem SDP drops Lemma amp's condition on the number of silos."""
    delta = 1e-4
    slack = ROUNDS * delta / tree_levels(SYNCS)  # N n delta_0 of the proof, with C_2 = 1
    least, most = fewest_silos(0.0, slack), fewest_silos(1.0, slack)
    return PaperClaim(
        "many silos",
        "Theorem SDP asks for small ε and δ only",
        NARROWER_RANGE if most > 1 else CONFIRMED,
        (
            "Lemma amp also needs M >= 16 e^(Tε_0) log(2/slack), which the theorem drops: "
            f"{math.ceil(fewest_silos(0.0, 1.0))} silos at the very least",
            f"at T = {ROUNDS:,} and δ = {delta:g} its proof has slack {slack:.3f}: M >= {math.ceil(least)} as ε_0 "
            f"falls to 0, M >= {math.ceil(most)} at the ε_0 = 1/T that it allows; Figure 1(a) has M = {SILOS}",
        ),
    )


def fewest_silos(spent: float, slack: float) -> float:
    """16 e^(n epsilon_0) log(2/slack), Lemma amp's condition; `spent` is n epsilon_0."""
    return 16 * math.exp(spent) * math.log(2 / slack)


def union_claim() -> PaperClaim:
    """Step 1 of Lemma general uses one self-normalised process for all agents."""
    asked = Plan(SILOS, ROUNDS, DIM, trust="none", confidence="proof")
    lazy, eager = bound(presets.fed_lin_ucb(asked)), bound(presets.fed_lin_ucb(asked).changed(acting="eager"))
    return PaperClaim(
        "one event",
        "one self-normalised bound with log(1/α) holds for all agents of Algorithm 1",
        OTHER_CONSTANT if eager.radius > lazy.radius else CONFIRMED,
        (
            "acting lazily, all agents use the same sums, and one process serves; acting eagerly, agent i's sums hold "
            "its own data of the batch and nobody else's: M processes, and log(M/α)",
            f"without noise at M = {SILOS}, T = {ROUNDS:,}, d = {DIM}: β_T is {lazy.radius:.2f} lazily, "
            f"{eager.radius:.2f} eagerly (confidence 'proof' is the former, and so holds for lazy acting only)",
        ),
    )


def batches_claim() -> PaperClaim:
    """The term d M B log T of Lemma subG and of all theorems; Lemma general has log(MT)."""
    rounds = 100
    counts = {silos: bad_epochs(silos, rounds) for silos in (10, 1_000, 1_000_000)}
    words = ", ".join(f"{count} at M = {silos:,}" for silos, count in counts.items())
    return PaperClaim(
        "batches",
        "bad epochs cost O(d M B log T)",
        NARROWER_RANGE if max(counts.values()) > 2 * math.log(rounds) / math.log(2) else CONFIRMED,
        (
            "Lemma general has log(1 + MT/(dλ)), which is of order log T only while M is at most a power of T",
            f"it is needed: where the users in one of d = 2 directions double with each batch, T = {rounds} and B = 1, "
            f"bad epochs are {words}; d log T / log 2 = {2 * math.log(rounds) / math.log(2):.1f}",
        ),
    )


def bad_epochs(silos: int, rounds: int) -> int:
    """The number of epochs, of one round each, in which det V more than doubles.

    V starts from I. In each round just enough users lie along e_2 to more than double its weight (at most all of them);
    all other users lie along e_1.
    """
    first, second, bad = 1, 1, 0
    for _ in range(rounds):
        along = min(silos, second + 1)
        grown = (first + silos - along, second + along)
        bad += grown[0] * grown[1] > 2 * first * second
        first, second = grown
    return bad


def line_15_claim() -> PaperClaim:
    """The restated algorithm of Dubey & Pentland adds cumulative statistics to what it has."""
    syncs = 4
    counted = counted_by_line_15(syncs)
    return PaperClaim(
        "line 15",
        "the server sets W_syn = W_syn + the silos' private cumulative statistics",
        REFUTED if counted != [1] * syncs else CONFIRMED,
        (
            f"after {syncs} syncs the batches 1 to {syncs} are in W_syn {', '.join(map(str, counted))} times: a "
            "cumulative sum already holds the earlier ones, so it must replace W_syn (as it does here)",
        ),
    )


def counted_by_line_15(syncs: int) -> list[int]:
    """How often each batch is in W_syn after `syncs` syncs if line 15 is taken literally."""
    held = [0] * syncs
    for sync in range(syncs):
        held = [count + (batch <= sync) for batch, count in enumerate(held)]
    return held


def title_claim() -> PaperClaim:
    """The feature groups of the published simulation, checked against MSLR's own list of features."""
    title, body = (features_by_field(GROUPS[group]) for group in ("title", "body"))

    def words(fields: dict[str, int]) -> str:
        return ", ".join(f"{count} of {field}" for field, count in fields.items() if count)

    return PaperClaim(
        "title features",
        "features are partitioned into title and body features of dimensions 57 and 78",
        REFUTED if not title["title"] else CONFIRMED,
        (
            f"the 57 of the published simulation are a constant and {words(title)}: none of them is of the title",
            f"the 78 are a constant and {words(body)}",
        ),
    )


def features_by_field(ids: tuple[int, ...]) -> dict[str, int]:
    """How many of these MSLR features belong to each field of a document; "no field" if to the document as a whole."""
    counts = dict.fromkeys((*FIELDS, "no field"), 0)
    for number in ids:
        counts[FIELDS[number % 5] if number <= 125 else "no field"] += 1
    return counts
