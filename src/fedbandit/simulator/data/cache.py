"""A cache of parsed data on disk, so that a gigabyte of text is parsed only once."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit._arrays import Numbers

__all__ = ["entry", "load", "store"]

LAYOUT = 1  # raise it when the stored format changes: older entries are then never read


def entry(kind: str, files: Iterable[Path]) -> Path:
    """The path for the parse of these files; its name changes with any path, size or modification time."""
    resolved = [file.resolve() for file in files]
    states = [(file.stat().st_size, file.stat().st_mtime_ns) for file in resolved]
    return _folder() / f"{kind}-{_digest([str(file) for file in resolved])}-{_digest([LAYOUT, states])}.npz"


def load(path: Path) -> dict[str, Numbers] | None:
    """The arrays stored at `path`; None if there are none, or if they cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        warnings.warn(f"the cached parse {path} cannot be read, parsing again: {error}", stacklevel=3)
        return None


def store(path: Path, arrays: Mapping[str, Numbers]) -> None:
    """Write all arrays or none, and drop the entries of earlier states of the same files.

    If the folder cannot be written to, this only warns: the data are parsed again the next time.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            try:
                np.savez(part, **dict[str, Any](arrays))
                part.close()
                os.replace(part.name, path)
            except BaseException:
                part.close()
                os.unlink(part.name)
                raise
        _drop_older(path)
    except OSError as error:
        warnings.warn(f"the parse is not cached, {path.parent} cannot be written: {error}", stacklevel=3)


def _folder() -> Path:
    """$XDG_CACHE_HOME/fedbandit, or the platform's usual folder for caches."""
    home = os.environ.get("XDG_CACHE_HOME")
    if home:
        return Path(home) / "fedbandit"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "fedbandit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fedbandit"
    return Path.home() / ".cache" / "fedbandit"


def _drop_older(path: Path) -> None:
    same_files = path.name.rsplit("-", 1)[0]
    for older in path.parent.glob(f"{same_files}-*.npz"):
        if older != path:
            older.unlink(missing_ok=True)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
