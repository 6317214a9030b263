"""What can be copied from the page: the plan as a file, the same plan in Python, and its certificate."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from fedbandit._validate import ArgumentError
from fedbandit.audit.cases import reduced
from fedbandit.audit.certificate import certificate
from fedbandit.audit.pages import html
from fedbandit.audit.report import audit
from fedbandit.plan import Plan
from fedbandit.planner.best import Recommendation
from fedbandit.planner.consortium import Consortium

__all__ = ["as_python", "as_toml", "certified", "chosen"]

TRIALS = 2_000  # of the certificate's audit, which then takes seconds, not minutes; the certificate says how many


def chosen(advice: Recommendation, name: str | None) -> Plan:
    """The plan of the protocol `name`; by default of the best one."""
    found = [one.plan for one in advice.options if one.plan is not None and name in (None, "", one.name)]
    if not found:
        raise ArgumentError("use", f"must be a protocol that is possible here, got {name!r}")
    return found[0]


def as_toml(plan: Plan, consortium: Consortium) -> str:
    """The file that `fedbandit plan --best --out` writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.toml"
        plan.save(file, consortium.as_dict())
        return file.read_text(encoding="utf-8")


def as_python(consortium: Consortium, name: str) -> str:
    """A program that finds the same plan."""
    fields = {key: value for key, value in consortium.as_dict().items() if key != "privacy"}
    budget = ", ".join(f"{key}={value!r}" for key, value in consortium.privacy.as_dict().items() if value is not None)
    lines = [
        "import fedbandit as fb",
        "from fedbandit.planner import Consortium, recommended",
        "",
        "consortium = Consortium(",
        *(f"    {key}={value!r}," for key, value in fields.items()),
        f"    privacy=fb.Privacy({budget}),",
        ")",
        "advice = recommended(consortium)",
        f"plan = next(one.plan for one in advice.options if one.name == {name!r})",
        "print(plan.guarantee)",
    ]
    return "\n".join(lines) + "\n"


def certified(plan: Plan) -> str:
    """The page that `fedbandit certificate` makes, with fewer trials in its audit."""
    report = audit(reduced(plan), TRIALS, 0, 1, lambda share: None)
    return html(certificate(plan, report, datetime.now(UTC).date()))
