"""Replay a history: `python -m tests.torture.simulation --seed N`; or play many and say which fail."""

import argparse
import sys
import time

from tests.torture.simulation.history import play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many histories; of several only failures are shown")
    asked = parser.parse_args()
    began, failed = time.process_time(), 0
    for seed in range(asked.seed, asked.seed + asked.count):
        history = play(seed)
        shown = history.lines if asked.count == 1 else history.lines[:1] if history.violations else []
        for line in (*shown, *(f"VIOLATION {violation}" for violation in history.violations)):
            print(line, flush=True)
        failed += bool(history.violations)
    seconds = time.process_time() - began
    print(f"{asked.count} histories, {failed} failed, {asked.count / seconds * 60:.0f} per minute of processor time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
