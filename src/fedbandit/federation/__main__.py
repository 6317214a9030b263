"""`python -m fedbandit.federation DIRECTORY` runs the party of that directory."""

from __future__ import annotations

import sys
from pathlib import Path

from fedbandit.federation.leaving import leave
from fedbandit.federation.process import run

if __name__ == "__main__":
    leave(run(Path(sys.argv[1])))
