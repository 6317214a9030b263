"""A report is one file: charts, their data and tables; it needs nothing and lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import json
import re

from fedbandit.web.html_report import ReportPart, page

CHART = {"kind": "line", "title": "t", "x": "x", "y": "y", "series": [{"name": "</script><b>", "x": [1], "y": [2]}]}


def test_it_needs_nothing_and_lets_nothing_else_in() -> None:
    text = page("A <title>", [ReportPart("Over & time", "<p>said</p>", CHART)])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    script, style = _inside(text, '<script type="module">', "</script>"), _inside(text, "<style>", "</style>")
    for tag, content in (("script-src", script), ("style-src", style)):
        found = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag} 'sha256-{found}'" in policy[1]
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    assert "src=" not in text


def test_what_is_shown_cannot_end_the_script_or_the_heading() -> None:
    text = page("A <title>", [ReportPart("Over & time", "", CHART)])
    assert "A &lt;title&gt;" in text
    assert "Over &amp; time" in text
    assert text.count("</script>") == 2
    data = json.loads(_inside(text, '<script type="application/json" id="data">', "</script>"))
    assert data[0]["series"][0]["name"] == "</script><b>"
    assert data[0]["id"] == "part-0"


def _inside(text: str, before: str, after: str) -> str:
    return text.split(before, 1)[1].split(after, 1)[0]
