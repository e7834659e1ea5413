"""Files that appear whole, that are on the disk when that is told, and that one process holds alone.

1. A file is *published*: written as a draft beside its place, under a hidden name that nobody else has, and
   then renamed. Readers, and whoever comes after a crash, find the old file or the new one, never a half.
   The draft is created anew with the mode of the file, so that a secret is at no moment open to others, and
   that nobody can have put another file in its place.
2. What is durable is fsynced before the rename, or the new name might lead to an empty file after a power
   cut; and the directory after it, or the old file might come back.
3. When a step fails, the draft is removed and the error raised. After an error of the last step, the fsync of
   the directory, the new file is there, and nobody knows which one a power cut would leave.
4. A lock is that of the system on an open file. It ends with its holder, however that ends, and whatever that
   has forked meanwhile.
5. The umask decides nothing. What holds messages or keys is for its owner alone: files 0600 in directories
   0700. A directory that was there keeps its mode, since several users may share it, and files that are no
   secret *follow* it: whoever may list it may read them, whoever may write to it may write to them. In a
   sticky one, like /tmp, everybody keeps to their own.
"""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

log = logging.getLogger(__name__)
#: The mode of a file that holds secrets: for its owner alone.
SECRET = 0o600
_PRIVATE = 0o700
_DRAFT = ".draft"
# So often a lock is asked for that another has; the system could wait for it, but for no limited time.
_TICK = 0.1
_NOT_OURS = -1
_MOST_GIVEN = 16 * 1024**2


def make_directory(path: Path, *, follows: bool = False, durable: bool = False) -> None:
    """Have a directory, and those above it, for their owner alone unless they are there already.

    `follows`: below one that its group may write to, so may it to the new ones. `durable`: the names of those
    that are new are on the disk when this returns.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    above = path.stat().st_mode
    is_shared = follows and above & stat.S_IWGRP and not above & stat.S_ISVTX
    mode = _PRIVATE | (above & (stat.S_IRWXG | stat.S_ISGID) if is_shared else 0)
    for directory in reversed(missing):
        try:
            directory.mkdir(mode)  # at once, for whoever else comes now and follows it
        except FileExistsError:  # somebody else was quicker, or a file is in the way
            if not directory.is_dir():
                raise
            continue
        directory.chmod(mode)
        if durable:
            _keep_name(directory)


def _keep_name(directory: Path) -> None:
    """Fsync the name of a new directory, or remove it: a directory that is found must be durable."""
    try:
        sync_directory(directory.parent)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            directory.rmdir()
        raise


def follow(directory: Path) -> int:
    """The mode of a file in a directory, by rule 5."""
    mode = directory.stat().st_mode
    return SECRET if mode & stat.S_ISVTX else SECRET | mode & 0o066


def open_file(path: Path, flags: int, mode: int) -> int:
    """Open a file; if it is made by that, with this mode, whatever the umask."""
    if flags & os.O_CREAT:
        with suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_EXCL | os.O_CLOEXEC, SECRET)
            os.fchmod(descriptor, mode)
            return descriptor
    return os.open(path, flags | os.O_CLOEXEC, mode)


def publish(path: Path, content: str | bytes, *, mode: int | None = None, durable: bool = True) -> None:
    """Put a file there, whole. See `drafted`."""
    with drafted(path, mode=mode, durable=durable) as descriptor:
        write_all(descriptor, content.encode() if isinstance(content, str) else content)


@contextmanager
def drafted(path: Path, *, mode: int | None = None, durable: bool = True) -> Iterator[int]:
    """Write to the descriptor of a draft; it is published when the block ends, and dropped if that raises.

    Without a `mode` it follows its directory. Not `durable`: for a picture of a moment that is soon replaced
    by the next one, and that nobody reads after a crash of the machine.
    """
    if not is_replaceable(path):
        raise OSError(errno.EINVAL, "It is no file, and would be replaced by one", str(path))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_DRAFT}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET)
    try:
        try:
            os.fchmod(descriptor, follow(path.parent) if mode is None else mode)
            yield descriptor
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except BaseException as error:
        # Of a descriptor the system has no name; without a number Python would show nothing else.
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)
        with suppress(OSError):  # the first error is the one to tell
            os.unlink(draft)
        raise
    if durable:
        sync_directory(path.parent)


def is_replaceable(path: Path) -> bool:
    """Whether a file may take the place of what is there, if anything is. A device, a pipe or a descriptor
    (`/dev/null`, `/dev/stdout`) would be gone for all who use it; root is not hindered by the system.
    """
    try:
        if path.is_symlink() and os.readlink(path).startswith("/proc/"):
            return False
        found = path.stat().st_mode
    except OSError:
        return True  # nothing is there, or whoever writes is told what is wrong
    return stat.S_ISREG(found) or stat.S_ISDIR(found)  # the system refuses a directory itself


def files_in(directory: Path, pattern: str) -> list[Path]:
    """The files of a directory that match, sorted; whatever is no file, like a pipe, is left out."""
    return [path for path in entries_in(directory, pattern) if path.is_file()]


def entries_in(directory: Path, pattern: str) -> list[Path]:
    """What matches in a directory, sorted; nothing if there is none. OSError for one that may not be listed,
    which `Path.glob` takes for an empty one.
    """
    try:
        return [directory / name for name in sorted(fnmatch.filter(os.listdir(directory), pattern))]
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_file(path: Path) -> bytes:
    """What is in a file. OSError for a pipe, which is waited for, or a device, which may have no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "It is no file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def read_given(path: Path) -> bytes:
    """What is in a file that a user names, or a pipe. OSError for too much: a device may have no end."""
    with path.open("rb") as file:
        content = file.read(_MOST_GIVEN + 1)
    if len(content) > _MOST_GIVEN:
        raise OSError(errno.EFBIG, f"It has more than {_MOST_GIVEN // 1024**2} MB", str(path))
    return content


