"""The ready file: how a running broker tells where it is, and how other commands find it again.

It is there, complete, for as long as the broker serves: it appears by rename, it is removed at a clean stop
unless it is another broker's by then, and one that an earlier run left behind is removed at the start. It
holds keys, so only its owner may read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.plumbing.files import SECRET, publish

from .places import FILE, check_target

if TYPE_CHECKING:
    from pairbus.broker.control import ControlClient

_F = TypeVar("_F", bound=Callable[..., Any])


def ready_file_option(command: _F, *, required: bool = True) -> _F:
    """The option by which a command is told which broker it speaks to."""
    return click.option(
        "--ready-file",
        type=FILE,
        envvar="PAIRBUS_READY_FILE",
        required=required,
        show_envvar=True,
        help="The ready file of the running broker.",
    )(command)


def connect(ready_file: Path) -> ControlClient:
    """Speak to the control address of the broker that wrote the file."""
    from pairbus.broker.control import ControlClient  # late: help needs no broker

    return ControlClient.from_ready_file(ready_file)


def remove_stale(ready_file: Path | None) -> None:
    """A program that waits for the file must not find that of an earlier run."""
    if ready_file is None:
        return
    check_target("--ready-file", ready_file)
    ready_file.unlink(missing_ok=True)


@contextmanager
def announced(described: Mapping[str, Any], ready_file: Path | None) -> Iterator[None]:
    """Have the file there while the block runs."""
    if ready_file is None:
        yield
        return
    said = json.dumps(described, indent=2)
    # Not durably: a broker does not outlive its machine.
    publish(ready_file, said, mode=SECRET, durable=False)
    try:
        yield
    finally:
        # A broker that took our place is announced there by now.
        with suppress(FileNotFoundError):
            if ready_file.read_text(encoding="utf-8") == said:
                ready_file.unlink()
