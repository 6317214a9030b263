"""`fedbandit status`: where a party stands, read from its own directory."""

from __future__ import annotations

from typing import Any

from fedbandit.cli import options, output
from fedbandit.privacy.budget import at_most, exactly

__all__ = ["status"]

SPENT = ("epsilon_spent", "epsilon_all_terms", "delta_all_terms")  # upper bounds: rounded up
BUDGET = ("epsilon", "delta")


def status(home: options.Home, json: options.Json = False) -> None:
    """Syncs, silos and budget of the party of a directory, whether it runs or not."""
    from fedbandit.federation.status import status as read

    known = read(home)
    if json:
        output.print_json(known)
    else:
        output.print_table(f"{known['role']} {known['party']}", ["", ""], [[k, _cell(k, v)] for k, v in known.items()])


def _cell(name: str, value: Any) -> str:
    if name in SPENT:
        return "no bound" if value is None else at_most(value)
    return exactly(value) if name in BUDGET and value is not None else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return output.number(value)
    if value is None:
        return "none"
    if isinstance(value, list):
        texts = [str(one) for one in value]
        if any("," in text for text in texts):  # sentences: a line for each
            return "\n".join(f"- {text}" for text in texts)
        return ", ".join(texts) or "none"
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
