"""The command line as a program: the installed script, and `python -m pairbus.cli`."""

import signal
import sys


def start() -> int:
    """Run the command line of this process. Ctrl-C while modules are imported ends it in silence."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # or a shell has it ignored
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .main import main

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _hear
    return main()


def _hear(dropped: "sys.UnraisableHookArgs") -> None:
    """Ctrl-C that came in a callback, as imports have some, where Python can only print it and go on; or
    SIGTERM, which is an interrupt with its number.
    """
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    error = dropped.exc_value
    number = error.args[0] if error is not None and error.args else signal.SIGINT
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


if __name__ == "__main__":
    sys.exit(start())
