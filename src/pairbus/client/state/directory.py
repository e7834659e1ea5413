"""Where a pair keeps what must outlive a process.

DIR/records/          redirect records of clients, receipts of pumps, and the operations of both
DIR/spool/            messages that neither side could take
DIR/status/           one file a running client
DIR/primary-reached   that the primary was reached once, and at which address
DIR/syphon.json       how the syphon that runs now is told to pause or stop
DIR/checkpoint/       the epoch of an endless syphon
DIR/verdict.json      what `pairbus verify` found when it was last asked
"""

import os
import tempfile
from pathlib import Path

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import make_directory


def default_state_dir(primary: str) -> Path:
    """The state directory of a pair, by the name of its primary: below XDG_STATE_HOME."""
    home = os.environ.get("XDG_STATE_HOME", "")
    # The standard has relative values ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return base / "pairbus" / primary


def records_dir(state_dir: Path) -> Path:
    """Where redirect records, receipts and operations lie."""
    return state_dir / "records"


def status_dir(state_dir: Path) -> Path:
    """Where running clients write their status."""
    return state_dir / "status"


def spool_dir(state_dir: Path) -> Path:
    """Where messages wait that neither side could take."""
    return state_dir / "spool"


def verdict_file(state_dir: Path) -> Path:
    """What the last verdict was, and when; for whoever looks on."""
    return state_dir / "verdict.json"


def check_state_dir(directory: Path, *, has_spool: bool) -> None:
    """ConfigurationError for one that is a mistake: a file is in its place, above it or below it, or rights
    are missing. A disk that is full, or has been mounted anew to be read only, is none: sends go on.
    """
    spool = [spool_dir(directory)] if has_spool else []
    for part in (records_dir(directory), status_dir(directory), *spool):
        _check_part(directory, part.absolute())


def _check_part(directory: Path, place: Path) -> None:
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise ConfigurationError(f"state_dir={str(directory)!r} cannot be used: {place} is no directory")
    is_read_only = os.statvfs(place).f_flag & os.ST_RDONLY
    if not is_read_only and not os.access(place, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"state_dir={str(directory)!r} cannot be used: this user may not write to {place}"
        )


def try_directory(directory: Path, size: int) -> None:
    """Make it, write so many bytes there that are gone at once, and raise the OSError that prevents it."""
    make_directory(directory, follows=True)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(directory)  # of a descriptor the system has no name
        raise