def set_aside(path: Path) -> None:
    """Give what is damaged a name that nobody reads, and no other that was set aside has."""
    place, number = path.with_name(f"{path.name}.damaged"), 1
    while os.path.lexists(place):
        number += 1
        place = path.with_name(f"{path.name}.{number}.damaged")
    path.rename(place)
    log.error("%s, or what differs from it, is damaged: it is kept as %s", path, place.name)


def remove_drafts(directory: Path) -> None:
    """Remove drafts of killed processes, in a directory that no other process writes to."""
    for draft in directory.glob(f".*{_DRAFT}"):
        draft.unlink(missing_ok=True)


def publish_directory(draft: Path, path: Path) -> None:
    """Give a directory that has been written, by whomever, its final name, durably."""
    for found in [draft, *draft.rglob("*")]:
        _sync(found, os.O_DIRECTORY if found.is_dir() else 0)
    draft.rename(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk: those that were added, changed or removed."""
    _sync(directory, os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tighten(path: Path) -> None:
    """Take away what others may do with a file of ours that holds secrets."""
    found = path.stat()
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        path.chmod(SECRET)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in as many pieces as the system wants."""
    written = os.write(descriptor, data)
    if written == len(data):  # as nearly always
        return
    view = memoryview(data)[written:]
    while view:
        view = view[os.write(descriptor, view) :]


class FileLock:
    """A file that is open and locked, until `release` or the end of the process.

    A child that is forked meanwhile has none of it: the lock would outlive its holder, as whoever shares the
    open file shares the lock, and nobody could take over what a dead process has left.
    """

    __slots__ = ("descriptor",)

    _held: ClassVar[set[FileLock]] = set()

    def __init__(self, descriptor: int) -> None:
        """Use `take`."""
        self.descriptor = descriptor
        self._held.add(self)

    @classmethod
    def take(cls, path: Path, *, create: bool = True) -> FileLock | None:
        """Have the lock of a file at once; None if somebody else has it, or has just removed the file.

        A file that is made by that follows its directory.
        """
        try:
            descriptor = open_file(path, os.O_RDWR | (os.O_CREAT if create else 0), follow(path.parent))
        except FileNotFoundError:
            if create:  # there is no such directory
                raise
            return None
        is_ours = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = _leads_to(path, descriptor)
        except BlockingIOError:
            return None  # somebody else has it
        finally:
            if not is_ours:
                os.close(descriptor)
        return cls(descriptor) if is_ours else None

    def is_at(self, path: Path) -> bool:
        """Whether this name still leads to the file; else it was removed, moved or replaced."""
        return _leads_to(path, self.descriptor)

    def release(self) -> None:
        """Let others have it."""
        self._held.discard(self)
        if self.descriptor != _NOT_OURS:
            os.close(self.descriptor)

    @classmethod
    def forget_all(cls) -> None:
        """In a child: the parent's stay with the parent, and what is done with one here fails."""
        for lock in cls._held:
            with suppress(OSError):  # somebody has closed all that was open
                os.close(lock.descriptor)
            lock.descriptor = _NOT_OURS
        cls._held.clear()


os.register_at_fork(after_in_child=FileLock.forget_all)


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether a name still leads to the file that was opened by it."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def is_locked(path: Path) -> bool:
    """Whether somebody has the lock of a file, ours or not. Who asks for it now does not get it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def hold_alone(path: Path, *, create: bool = True, patience: float = 0.0) -> Iterator[FileLock | None]:
    """Hold the lock of a file meanwhile; None if it cannot be had at once, or within so many seconds."""
    ends = time.monotonic() + patience
    while (lock := FileLock.take(path, create=create)) is None and time.monotonic() < ends:
        time.sleep(_TICK)
    try:
        yield lock
    finally:
        if lock is not None:
            lock.release()
