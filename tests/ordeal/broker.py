"""A broker whose clock can be set: `python -m tests.ordeal.broker` and the arguments of `pairbus broker`."""

import sys

from pairbus.cli.main import main

from .signals import set_clock_by_signals

if __name__ == "__main__":
    set_clock_by_signals()
    sys.exit(main(["broker", *sys.argv[1:]]))
