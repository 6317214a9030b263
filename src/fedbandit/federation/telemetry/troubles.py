"""What can be wrong with a party, by kind: a word for machines, and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["KINDS", "Troubles", "first"]

Troubles = Mapping[str, str]  # from kind to what is wrong, the most serious first; empty if nothing is wrong

KINDS = {
    "plan": "another party works under another plan: this one has stopped taking part",
    "behind": "others have seen later states of this party than its store has, or contradict themselves: nothing is"
    " drawn or closed",
    "store": "the store does not work",
    "certificate": "the broker's certificate cannot be verified",
    "key": "the broker does not know this party's key",
    "broker": "the broker does not answer",
    "streams": "the broker answers, but its streams do not",
    "size": "the broker does not accept messages as large as the plan's",
    "clock": "the clock cannot be trusted, or more ticks are overdue than a short stop explains",
    "sums": "more people have come than the plan's sums can hold",
    "format": "another party cannot read this one's messages: the versions do not match",
    "members": "this silo is no longer a member of the federation, or lacks the keys of one: it draws nothing",
    "others": "others have not yet said which state of this party they have seen last",
}


def first(troubles: Troubles) -> str | None:
    """The most serious of them in words, if there is any."""
    return next((troubles[kind] for kind in KINDS if kind in troubles), None)
