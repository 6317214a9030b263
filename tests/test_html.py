"""What a notebook shows of a plan, its guarantee, its schema and a result: whole HTML, with every text escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import fedbandit as fb

VOID = {"br"}


class Balanced(HTMLParser):
    """Every tag that is opened is closed; collects what can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.read: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.read.append(data)


def text_of(html: str) -> str:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return " ".join(parser.read)


SCHEMA = fb.Schema({"<script>": fb.Number(0, 1)}, actions=("a & b", "c"))
PLAN = fb.Plan(silos=3, rounds=50, privacy=fb.Privacy(1.0, 1e-5), schema=SCHEMA)


def test_a_plan_shows_its_numbers_its_promise_and_its_schema() -> None:
    html = PLAN._repr_html_()
    assert "<script>" not in html
    shown = text_of(html)
    for said in ("secure-sum", "(1, 1e-05)", PLAN.guarantee.statement, PLAN.guarantee.steps[0], "<script> x action"):
        assert said in shown
    assert PLAN.schema is not None
    assert PLAN.schema.warnings == () or PLAN.schema.warnings[0] in shown


@pytest.mark.parametrize(
    "plan", [fb.Plan(3, 50, 2, trust="none"), fb.paper.dubey(fb.Plan(3, 50, 2, fb.Privacy(1, 0.1)))]
)
def test_what_promises_nothing_says_so(plan: fb.Plan) -> None:
    assert "No privacy guarantee" in text_of(plan._repr_html_())


def test_a_result_shows_every_plan() -> None:
    plans = {"<b>": fb.Plan(2, 20, 2, trust="none"), "other": fb.Plan(2, 20, 2, trust="none", schedule=fb.every(5))}
    result = fb.simulate(fb.tasks.synthetic(dim=2, arms=3), plans, runs=2, seed=0)
    shown = text_of(result._repr_html_())
    for said in ("<b>", "other", f"{result.regret('other').mean:.4g}", "2 runs of 20 rounds, seed 0"):
        assert said in shown
