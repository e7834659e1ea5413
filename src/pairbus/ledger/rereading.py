"""Reading beside others who replace what is read: anew, as often as they did, at last with them kept out."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from pairbus.errors import PairbusError
from pairbus.plumbing.files import hold_alone

# What replaces files is minutes apart: a reader that meets so many in a row locks it out.
_READINGS = 5
_PATIENCE = 60.0


class Listing(Protocol):
    """What is to be read."""

    def are_there(self) -> bool:
        """Whether nothing of it has been removed, or replaced."""


L = TypeVar("L", bound=Listing)
T = TypeVar("T")


def read_steadily(
    list_files: Callable[[], L], read: Callable[[L], T], *, lock: Path, directory: Path, rival: str
) -> T:
    """List, and read what was listed; the result is of files that all were there when that was done. `lock`
    is what a `rival` holds that replaces files.
    """
    with ExitStack() as kept_out:
        for reading in range(_READINGS + 1):
            if reading == _READINGS:
                kept_out.enter_context(_keep_out(lock, directory, rival))
            files = None
            try:
                files = list_files()
                found = read(files)
            except Exception as error:
                # What was to be read may have been removed, by the time that it was listed or later.
                is_there = files.are_there() if files else not isinstance(error, FileNotFoundError)
                if is_there or reading == _READINGS:
                    raise
                continue
            if files.are_there():
                return found
    raise PairbusError(f"the records in {directory} change while nobody should change them")


@contextmanager
def _keep_out(lock: Path, directory: Path, rival: str) -> Iterator[None]:
    with hold_alone(lock, patience=_PATIENCE) as held:
        if held is None:
            raise PairbusError(f"{rival} in {directory} does not end; try again")
        yield
