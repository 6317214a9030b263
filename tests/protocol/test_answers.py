"""A reader can answer from the page alone: against whom, for whom, how often, what is public, who may collude, who may
be missing. Every number in the answers is computed again here."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import compose_gdp, gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy, at_most
from fedbandit.privacy.sensitivity import ADJACENCIES, Adjacency
from fedbandit.protocol import trust as trusts
from fedbandit.protocol.adversaries import SeesMessages
from fedbandit.protocol.guarantee import ELSEWHERE, Uncounted
from fedbandit.protocol.trusts.secure_sum import SeesTotal
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.protocol.vector_coding import TheoremCoding
from fedbandit.schedule import adaptive, clock, every

QUESTIONS = [
    "Against whom",
    "For whom",
    "How often one may come",
    "Who does not count",
    "What is public",
    "If parties collude",
    "If a silo is missing",
]
PROMISING = sorted(set(trusts.names()) - {"none", "public-contexts"})


def plan(trust: str, silos: int = 10, privacy: Privacy | None = None, **fields: object) -> Plan:
    declared = trusts.trust(trust)
    if trust == "shuffle":
        silos, privacy = 2000, privacy or Privacy(1e-3, 1e-4)
    shared = {"mechanism": declared.mechanism or "tree", "calibration": declared.calibrations[0], **fields}
    return Plan(silos, 20, 2, privacy or Privacy(1.0, 1e-5), trust=trust, schedule=every(5), **shared)  # type: ignore[arg-type]


def answers(made: Plan) -> dict[str, str]:
    return dict(made.guarantee.answers)


@pytest.mark.parametrize("trust", PROMISING)
def test_every_promise_answers_every_question_and_prints_them(trust: str) -> None:
    made = plan(trust)
    assert [question for question, _ in made.guarantee.answers] == QUESTIONS
    assert all(answer and not answer.endswith(".") for _, answer in made.guarantee.answers)
    printed = str(made.guarantee).splitlines()
    assert printed[1 : 1 + len(QUESTIONS)] == [
        f"  {question}: {answer}." for question, answer in made.guarantee.answers
    ]
    assert answers(made)["Against whom"] == made.guarantee.against
    assert answers(made)["What is public"] == (
        "which silos take part, when they synchronise, how long messages are, and every model"
    )


def test_where_nothing_is_promised_nothing_is_answered() -> None:
    assert Plan(10, 20, 2, trust="none").guarantee.answers == ()


@pytest.mark.parametrize(
    ("trust", "against", "collusion", "missing"),
    [
        ("local", "everybody", "against all of them together", "users protect themselves"),
        ("silo", "everybody outside the user's silo", "against all of them together", "each silo's noise protects"),
        (
            "central",
            "everybody but the analyzer",
            "nothing is promised against them; all others together gain nothing",
            "the analyzer draws all the noise",
        ),
        (
            "shuffled-users",
            "the analyzer and the silos",
            "any one other user; if the mixer colludes too",
            "must be skipped",
        ),
        ("shuffle", "the analyzer", "the noise alone still keeps the promise, against all of them", "skipped for all"),
        ("vector-sum", "the analyzer alone", "nothing is promised against the mixer, alone or with", "skipped for all"),
        (
            "secure-sum",
            "any one other silo together with either the mixer or the analyzer",
            "mixer and analyzer together",
            "skipped",
        ),
    ],
)
def test_against_whom_collusion_and_absence(trust: str, against: str, collusion: str, missing: str) -> None:
    said = answers(plan(trust))
    assert said["Against whom"] == against
    assert collusion in said["If parties collude"]
    assert missing in said["If a silo is missing"]


@pytest.mark.parametrize("trust", PROMISING)
def test_for_whom_in_words(trust: str) -> None:
    budget = (1e-3, 1e-4) if trust == "shuffle" else (1.0, 1e-5)
    replaced, added = (plan(trust, privacy=Privacy(*budget, one)) for one in ADJACENCIES)
    assert answers(replaced)["For whom"] == (
        "each person: their data are compared with any other person's in their place (replace-one), so how many people "
        "a silo has is not hidden"
    )
    assert answers(added)["For whom"] == "each person: taking part is compared with staying away (add-remove)"


@pytest.mark.parametrize("trust", PROMISING)
def test_the_words_are_those_of_the_table_of_parties(trust: str) -> None:
    """A reader of the live federation's documents knows silos, a mixer and an analyzer, and syncs."""
    made = plan(trust)
    for text in (str(made.guarantee), made.trusting.who, *(one.name for one in made.protocol.adversaries())):
        assert not re.search(r"\b(server|shuffler|synchronisations?)\b", text), text
    leaking = (
        made.guarantee
        if trust in ("local", "shuffled-users", "vector-sum")
        else made.changed(schedule=adaptive(3.0)).guarantee
    )
    assert "synchronisation" not in leaking.statement


