"""Which process this is, for those who ask with every call.

The system is asked once, and again in a child after a fork: to ask it each time is a system call a send.
"""

import os


class ThisProcess:
    """What a fork changes."""

    pid = os.getpid()

    @classmethod
    def look_again(cls) -> None:
        """In a child: it has a number of its own."""
        cls.pid = os.getpid()


os.register_at_fork(after_in_child=ThisProcess.look_again)
