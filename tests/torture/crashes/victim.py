"""A party as its own process, as `fedbandit` runs it, that stops itself at its n-th durable operation.

python -m tests.torture.crashes.victim HOME STORE N
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fedbandit.federation import process
from fedbandit.federation.wire.link import Link
from tests.torture.crashes.points import Points, Stop, replace

__all__ = ["be", "main"]


def be(home: Path, store: Path, at: int, log: Path) -> None:
    """Run the party of this directory; die at its `at`-th operation, 0 for never."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    points, publish = Points(), Link.publish
    points.begin(Stop(at), store)
    points.watch_engines()

    async def counted(link: Link, subject: str, data: bytes, message_id: str) -> None:
        points.passed(f"publish {message_id}")
        await publish(link, subject, data, message_id)

    replace(Link, "publish", counted)
    os._exit(process.run(home))


def main() -> None:
    home, store, at = sys.argv[1:]
    be(Path(home), Path(store), int(at), Path(home) / "log")


if __name__ == "__main__":
    main()