@pytest.mark.parametrize("trust", PROMISING)
def test_what_no_silo_can_see_to_is_assumed(trust: str) -> None:
    """A silo counts its own visits; that nobody goes to another silo too is nobody's to enforce."""
    made = plan(trust)
    said, assumed = answers(made)["How often one may come"], " ".join(made.guarantee.assumes)
    if trust in ("local", "shuffled-users"):  # the silo is not trusted to count either
        assert said.endswith("; users enforce this themselves, since nobody else is trusted to")
        assert "comes no more often than stated above" in assumed
        assert "user key" not in str(made.guarantee)
        return
    assert "leaves out those that come more often" in said
    assert said.endswith("nobody enforces the number of silos, because no silo sees who visits another")
    assert "nobody visits more than 1 silo: no silo sees who visits another" in assumed
    assert "a person who comes to a silo more than once is given the same user key each time" in assumed


def test_nothing_is_assumed_of_silos_where_people_may_visit_all_of_them() -> None:
    three = plan("silo", 3, Privacy(1.0, 1e-5, silos_per_user=3))
    assert "enforce" not in str(three.guarantee)
    two = plan("silo", 3, Privacy(1.0, 1e-5, silos_per_user=2))
    assert "nobody visits more than 2 silos: no silo sees" in str(two.guarantee)


def test_what_does_not_run_live_says_nothing_of_live_noise() -> None:
    assert "Live noise" not in str(plan("local").guarantee)
    assert "Each user's noise is drawn on the grid" in str(plan("local").guarantee)
    assert "Live noise is drawn on the grid" in str(plan("silo").guarantee)


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central"])
def test_a_rule_that_looks_at_data_does_not_assume_that_times_are_fixed(trust: str) -> None:
    fixed, decided = (
        " ".join(plan(trust).changed(schedule=s).guarantee.assumes) for s in (every(5), adaptive(3.0, True))
    )
    assert "times and sizes of messages are fixed by the plan, not by data" in fixed
    assert "fixed by the plan, not by data" not in decided
    assert "a noisy rule, whose cost is counted, decides when silos synchronise" in decided


@pytest.mark.parametrize("trust", sorted(set(PROMISING) - {"shuffle", "shuffled-users", "vector-sum"}))
def test_add_remove_hides_whether_somebody_asks(trust: str) -> None:
    """Nobody can tell whether they took part, and that somebody asks is public: both cannot be promised."""
    added = plan(trust, privacy=Privacy(1.0, 1e-5, "add-remove"))
    for schedule in (every(5), clock(60.0)):
        with pytest.raises(ValueError, match=r"^visits must be 'private' under add-remove"):
            added.changed(schedule=schedule, visits="public")
    empty = "a person who stays away leaves their round empty"
    if trust == "local":  # users send for themselves: tests/protocol/trusts/test_shuffled_users.py
        return
    assert empty in str(added.guarantee)
    assert "a live federation runs this plan only on a clock" in str(added.guarantee)
    assert empty not in str(added.changed(schedule=clock(60.0)).guarantee)
    assert empty not in str(plan(trust).guarantee)


