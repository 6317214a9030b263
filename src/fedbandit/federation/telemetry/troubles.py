"""What can be wrong with a party, by kind: a word for machines, and a sentence for people that goes with it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["KINDS", "Troubles", "first"]

Troubles = Mapping[str, str]  # kind to what is wrong, the gravest first; empty if nothing is

KINDS = {
    "plan": "another party works under another plan: this one has stopped taking part",
    "behind": "others have seen this party further than its store, or told two stories: nothing is drawn or closed",
    "store": "the store does not work",
    "certificate": "the broker's certificate cannot be verified",
    "key": "the broker does not know this party's key",
    "broker": "the broker does not answer",
    "streams": "the broker answers, its streams do not",
    "size": "the broker takes no message as large as the plan's",
    "clock": "the clock cannot be believed, or more ticks are overdue than a short stop explains",
    "sums": "more people have come than the plan's sums hold",
    "format": "another party does not read this one's messages: the versions do not fit",
    "members": "this silo is no member of the federation any more, or has not the keys of one: it draws nothing",
    "others": "others have not yet said how far they have seen this party come",
}


def first(troubles: Troubles) -> str | None:
    """The gravest of them in words, if there is any."""
    return next((troubles[kind] for kind in KINDS if kind in troubles), None)
