"""The file of the spool that was written last: `spool_store`, rule 1."""

import os
from contextlib import suppress
from pathlib import Path

from pairbus.plumbing.file_names import Signpost
from pairbus.plumbing.files import SECRET, open_file, sync_directory, write_all
from pairbus.plumbing.kernel_sync import Ended, KernelSync

from .spool_records import AHEAD, BLANK


class OpenFile:
    """A file of which the end is being written: to open it again takes as long as to write to it."""

    __slots__ = ("_begin", "_descriptor", "_end", "_is_torn", "_room", "_signpost", "path")

    def __init__(self, path: Path, *, at: int) -> None:
        """Open it, or make it, to be written from a place on; what is behind that is cut off."""
        self.path = path
        # Where our records begin and end, and where it ends itself.
        self._begin = self._end = self._room = at
        # Whether something was begun behind the end that is not kept: it is written by its name then.
        self._is_torn = False
        try:  # to ask for a new one where there is one costs a failure
            self._descriptor = open_file(path, os.O_WRONLY | (0 if at else os.O_CREAT), SECRET)
        except FileNotFoundError:  # somebody has removed it
            self._descriptor = open_file(path, os.O_WRONLY | os.O_CREAT, SECRET)
        try:
            self._signpost = Signpost(str(path), self._descriptor)
            if os.fstat(self._descriptor).st_size != at:
                sync_directory(path.parent)  # first: it may have been made just now
                os.ftruncate(self._descriptor, at)
            os.lseek(self._descriptor, at, os.SEEK_SET)
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, data: bytes) -> None:
        """Have this on the disk, behind what is kept."""
        self._end = self._put(data, 0)

    def extend(self, data: bytes, *, limit: int) -> bool:
        """The same, with room for as much again as has come, where there is none left, up to a limit. False
        if the file is not what its name leads to, or not as long as it should be.
        """
        if self._is_torn:
            return False
        end = self._end + len(data)
        ahead = 0 if end <= self._room else max(0, min(self._end - self._begin, AHEAD, limit - end))
        self._put(data, ahead)
        if not self._signpost.leads_to(self._room):
            return False
        self._end = end
        return True

    def begin(self, data: bytes, sync: KernelSync, ended: Ended) -> bool:
        """Write this into the room that there is, and have the kernel sync it."""
        if self._is_torn or self._end + len(data) > self._room or not sync.is_able:
            return False
        self._is_torn = True
        try:
            write_all(self._descriptor, data)
        except OSError:  # the thread meets it as well
            return False
        return sync.begin(self._descriptor, ended)

    def end(self, size: int, *, is_synced: bool) -> bool:
        """So many bytes that were begun are on the disk, or are not; whether they are kept."""
        try:
            is_kept = is_synced and self._signpost.leads_to(self._room)
        except OSError:
            return False
        if is_kept:
            self._end += size
            self._is_torn = False
        return is_kept

    def _put(self, data: bytes, ahead: int) -> int:
        end = self._end + len(data)
        self._room = max(self._room, end + ahead)
        write_all(self._descriptor, data + BLANK * ahead if ahead else data)
        getattr(os, "fdatasync", os.fsync)(self._descriptor)  # macOS has none
        if ahead:
            os.lseek(self._descriptor, end, os.SEEK_SET)
        return end

    def close(self) -> None:
        """Cut off what is not kept, and let go of it."""
        if self._room > self._end:
            with suppress(OSError):  # it is put aside by whoever reads it
                os.ftruncate(self._descriptor, self._end)
        os.close(self._descriptor)
