"""Writes the index of a folder of pictures, from the summaries in the same folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedbandit.paper.figures.panels import PANELS
from fedbandit.paper.figures.summary import SAYS

__all__ = ["write_index", "write_summary"]

HEAD = """# The paper's figures

Made by `fedbandit paper run NAME`, or `all`, with `--data PATH` for judged documents and `--warfarin PATH` for the
last one. Runs and seed stand under each picture (`--runs`, `--seed`), and the same ones give the same numbers. Every
number and verdict was computed from the runs; `NAME.json` beside a picture has them. Regret is the time-averaged group
regret Reg_M(T)/T, ± one standard error over runs, and in the pictures with a band of two. An order is claimed where
zero lies outside the 95 % interval (Student's t over runs) of the difference of two curves at T, run by run on the
same users; otherwise it “cannot be told”.

Each panel is drawn in two versions. **as_proven**: the constants of the theorems, lazy acting (without it the theorems
do not hold) and rewards that respect the paper's assumptions. **as_simulated**: the constants, rewards and eager acting
of the published simulation, which come with no privacy guarantee. Both versions of the last panel have the constants
and the acting of as_proven: in **linear**, rewards are drawn from the best linear fit of the outcomes; in **outcomes**
a dose is right or wrong as the data say, and no linear model is exact.

The last column is the regret bound of the curve's theorem at T, by the constants of its proof (Lemmas general and
subG, for the noise that the plan adds) and so for its wider radii; “vacuous here” where it lies above what anybody can
lose, one per silo and round (the line “MT”, left out where it lies far above everything else), or above what acting at
random loses (the line “chance”). A picture shows the part of a bound that lies below MT.

The paper has 25 runs of each panel, and so has this command; where a picture shows fewer, `--runs` asked for them.
"""


def write_summary(folder: Path, summary: dict[str, Any], picture: str) -> None:
    """Write NAME.json into the picture's folder."""
    text = json.dumps({**summary, "picture": picture}, indent=1, ensure_ascii=False)
    (folder / f"{summary['name']}.json").write_text(text + "\n", encoding="utf-8")


def write_index(folder: Path) -> Path:
    """Write README.md with a section for each panel whose summary is in the folder."""
    files = [folder / f"{name}.json" for name in PANELS]
    summaries = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    path = folder / "README.md"
    path.write_text(HEAD + "".join(_section(summary) for summary in summaries), encoding="utf-8")
    return path


def _section(summary: dict[str, Any]) -> str:
    quick = "\n**A quick run: far fewer rounds and runs than the paper's.**\n" if summary["quick"] else ""
    parts = [
        f"\n## {summary['title']}\n{quick}\n![{summary['title']}]({summary['picture']})\n",
        f"{summary['observed']}. **{summary['conclusion']}**\n",
        *(_version(name, version, summary["silos"]) for name, version in summary["versions"].items()),
    ]
    return "\n".join(parts)


def _version(name: str, version: dict[str, Any], silos: int) -> str:
    falling = [label for label, curve in version["curves"].items() if curve["falls"]]
    still = [label for label in version["curves"] if label not in falling]
    lines = [
        f"**{name}** ({version['runs']} runs of {version['rounds']:,} rounds, d = {version['dim']}, seed "
        f"{version['seed']}): {SAYS[version['holds']]}.\n",
        "| curve | regret / T | noise of the worst prefix sum | λ | bound / T |",
        "|---|---|---|---|---|",
        *(_row(label, curve) for label, curve in version["curves"].items()),
        "",
        *(f"- {finding['text']}" for finding in version["findings"]),
        f"- Acting at random loses {version['chance']:.4g} per round; {_most(name, silos)}.",
        *(f"- Left out: {label}: {why}" for label, why in version["left_out"].items()),
        f"- Lower at the end than after a tenth of the rounds: {'; '.join(falling) or 'none'}."
        + (f" Not lower, or cannot be told: {'; '.join(still)}." if still else ""),
    ]
    if version["data"]:
        lines += ["", "Data: " + version["data"].replace("\n", " ")]
    return "\n".join(lines) + "\n"


def _most(version: str, silos: int) -> str:
    """What can be lost at most. The published simulation's rewards have no bound."""
    if version == "as_simulated":
        return "rewards are not bounded by 1 here, so there is no most that can be lost"
    return f"nobody can lose more than {silos:,}"


def _row(label: str, curve: dict[str, Any]) -> str:
    mean, stderr = curve["regret"]["mean"], curve["regret"]["stderr"]
    says = "no theorem" if curve["bound"] is None else curve["bound"]["says"]
    numbers = f"{mean:.4g} ± {stderr:.2g} | {curve['noise_std']:.4g} | {curve['regulariser']:.4g}"
    return f"| {label} | {numbers} | {says} |"
