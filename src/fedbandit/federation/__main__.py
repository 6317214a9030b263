"""`python -m fedbandit.federation DIRECTORY` runs the party of that directory."""

import sys
from pathlib import Path

from fedbandit.federation.running import run

if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