def test_where_silos_act_eagerly_nobody_is_served_by_the_public_model_alone() -> None:
    """So no page of theirs says it."""
    for acting in ("lazy", "eager"):
        said = answers(plan("silo", acting=acting, uncounted="public"))["Who does not count"]
        assert said.endswith(
            "they are served by the public model, like everybody else"
            if acting == "lazy"
            else "they are served like everybody else, by the public model and the raw sums of the batch so far"
        )


def test_public_visits_are_one_more_thing_that_is_public() -> None:
    made = plan("silo", visits="public")
    assert answers(made)["What is public"] == (
        "which silos take part, when they synchronise, how long messages are, every model, that somebody asks, when "
        "and how often they ask, and whether they share"
    )
    assert (
        "it is public that somebody asks, when and how often they ask, and whether they share: a silo may tick by "
        "counting requests, and people who opt out are not counted"
    ) in made.guarantee.assumes


@pytest.mark.parametrize("trust", ["local", "silo", "secure-sum", "central"])
@pytest.mark.parametrize(
    ("participations", "silos", "words"),
    [
        (1, 1, "the promise covers at most 1 visit to 1 silo, over the whole run"),
        (3, 1, "the promise covers at most 3 visits to 1 silo, over the whole run"),
        (1, 2, "the promise covers at most 1 visit to each of 2 silos, over the whole run"),
        (1200, 2, "the promise covers at most 1,200 visits to each of 2 silos, over the whole run"),
    ],
)
def test_how_often_at_the_defaults_too(trust: str, participations: int, silos: int, words: str) -> None:
    made = plan(trust, privacy=Privacy(1.0, 1e-5, participations=participations, silos_per_user=silos))
    said = answers(made)["How often one may come"]
    assert said.startswith(words)
    assert ("a silo counts visits by the user key it is given" in said) == (trust != "local")
    assert ("takes anybody without a key for a new person" in said) == (trust != "local")


# -- secure-sum: who is the adversary? --------------------------------------------------------------------------------


def seen_by_a_silo(made: Plan, colluding: int = 1) -> float:
    """The exact epsilon against silos that subtract their own noise from the total, by what is drawn."""
    protocol, privacy = made.protocol, made.privacy
    assert privacy is not None
    moved = math.sqrt(4.5) * np.linalg.norm(made.encoder.coefficients, axis=0).max() * privacy.silos_per_user
    left = protocol.scales.diagonal * math.sqrt(made.smallest_cohort - colluding)
    return gaussian_epsilon(moved / left, privacy.delta)


@pytest.mark.parametrize(("silos", "delta", "faced"), [(2, 1e-5, 1.465), (3, 0.1, 1.436)])
def test_any_one_silo_faces_the_printed_epsilon(silos: int, delta: float, faced: float) -> None:
    """Without counting on it, two hospitals face 1.465 of each other and three face 1.436, where 1 is printed."""
    default = plan("secure-sum", silos, Privacy(1.0, delta), bits=30)
    assert default.colluding is None
    assert default.colluders == 1
    assert seen_by_a_silo(default) == pytest.approx(1.0, rel=1e-4)
    assert SeesTotal(1) in default.protocol.adversaries()
    unprotected = default.changed(colluding=0)
    assert seen_by_a_silo(unprotected) == pytest.approx(faced, abs=5e-4)
    assert seen_by_a_silo(unprotected, colluding=0) == pytest.approx(1.0, rel=1e-4)
    faces = f"any one other silo, even with one of the two: epsilon = {at_most(seen_by_a_silo(unprotected))}"
    assert faces in answers(unprotected)["If parties collude"]
    assert answers(unprotected)["Against whom"] == "the mixer alone or the analyzer alone"
    assert "The analyzer knows none of their noise." in str(unprotected.guarantee)
    assert f"Each of the {silos} adds noise with 1/{silos} of the variance above" in str(unprotected.guarantee)
    assert unprotected.protocol.scales.bias == pytest.approx(default.protocol.scales.bias * math.sqrt(1 - 1 / silos))


