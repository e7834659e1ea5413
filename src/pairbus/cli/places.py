"""Files and directories, places where records are kept, and texts, as options of commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import is_replaceable

if TYPE_CHECKING:
    from pairbus.stores.places import RecordPlace

_EMPTY = "it is empty: has a variable of the shell no value?"


class _NamedPath(click.Path):
    """A file or directory. An empty name would be that of the directory that one is in."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists=exists, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(_EMPTY, param, ctx)
        return super().convert(value, param, ctx)


class PlaceType(click.ParamType):  # type: ignore[type-arg] # older versions of click have no argument
    """A directory, or the URI of an object store."""

    name = "directory|uri"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RecordPlace:
        from pairbus.stores.places import StoreUri, parse_place

        if value == "":
            self.fail(_EMPTY, param, ctx)
        try:
            place: RecordPlace = parse_place(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        if not isinstance(place, StoreUri) and place.exists() and not place.is_dir():
            self.fail(f"Directory {str(value)!r} is a file.", param, ctx)
        return place


class _Text(click.ParamType):  # type: ignore[type-arg] # older versions of click have no argument
    """Any text; bytes that are none are refused, and an empty one that would pass for none."""

    name = "text"

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self._may_be_empty = may_be_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from pairbus.pairing.names import check_text

        if value == "" and not self._may_be_empty:
            self.fail(_EMPTY, param, ctx)
        try:
            return check_text(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


def demand_text(command: click.Command) -> None:
    """Have a command, and those below it, refuse what is no text, or none at all, where it takes any."""
    for parameter in command.params:
        if parameter.type is click.STRING:
            parameter.type = _TEXT
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        demand_text(below)


def check_target(option: str, file: Path) -> None:
    """Whether a file can be put there is better known before the work than after it."""
    place = file.absolute().parent
    if not place.is_dir():
        raise ConfigurationError(f"{option} {file}: there is no directory {place}")
    if not os.access(place, os.W_OK):
        raise ConfigurationError(f"{option} {file}: nothing may be written in {place}")
    if not is_replaceable(file):
        raise ConfigurationError(f"{option} {file}: it is no file, and would be replaced by one")


DIRECTORY = _NamedPath(file_okay=False)
FILE = _NamedPath(dir_okay=False)
EXISTING_FILE = _NamedPath(exists=True, dir_okay=False)
PLACE = PlaceType()
BODY = _Text(may_be_empty=True)
_TEXT = _Text()
