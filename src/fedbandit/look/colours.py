"""One colour per protocol, in every figure, page and document.

Every colour stands out from white and from the background of dark pages (WCAG asks for a contrast of 3 : 1). A label
that begins with a protocol's name has the protocol's colour; several budgets of one protocol differ by their lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["LITERATURE", "OTHERS", "PROTOCOLS", "colour_of", "colours", "css"]

PROTOCOLS = {
    "secure-sum": "#2478c7",
    "silo": "#d1495b",
    "central": "#2e933c",
    "local": "#8d5fd3",
    "isolated": "#7b7b7b",
    "fed-lin-ucb": "#55788f",
    "ldp": "#c8690f",
    "ldp-eager": "#e0552f",
    "ldp-alt": "#a98200",
    "sdp-amplified": "#b452a0",
    "sdp-vector-sum": "#128a8c",
    "super-agent": "#7a8a1c",
    "dubey": "#9c6b3f",
    "private-adaptive": "#d0508a",
}
LITERATURE = {
    "shariff-sheffet": "#548430",
    "zheng": "#6c84f0",
    "chowdhury-zhou": "#0090c0",
    "azize-basu": "#786cb4",
    "he": "#009c60",
}
ALIASES = {
    "alone": "isolated",
    "each silo alone": "isolated",
    "non-private": "fed-lin-ucb",
    "the paper's protocol": "ldp",
    "live": "secure-sum",  # what most people run
    "federation": "secure-sum",
}
# Colours for everything else. Those that differ most from the protocols in most figures come first.
OTHERS = ("#3f8f6b", "#8a7a2a", "#a6569b", "#5b6fd6", "#6d8b3a", "#c2556f", "#bf5a36", "#4b86a6")
NAMED = {**PROTOCOLS, **LITERATURE, **{alias: PROTOCOLS[name] for alias, name in ALIASES.items()}}


def colour_of(label: str) -> str | None:
    """The colour of the protocol that a label begins with; None if it begins with none.

    >>> colour_of("ldp-eager, epsilon = 1") == PROTOCOLS["ldp-eager"], colour_of("alone"), colour_of("lasso")
    (True, '#7b7b7b', None)
    """
    begins = [name for name in NAMED if re.match(rf"{re.escape(name)}(?![\w-])", label)]
    return NAMED[max(begins, key=len)] if begins else None


def colours(labels: Sequence[str]) -> dict[str, str]:
    """A colour for each label: its protocol's, or else the next of the colours that no protocol has."""
    others = [label for label in labels if colour_of(label) is None]
    return {label: colour_of(label) or OTHERS[others.index(label) % len(OTHERS)] for label in labels}


def css() -> str:
    """The same colours as CSS variables."""
    named = {f"protocol-{re.sub(r'[^a-z]+', '-', name)}": value for name, value in NAMED.items()}
    named |= {f"other-{number}": value for number, value in enumerate(OTHERS)}
    return ":root {\n" + "".join(f"  --{name}: {value};\n" for name, value in named.items()) + "}\n"