@pytest.mark.parametrize("trust", sorted(set(trusts.names()) - {"secure-sum"}))
def test_where_silos_do_not_share_noise_collusion_changes_none_of_it(trust: str) -> None:
    assert plan(trust).colluders == 0
    with pytest.raises(ArgumentError, match="colluding must be left out"):
        plan(trust, colluding=3)


@pytest.mark.parametrize("colluding", [1, 2, 5])
@pytest.mark.parametrize("visits", [1, 3])
def test_numbers_of_a_secure_sum_with_several_colluding(colluding: int, visits: int) -> None:
    made = plan("secure-sum", 10, Privacy(1.0, 1e-3, silos_per_user=visits), cohort=8, colluding=colluding, bits=30)
    honest, who = 8 - colluding, "any one other silo" if colluding == 1 else f"any {colluding} other silos"
    text, said = str(made.guarantee), answers(made)
    assert said["Against whom"] == f"{who} together with either the mixer or the analyzer"
    assert f"against {said['Against whom']}. If mixer and analyzer collude" in made.guarantee.statement
    assert seen_by_a_silo(made, colluding) == pytest.approx(1.0, rel=1e-4)
    one_more = seen_by_a_silo(made, colluding + 1)
    more = f"any {colluding + 1} other silos, even with one of the two: epsilon = {at_most(one_more)}"
    assert more in said["If parties collude"]
    assert f"At least 8 silos take part in a sync. {'One of them knows its' if colluding == 1 else colluding}" in text
    assert f"Each of the other {honest} adds noise with 1/{honest} of the variance above" in text
    assert "at least 8 of the 10 silos are there" in said["If a silo is missing"]
    alone = together(made)
    both = f"mixer and analyzer together, even with all other silos: epsilon = {at_most(alone)};"
    assert said["If parties collude"].startswith(both)
    assert f"each silo's own noise still gives ({at_most(alone)}, 0.001)" in made.guarantee.statement
    larger = re.search(r"mu is then (\S+?)(?: instead of (\S+))?, which is an exact epsilon of (\S+)\.", text)
    assert larger is not None
    ratio = float(larger[1]) / float(larger[2] or larger[1])
    assert ratio == pytest.approx(math.sqrt(honest / visits), rel=5e-4)  # not sqrt(honest) for several silos
    assert float(larger[3]) == pytest.approx(alone, rel=1e-3)


def together(made: Plan) -> float:
    """Mixer and analyzer: every release of each visited silo with its own noise alone, composed in squares."""
    privacy = made.privacy
    assert privacy is not None
    moved = math.sqrt(4.5) * np.linalg.norm(made.encoder.coefficients, axis=0).max()
    each = moved / made.protocol.scales.diagonal
    return gaussian_epsilon(compose_gdp(*[each] * privacy.silos_per_user), privacy.delta)


def test_with_one_honest_silo_each_ones_own_noise_is_enough() -> None:
    made = plan("secure-sum", 2, bits=30)
    assert together(made) == pytest.approx(1.0, rel=1e-4)
    assert "more silos together gain nothing, because each silo's own noise is enough" in str(made.guarantee)
    assert "The other one adds all of the noise stated above." in str(made.guarantee)
    assert re.search(r"the silo's own: mu is then \S+, which is an exact epsilon", str(made.guarantee))
    assert made.protocol.scales == pytest.approx(made.changed(trust="silo").protocol.scales)


def test_under_a_private_rule_collusion_leaves_the_rules_share_as_it_is() -> None:
    made = plan("secure-sum", 10, bits=30).changed(schedule=adaptive(3.0, private=True))
    rule = math.sqrt(0.5) / gaussian_sigma(1.0, 1e-5)
    whole = 1 / gaussian_sigma(1.0, 1e-5)
    ratio = compose_gdp(rule * math.sqrt(9), rule) / whole  # releases have as much of mu^2 as the rule
    assert f"mu is then {at_most(ratio * whole, 5)} instead of {at_most(whole, 5)}" in str(made.guarantee)


