"""Standard streams that the caller has closed (`<&-`, `>&-`, a bare daemon): /dev/null takes their place.

Python has None for them, which nobody expects; and the next file that is opened, of a store perhaps, would
get their number, to which a library or a child writes what it has to say.
"""

from __future__ import annotations

import os
import sys


def open_missing_streams() -> None:
    """Have all three."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            # The lowest free number: that of the stream itself, unless somebody has it by now.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, descriptor == number)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
