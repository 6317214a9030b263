"""`python -m fedbandit` is the command `fedbandit`."""

from __future__ import annotations

from fedbandit.cli.main import main

if __name__ == "__main__":
    main()
