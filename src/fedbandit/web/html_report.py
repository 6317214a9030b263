"""A report as one self-contained HTML file, to be kept or printed: the pages' charts, their data and tables.

Its content security policy allows only its own script and style sheet, by their hashes, and nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from fedbandit import _words
from fedbandit.evaluation.evaluating import RAW, Evaluation
from fedbandit.evaluation.replayed import Replay
from fedbandit.look import page_files

__all__ = ["ReportPart", "evaluation_report", "page", "replay_report"]

SCRIPTS = ("parts.js", "chart.js", "report.js")  # each script comes after those that it imports
STYLES = ("colours.css", "style.css")


class ReportPart(NamedTuple):
    """A heading, and under it a chart, HTML or both."""

    heading: str
    html: str = ""
    chart: dict[str, Any] | None = None


def page(title: str, parts: Sequence[ReportPart]) -> str:
    """The whole HTML file of a report."""
    script, style = _joined(SCRIPTS), "".join(_text(name) for name in STYLES)
    script = re.sub(r"^import .*$", "", script, flags=re.MULTILINE)
    script = re.sub(r"^export ", "", script, flags=re.MULTILINE)
    charts = [{"id": f"part-{number}", **part.chart} for number, part in enumerate(parts) if part.chart is not None]
    data = json.dumps(charts, allow_nan=False).replace("<", "\\u003c")
    policy = f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}"
    body = "".join(
        f'<section><h2>{escape(part.heading)}</h2><div id="part-{number}"></div>{part.html}</section>'
        for number, part in enumerate(parts)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><header><h1>{escape(title)}</h1></header><main>{body}</main>"
        f'<script type="application/json" id="data">{data}</script>'
        f'<script type="module">{script}</script></body></html>\n'
    )


def evaluation_report(found: Evaluation) -> str:
    """A report of what policies would have earned."""
    logged = found.logged
    rows = [
        {
            "name": one.policy,
            "note": None if one.refused is None else f"refused, {one.refused}",
            "points": [
                {"series": name, "value": worth.value, "low": worth.low, "high": worth.high}
                for name, worth in one.worth.items()
            ],
        }
        for one in found.judged
    ]
    reference = {"name": "as logged", "value": logged.value, "low": logged.low, "high": logged.high}
    label = f"mean reward, {found.level:.0%} intervals"
    chart = {"kind": "interval", "title": "What policies would have earned", "x": label, "rows": rows}
    columns = ("policy", "estimator", "value", "low", "high", "effective", "agreement")
    table = _table(
        "Worth", columns, ([_cell(row[name]) for name in columns] for row in found.frame.iter_rows(named=True))
    )
    told = [*(f"{one.policy}: refused, {one.refused}." for one in found.judged if one.refused), *found.remarks]
    return page(
        f"Evaluation of {logged.decisions:,} decisions",
        [
            ReportPart("Worth", table, {**chart, "reference": reference}),
            *([ReportPart("What to know", _words.listed(told))] if told else []),
            ReportPart("Assuming", _words.listed(found.assumes)),
            ReportPart("Who may see this", _words.paragraph(f"{RAW[0].upper()}{RAW[1:]}.")),
        ],
    )


def replay_report(found: Replay) -> str:
    """A report of what a federation would have earned on past records."""
    frame, past = found.frame, found.tape.past
    series = []
    for name in found.names:
        curve = frame.filter(frame["name"] == name)
        half = ((curve["high"] - curve["low"]) / 2).to_list()
        series.append({"name": name, "x": curve["step"].to_list(), "y": curve["mean"].to_list(), "half": half})
    label = f"mean reward so far, {found.level:.0%} intervals"
    chart = {"kind": "line", "title": "Mean reward per person", "x": "people per silo", "y": label, "zero": False}
    first = next(iter(found.plans))
    rows = []
    for name in found.names:
        worth, late = found.worth(name), found.late(name)
        ahead = "-" if name == first else str(found.excess(first, name))
        promise = found.plans[name].guarantee.statement if name in found.plans else "-"
        rows.append([name, *map(_cell, (worth.value, worth.low, worth.high, late.value)), ahead, promise])
    columns = ("who", "mean", "low", "high", "last third", f"{first} ahead by", "promise")
    return page(
        f"Replay of {len(past):,} people in {len(past.silos)} silos",
        [
            ReportPart("Over time", "", {**chart, "series": series}),
            ReportPart("In all", _table("In all", columns, rows)),
            *([ReportPart("What to know", _words.listed(found.remarks))] if found.remarks else []),
            ReportPart("Assuming", _words.listed(found.assumes)),
        ],
    )


def _table(label: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table that scrolls on its own in a narrow window, with the keyboard too."""
    table = _words.tabled(columns, rows)
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escape(label)}, table">{table}</div>'


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def _joined(names: Iterable[str]) -> str:
    return "\n".join(_text(name) for name in names)


def _text(name: str) -> str:
    found = page_files.asset(name)
    assert found is not None
    return found.body.decode()


def _hash(text: str) -> str:
    """The source of the policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
