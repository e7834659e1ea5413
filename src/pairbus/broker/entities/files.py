"""The files that declare entities: read at the start, and again when they have changed.

A file that cannot be read when it has changed is told once for each change, and what was read before counts
until it is mended. So is a namespace in it that is not here; what it says of others counts.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from pairbus.errors import ConfigurationError
from pairbus.plumbing.toml_tables import read_text

from .declaration import DeclaredEntities, EntityFile
from .emulator_form import read_emulator_form
from .toml_form import read_toml_form

log = logging.getLogger(__name__)
_FileStamp = tuple[int, int, int] | None


def read_entity_file(path: Path) -> EntityFile:
    """What a file declares, whichever of the two forms it has."""
    text = read_text(path)
    is_json = path.suffix.lower() == ".json" or text.lstrip("\ufeff \t\r\n")[:1] == "{"
    return (read_emulator_form if is_json else read_toml_form)(text, where=str(path))


class EntityFiles:
    """Files with entities. Of what several name the last counts."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in paths}
        self._files = {path: read_entity_file(path) for path in self._stamps}
        for path in self._files:
            self._tell_passed_over(path)

    def check_namespaces(self, known: Iterable[str]) -> None:
        """Raise ConfigurationError if a file is about a namespace that there is not."""
        there = list(known)
        for path, file in self._files.items():
            for name in file.namespaces:
                if name not in there:
                    raise ConfigurationError(
                        f"{path}: there is no namespace {name!r} here, only {', '.join(there)}; add it (on "
                        f"the command line: --namespace {name}=PORT), or name one of these in the file"
                    )

    def declared(self, namespace: str) -> DeclaredEntities:
        """What a namespace is to have."""
        found = DeclaredEntities()
        for file in self._files.values():
            found = found.together_with(file.everywhere)
            found = found.together_with(file.namespaces.get(namespace, DeclaredEntities()))
        return found

    def reread(self, known: Iterable[str]) -> bool:
        """Read the files that have changed; whether there is anything new that can be used."""
        there, is_new = list(known), False
        for path, before in self._stamps.items():
            stamp = _stamp(path)
            if stamp == before:
                continue
            self._stamps[path] = stamp
            try:
                file = read_entity_file(path)
            except ConfigurationError as error:
                fields = {"file": str(path), "reason": str(error)}
                log.error("an entity file is not usable, and nothing of it is done", extra={"fields": fields})
                continue
            self._files[path] = file
            self._tell_passed_over(path)
            for name in file.namespaces.keys() - set(there):
                fields = {"file": str(path), "namespace": name, "there": ", ".join(there)}
                log.error("an entity file names a namespace that is not here", extra={"fields": fields})
            is_new = True
        return is_new

    def _tell_passed_over(self, path: Path) -> None:
        for place in self._files[path].passed_over:
            fields = {"file": str(path), "key": place}
            log.warning("a key of an entity file is not known, and passed over", extra={"fields": fields})


def _stamp(path: Path) -> _FileStamp:
    """What changes with a file; None while there is none, as between two steps of an editor."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
