"""Remembers, in the state directory, that a primary is known to be the right one.

A client that has never reached its primary cannot tell an outage from a mistyped host. One that is started
again in the middle of an outage need not guess: its predecessor, which has reached it or a backlog queue that
somebody else had made for it, has left a mark, with the address, so that another address is not taken for it.
"""

import logging
from pathlib import Path

from pairbus.plumbing.files import make_directory, publish, read_file

log = logging.getLogger(__name__)


class Landmark:
    """The mark of one primary. Its methods block; call them on a thread."""

    def __init__(self, directory: Path, endpoint: str) -> None:
        """Does no I/O."""
        self._path = directory / "primary-reached"
        self._endpoint = endpoint

    def is_set(self) -> bool:
        """Whether this primary is known."""
        try:
            return read_file(self._path) == self._endpoint.encode()
        except OSError:
            return False

    def set(self) -> None:
        """It is known from now on."""
        if self.is_set():
            return
        try:
            make_directory(self._path.parent, follows=True)
            publish(self._path, self._endpoint)
        except OSError as error:
            log.warning("cannot note that the primary is known: %s", error)
