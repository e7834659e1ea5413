"""The sign that records of a directory are brought to another place, so that those in it are not all."""

from pathlib import Path

from pairbus.plumbing.files import publish, read_file
from pairbus.stores.places import RecordPlace

_SIGN = ".shipped"


def mark_shipped(directory: Path, place: RecordPlace) -> None:
    """Leave the sign."""
    if shipped_to(directory) != str(place):
        publish(directory / _SIGN, f"{place}\n")


def shipped_to(directory: Path) -> str | None:
    """The place, if there is such a sign."""
    try:
        return read_file(directory / _SIGN).decode(errors="replace").strip()
    except FileNotFoundError:
        return None
