"""A disk that forgets: after a power cut what was synced is there, and of the rest whatever it likes.

1. What a file holds is kept by an fsync of the file, its name by one of the directory, and neither by the
   other.
2. After a power cut each name leads where it led when its directory was last synced, or where it led last;
   each file holds what it held when it was synced, or what was written since, or that up to a place or from
   one on.
3. Files are real ones, in memory. A file system that gives the number of a file to another one would confuse
   this, so that there are no power cuts without `/dev/shm`.
"""

import os
import random
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

__all__ = ["ForgetfulDisk"]


class _Name(NamedTuple):
    number: int
    is_directory: bool


class ForgetfulDisk:
    """What of a directory outlives a power cut."""

    def __init__(self, root: Path, seed: object) -> None:
        self._root = root
        self._chance = random.Random(f"power {seed}")
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, _Name]] = {}

    def sync(self, descriptor: int) -> None:
        """A file, or the names in a directory, are on the disk."""
        found = os.fstat(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = _names_in(path)
        else:
            self._contents[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def cut_power(self) -> None:
        """Forget what was not synced, or some of it."""
        kept = self._remember(self._root.stat().st_ino, self._root, Path())
        shutil.rmtree(self._root)
        self._root.mkdir()
        self._contents.clear()
        self._names.clear()
        for path, content in kept.items():
            place = self._root / path
            if content is None:
                place.mkdir()
            else:
                place.write_bytes(content)
        for directory in [self._root, *(self._root / path for path, one in kept.items() if one is None)]:
            self._names[directory.stat().st_ino] = _names_in(directory)
        for path, content in kept.items():
            if content is not None:
                self._contents[(self._root / path).stat().st_ino] = content

    def _remember(self, number: int, directory: Path, place: Path) -> dict[Path, bytes | None]:
        """What is in a directory after the power cut, by its place: the content of files, None for others."""
        synced = self._names.get(number, {})
        now = _names_in(directory) if directory.is_dir() else {}
        kept: dict[Path, bytes | None] = {}
        for name in sorted({*synced, *now}):
            found = self._chance.choice((synced.get(name), now.get(name)))
            if found is None:
                continue
            if found.is_directory:
                kept[place / name] = None
                kept |= self._remember(found.number, directory / name, place / name)
            else:
                kept[place / name] = self._content(found.number, directory / name)
        return kept

    def _content(self, number: int, file: Path) -> bytes:
        synced = self._contents.get(number, b"")
        if not file.exists() or file.stat().st_ino != number:
            return synced
        now = file.read_bytes()
        place = self._chance.randint(0, len(now))
        begun, ended = now[:place] + synced[place:], synced[:place].ljust(place, b"\0") + now[place:]
        return self._chance.choice((synced, now, begun, ended))


def _names_in(directory: Path) -> dict[str, _Name]:
    with os.scandir(directory) as entries:
        return {entry.name: _Name(entry.inode(), entry.is_dir()) for entry in entries}
