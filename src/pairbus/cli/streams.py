"""Standard streams as commands can use them, whatever the caller has made of them.

1. One that is closed (`<&-`, `>&-`, a bare daemon) is /dev/null. Python has None for it, which nobody
   expects; and the next file that is opened, of a store perhaps, would get its number, to which a library or
   a child writes what it has to say.
2. What is no text in the encoding of standard output, such as a path that is no UTF-8, is written with
   escapes, as it is on standard error; JSON stays JSON by that.
"""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Have all three, and one that takes every text."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            # The lowest free number: that of the stream itself, unless somebody has it by now.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, descriptor == number)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