# -- vector-sum: another silo knows its own noise ---------------------------------------------------------------------


@pytest.mark.parametrize("silos", [2, 3, 10, 100])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_against_another_silo_the_vector_sum_has_the_noise_of_the_others_alone(
    silos: int, adjacency: Adjacency
) -> None:
    """Theorem SDP-vec, solved for epsilon, with the noise bits that are left when one silo subtracts its own."""
    made = plan("vector-sum", silos, Privacy(1.0, 1e-5, adjacency))
    protocol = made.protocol
    assert isinstance(protocol, VectorSumProtocol)
    assert isinstance(protocol.coding, TheoremCoding)
    composed = 2 * math.sqrt(2 * made.encoder.touches * math.log(4 / 1e-5))  # one stream, of delta / 2
    log = math.log(4 * (made.dim**2 + 1) / protocol.coding.delta)
    faced = []
    for k in range(1, made.encoder.size + 1):
        node = protocol.node(k)
        left = node.noise_bits * node.users * (silos - 1) / silos
        faced.append(2 * composed * math.sqrt(24e4 / left) * node.grid * log)
    stated = re.search(
        r"Against any one other silo, which knows its own noise, it is \((\S+), 1e-05\)", str(made.guarantee)
    )
    assert stated is not None
    assert max(faced) <= float(stated[1]) * (1 + 5e-4)
    assert max(faced) == pytest.approx(math.sqrt(silos / (silos - 1)), rel=1e-4)
    said = answers(made)["If parties collude"]
    assert said.startswith(f"any one other silo, with the analyzer or without it: epsilon = {stated[1]};")
    assert f"The bits of {silos - 1} of {silos} silos are then left" in str(made.guarantee)
    assert "no silo tells the analyzer its own noise (for the first statement)" in made.guarantee.assumes


def test_a_vector_sum_of_one_silo_has_no_other_silo() -> None:
    assert "there is no other silo" in answers(plan("vector-sum", 1))["If parties collude"]
    assert "any one other silo" not in str(plan("vector-sum", 1).guarantee)


def test_where_the_theorem_does_not_reach_another_silo_nothing_is_promised_against_it() -> None:
    """Advanced composition in closed form is near its end at 20: a larger epsilon, for two silos, is not covered."""
    largest = next(e for e in range(400, 0, -1) if _promises(e))
    made = plan("vector-sum", 2, Privacy(float(largest), 0.1))
    assert "Nothing is promised against another silo, which knows its own noise." in made.guarantee.statement
    assert "with the analyzer or without it: nothing is promised;" in answers(made)["If parties collude"]


def _promises(epsilon: int) -> bool:
    try:
        return plan("vector-sum", 2, Privacy(float(epsilon), 0.1)).guarantee.promised
    except ValueError:
        return False


# -- several visits, each with noise of its own -----------------------------------------------------------------------


@pytest.mark.parametrize(("visits", "silos"), [(1, 1), (4, 1), (2, 3)])
def test_local_noise_composes_over_visits_to_exactly_the_budget(visits: int, silos: int) -> None:
    """m visits need sqrt(m), not m: at (1, 1e-5) four need a deviation of 15.8, where 31.7 was drawn."""
    made = plan("local", privacy=Privacy(1.0, 1e-5, participations=visits, silos_per_user=silos), bits=30)
    one_visit = math.sqrt(4.5) / made.protocol.scales.diagonal
    assert gaussian_epsilon(compose_gdp(*[one_visit] * (visits * silos)), 1e-5) == pytest.approx(1.0, rel=1e-4)
    assert isinstance(made.protocol.adversaries()[0], SeesMessages)
    text = str(made.guarantee)
    if visits * silos == 4:
        assert made.protocol.scales.diagonal == pytest.approx(15.83, abs=0.01)
    if visits * silos > 1:
        times = visits * silos
        assert f"A user comes at most {times} times, with new noise each time" in text
        assert f"the shifts compose in squares, to sqrt {times} times the sensitivity" in text
    assert f"at most {visits} rounds of a silo, at worst" not in text


