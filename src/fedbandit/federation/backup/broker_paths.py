"""Rewrites paths in a broker's configuration. Paths into the founder's directory are relative in a backup, and lead
into the new directory when it is restored. All other paths are up to whoever runs the broker, and stay unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedbandit import _validate

__all__ = ["moved_in", "taken_out"]

INSIDE = "./"  # in a backup, paths into the founder's directory begin with this


def taken_out(configuration: Path, home: Path) -> None:
    """Rewrite a copy of a configuration for a backup of the founder's directory `home`."""

    def shortened(text: str) -> str:
        for folder in (home.absolute(), home.resolve()):
            if Path(text).is_absolute() and Path(text).is_relative_to(folder):
                return f"{INSIDE}{Path(text).relative_to(folder)}"
        return text

    _rewrite(configuration, shortened)


def moved_in(configuration: Path, home: Path) -> None:
    """Rewrite a configuration from a backup for the directory `home`."""
    _rewrite(configuration, lambda text: str(home / text) if text.startswith(INSIDE) else text)


def _rewrite(configuration: Path, change: Callable[[str], str]) -> None:
    settings = _validate.table(str(configuration), configuration.read_bytes())
    configuration.write_text(json.dumps(_changed(settings, change), indent=1) + "\n")


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """The value with `change` applied to all strings in it, at any depth."""
    if isinstance(value, dict):
        return {key: _changed(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_changed(one, change) for one in value]
    return change(value) if isinstance(value, str) else value
