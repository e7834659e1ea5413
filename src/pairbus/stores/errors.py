"""What goes wrong with a place where records are kept."""

from __future__ import annotations

from pairbus.errors import UnreachableError


class RecordStoreError(UnreachableError, OSError):
    """An object store refuses, or does not answer. Whoever is prepared for a disk that fails is for this."""

    # An OSError of two arguments takes them for a number and a text; these have one.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CallHungError(RecordStoreError):
    """It did not answer in time, and may still do what it was asked to."""
