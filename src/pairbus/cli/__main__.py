"""`python -m pairbus.cli`: the command line without its installed script."""

from __future__ import annotations

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