@pytest.mark.parametrize(
    ("trust", "how"), [("silo", "compose in squares, to sqrt 3 times"), ("central", "add up to 3 times")]
)
def test_several_silos_in_the_proof(trust: str, how: str) -> None:
    text = str(plan(trust, privacy=Privacy(1.0, 1e-5, silos_per_user=3)).guarantee)
    assert f"A user visits at most 3 silos; the shifts {how} the sensitivity." in text
    assert "visits at most" not in str(plan(trust).guarantee)


# -- a clock knows no batches beforehand ------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central"])
def test_acting_eagerly_by_the_clock_is_refused(trust: str) -> None:
    """How many may change with one person is not known beforehand; a plan used to count one per tick."""
    with pytest.raises(ValueError, match=r"^acting must be 'lazy' with a clock"):
        plan(trust, acting="eager").changed(schedule=clock(60.0))


@pytest.mark.parametrize(
    ("silos", "colluding", "said", "adds"),
    [
        (1, 0, "At least 1 silo takes part in a sync.", "It adds all of the noise stated above."),
        (2, 1, "At least 2 silos take part in a sync.", "The other one adds all of the noise stated above."),
        (2, 0, "At least 2 silos take part in a sync.", "Each of the 2 adds noise with 1/2 of the variance above"),
        (
            3,
            1,
            "At least 3 silos take part in a sync.",
            "Each of the other 2 adds noise with 1/2 of the variance above",
        ),
    ],
)
def test_who_adds_how_much_of_the_noise(silos: int, colluding: int, said: str, adds: str) -> None:
    text = str(plan("secure-sum", silos, Privacy(1.0, 1e-5), colluding=colluding).guarantee)
    assert said in text
    assert adds in text


def test_it_says_who_does_not_count_and_what_serves_them() -> None:
    made = plan("silo")
    local, public = (answers(made.changed(uncounted=way))["Who does not count"] for way in ("local", "public"))
    for said in (local, public):
        assert said.startswith(
            "anybody who has opted out or comes more often than that; nothing of such a visit leaves the silo (what "
            "counted before is not taken back), and they are served by "
        )
    assert "including its raw data; people who count are served only by the public model" in local
    assert "served by the public model, like everybody else" in public


def test_who_was_served_by_raw_data_is_assumed_to_count_nowhere_else() -> None:
    """Nobody can see to that: a silo knows its own people only."""
    both: tuple[Uncounted, ...] = ("local", "public")
    served = {
        uncounted: Plan(3, 8, 2, Privacy(1.0, 1e-5), "silo", schedule=every(2), uncounted=uncounted).guarantee.assumes
        for uncounted in both
    }
    assert set(served["local"]) - set(served["public"]) == {ELSEWHERE}
    assert set(served["public"]) <= set(served["local"])


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-50), (1e-6, 0.5), (1.0, 1e-5), (1e3, 0.5)])
def test_what_the_proof_prints_is_no_less_than_what_holds(epsilon: float, delta: float) -> None:
    """However small a promise is, its proof does not say that nothing at all is lost."""
    made = Plan(3, 4, 2, Privacy(epsilon, delta), schedule=every(1), colluding=1)
    text, request = str(made.guarantee), made.request
    whole = 1 / gaussian_sigma(epsilon, delta)
    for before, exact in (
        ("with mu = ", whole),
        ("mu is then ", whole * math.sqrt(2)),
        (" instead of ", whole),
        ("covariance together) by at most ", request.shift.exact),
        ("and by ", request.shift.rounding),
        ("that add up to at most ", request.encoder.column_norm**2),
    ):
        printed = float(re.search(re.escape(before) + r"([\d.e+-]+)(?<!\.)", text)[1])  # type: ignore[index]
        assert exact * (1 - 1e-9) <= printed <= exact * 1.01, before
    noise = float(re.search(r"standard deviation (\S+) on", text)[1])  # type: ignore[index]
    assert noise == pytest.approx(whole**-1 * request.sensitivity, rel=1e-4)
