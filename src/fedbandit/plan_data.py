"""A plan as plain data and back, in a file, and as HTML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from fedbandit import _validate, _words
from fedbandit import schedule as schedules
from fedbandit._validate import ArgumentError
from fedbandit.bandit.policies import UCB, as_policy
from fedbandit.bandit.prior import Prior
from fedbandit.privacy.budget import Privacy
from fedbandit.problem.public_schema import Schema

if TYPE_CHECKING:
    from fedbandit.plan import Plan

__all__ = ["CONSORTIUM", "PERSONAL_SHARE", "as_dict", "as_html", "read", "values", "write"]

PERSONAL_SHARE = 0.2  # share of mu^2 that learning silos' own part of theta spends, unless a plan says otherwise
# Fields that were added later, and the values that plans without them have. A field with that value is not written, so
# that older plans keep their hashes.
LATER: dict[str, Any] = {
    "people": 1,
    "uncounted": None,
    "schema": None,
    "policy": UCB,
    "apprentice": False,
    "forget": 1.0,
    "endless": False,
    "personal": (),
    "personal_share": PERSONAL_SHARE,
    "prior": None,
}
CONSORTIUM = "consortium"  # the table of a plan's file that says what the plan was chosen for


def as_dict(plan: Plan) -> dict[str, Any]:
    """The plan as plain data; `values` reads it back."""
    data = asdict(plan)
    data["schedule"] = schedules.as_dict(plan.schedule)
    if plan.privacy is not None:
        data["privacy"] = plan.privacy.as_dict()
    if plan.schema is not None:
        data["schema"] = plan.schema.as_dict()
    for name, meant in LATER.items():
        if getattr(plan, name) == meant:
            del data[name]
    return json.loads(json.dumps(data, default=_plain))  # type: ignore[no-any-return]


def values(data: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The values of a plan's `fields` as `as_dict` wrote them; unknown names are refused. A table `consortium` is
    ignored."""
    found = {name: value for name, value in data.items() if name != CONSORTIUM}
    sizes = ("silos", "rounds") if found.get("schema") else ("silos", "rounds", "dim")
    _validate.known_keys("plan", found, fields, required=sizes)
    for name, made in (
        ("privacy", Privacy.from_dict),
        ("schedule", schedules.from_dict),
        ("schema", Schema.from_dict),
        ("prior", Prior.from_dict),
    ):
        if isinstance(found.get(name), dict):
            found[name] = made(found[name])
    if isinstance(found.get("policy"), dict):
        found["policy"] = as_policy(found["policy"])
    return found


def read(path: str | Path) -> dict[str, Any]:
    """The table of fields in a TOML or JSON file."""
    text, file = Path(path).read_text(encoding="utf-8"), Path(path)
    data = tomllib.loads(text) if file.suffix.lower() == ".toml" else json.loads(text)
    if not isinstance(data, dict):
        raise ArgumentError("plan", f"must be a table of fields, got {type(data).__name__}")
    return data


def write(path: str | Path, data: dict[str, Any], consortium: Mapping[str, Any] | None) -> None:
    """Write fields as TOML or JSON, by the ending of the name; `consortium`, whom the plan is for, is a table of its
    own."""
    whole = _without_none(data | ({} if consortium is None else {CONSORTIUM: dict(consortium)}))
    kind = Path(path).suffix.lower()
    if kind not in (".toml", ".json"):
        raise ArgumentError("path", f"must end in .toml or .json, got {str(path)!r}")
    text = tomli_w.dumps(whole) if kind == ".toml" else json.dumps(whole, indent=2) + "\n"
    Path(path).write_text(text, encoding="utf-8")


def as_html(plan: Plan) -> str:
    """The plan, its guarantee and its schema as HTML."""
    budget = "none" if plan.privacy is None else plan.privacy.pair
    sent = "by data" if plan.bytes_per_silo is None else f"{plan.bytes_per_silo:,} bytes per silo"
    rounds = f"{plan.rounds:,}{' (a run without an end; figures are for these)' if plan.endless else ''}"
    rows = [
        ("silos, rounds, dimension", f"{plan.silos:,}, {rounds}, {plan.dim}"),
        ("budget", budget),
        ("trust", plan.trust),
        ("mechanism, schedule, acting", f"{plan.mechanism}, {plan.schedule}, {plan.acting}"),
        ("policy", str(plan.policy)),
        ("syncs", "by data" if plan.syncs is None else f"{plan.syncs:,}"),
        ("sent", sent),
        ("noise of the worst decoded sum", f"{plan.noise_std:.4g}"),
        ("lambda", f"{plan.regulariser:.4g}"),
        ("hash", plan.hash[:12]),
    ]
    schema = "" if plan.schema is None else plan.schema._repr_html_()
    return _words.tabled((), rows, "Plan") + plan.guarantee._repr_html_() + schema


def _without_none(data: dict[str, Any]) -> dict[str, Any]:
    """The data without fields that are None: TOML has no word for None, and a field left out means it."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in data.items()
        if value is not None
    }


def _plain(number: np.generic) -> Any:
    """A numpy number as one of Python's own."""
    return number.item()
