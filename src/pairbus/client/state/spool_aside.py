"""What the spool cannot send, kept until somebody decides: `pairbus spool`.

    DIR/refused/<name>.spool    a message that was refused for its own sake, with the reason
    DIR/damaged/<name>.bytes    a part of a file that is no record any more

The name tells where it was: the directory of its process, its file and its place there. So what is put aside
again after a crash takes the place of what was put aside before.
"""

import logging
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pairbus.client.sending.message import Message, data_of, message_id_of, raw_of, session_of
from pairbus.plumbing.files import SECRET, files_in, make_directory, publish, sync_directory

from .directory import spool_dir
from .packing import UnreadableMessages, pack, unpack
from .spool_records import SpoolRecord, framed, pieces_of

log = logging.getLogger(__name__)
_REFUSED, _DAMAGED = "refused", "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedMessage:
    """A message that was taken, and that no side takes; it is kept in `file`."""

    name: str
    path: str
    message_id: str
    session_id: str | None
    reason: str
    at: float
    scheduled_for: datetime | None
    size: int
    file: Path
    message: Message

    def described(self) -> dict[str, Any]:
        """What is told of it as JSON."""
        return {
            "name": self.name,
            "path": self.path,
            "message_id": self.message_id,
            "session_id": self.session_id,
            "reason": self.reason,
            "at": self.at,
            "scheduled_for": None if self.scheduled_for is None else self.scheduled_for.isoformat(),
            "bytes": self.size,
            "file": str(self.file),
        }

    def shown(self) -> dict[str, Any]:
        """All of it, as JSON."""
        raw, sections = raw_of(self.message), data_of(self.message)
        return {
            **self.described(),
            "application_properties": _plain(raw.application_properties),
            "annotations": _plain(raw.annotations),
            **({"body": repr(raw.body)} if sections is None else _text_or_base64(b"".join(sections))),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBytes:
    """Bytes of the spool that are no record any more; they are kept in `file`."""

    name: str
    size: int
    file: Path

    def described(self) -> dict[str, Any]:
        """What is told of them as JSON."""
        return {"name": self.name, "bytes": self.size, "file": str(self.file)}

    def shown(self) -> dict[str, Any]:
        """All of them, as JSON."""
        return {**self.described(), "base64": b64encode(self.file.read_bytes()).decode()}


def keep_refused(
    spool: Path, name: str, *, path: str, message: Message, when: datetime | None, reason: str, at: float
) -> Path:
    """Keep a message that was refused; it is on the disk when this returns."""
    packed = pack([message], scheduled_for=when, reason=reason, refused_at=at)
    return _keep(_refused_file(spool, name), framed(SpoolRecord(path, 1, packed)))


def is_refused(spool: Path, name: str) -> bool:
    """Whether a message of this name is kept already: a process that is gone may have been that far."""
    return _refused_file(spool, name).exists()


def _refused_file(spool: Path, name: str) -> Path:
    return spool / _REFUSED / f"{name}.spool"


def keep_damaged(spool: Path, name: str, data: bytes) -> Path:
    """Keep what cannot be read; it is on the disk when this returns."""
    return _keep(spool / _DAMAGED / f"{name}.bytes", data)


def _keep(file: Path, data: bytes) -> Path:
    make_directory(file.parent, durable=True)
    publish(file, data, mode=SECRET)
    return file


def list_refused(state_dir: Path) -> list[RefusedMessage]:
    """The messages of a state directory that were taken and are refused for good, the oldest first.

    It only reads. What is being dropped at this moment, or is damaged itself, is left out: `list_damaged`.
    """
    found = [_read_refused(file) for file in _refused_files(spool_dir(state_dir))]
    return sorted((one for one in found if one is not None), key=lambda one: (one.at, one.name))


def list_damaged(state_dir: Path) -> list[DamagedBytes]:
    """The parts of a spool that cannot be read any more."""
    spool = spool_dir(state_dir)
    files = _damaged_files(spool)
    files += [file for file in _refused_files(spool) if _read_refused(file) is None]
    return [
        DamagedBytes(name=file.stem, size=file.stat().st_size, file=file)
        for file in sorted(files)
        if file.exists()
    ]


def messages_in(damaged: Iterable[DamagedBytes]) -> int:
    """How many messages lie in records that are whole but cannot be read; nobody can tell of the rest."""
    pieces = (piece for one in damaged for piece in pieces_of(one.file.read_bytes()))
    return sum(piece.record.messages for piece in pieces if piece.record is not None)


def discard(aside: RefusedMessage | DamagedBytes) -> bool:
    """Remove what was put aside, for good; False if somebody else was quicker, to send it perhaps."""
    try:
        aside.file.unlink()
    except FileNotFoundError:
        return False
    sync_directory(aside.file.parent)
    return True


def count_refused(spool: Path) -> int:
    """How many messages were refused."""
    return len(_refused_files(spool))


def count_damaged(spool: Path) -> int:
    """How many parts cannot be read."""
    return len(_damaged_files(spool))


def _refused_files(spool: Path) -> list[Path]:
    return files_in(spool / _REFUSED, "*.spool")


def _damaged_files(spool: Path) -> list[Path]:
    return files_in(spool / _DAMAGED, "*.bytes")


def _read_refused(file: Path) -> RefusedMessage | None:
    try:
        data = file.read_bytes()
        record = next(pieces_of(data)).record
        if record is None:
            return None
        [message], about = unpack(record.packed)
        return _refused(file, record.path, message, about, size=len(data))
    except (OSError, LookupError, StopIteration, UnreadableMessages, ValueError) as error:
        log.debug("%s is no message that was refused: %s", file, error)
        return None


def _refused(file: Path, path: str, message: Message, about: dict[str, Any], *, size: int) -> RefusedMessage:
    return RefusedMessage(
        name=file.stem,
        path=path,
        message_id=message_id_of(message),
        session_id=session_of(message),
        reason=str(about["reason"]),
        at=float(about["refused_at"]),
        scheduled_for=about["scheduled_for"],
        size=size,
        file=file,
        message=message,
    )


def _text_or_base64(data: bytes) -> dict[str, str]:
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _plain(properties: Mapping[str | bytes, Any] | None) -> dict[str, str]:
    return {
        name.decode(errors="replace") if isinstance(name, bytes) else str(name): str(value)
        for name, value in (properties or {}).items()
    }
