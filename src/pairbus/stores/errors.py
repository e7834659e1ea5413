"""Errors of record stores."""

from pairbus.errors import UnreachableError


class RecordStoreError(UnreachableError, OSError):
    """An object store refuses, or does not answer. It is an OSError, as the failure of a disk is."""

    # OSError takes two arguments for errno and text; these errors have one.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CallHungError(RecordStoreError):
    """No answer in time; the call may still take effect."""
