"""Commands that a text suggests, completed so that they can be run as they are printed."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource

from pairbus.errors import PairbusError

from .config import find_config

# What says which pair, namespace or directory is meant; other options say what to do with it.
_PLACES = frozenset(
    {"config", "pair", "all_pairs", "primary_env", "secondary_env", "primary_name", "options", "state"}
    | {"count", "include_extra", "ready_file", "namespace", "side"}
)
_COMMAND = re.compile(r"`pairbus ([^`]+)`")


def runnable(text: str) -> str:
    """A text whose commands, in backticks, name the pair as the command that runs now was told it.

    An option goes with each command that takes it. One that a variable has set is set for that command too.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return text
    return _COMMAND.sub(lambda found: _completed(context, found[1]), text)


@contextmanager
def completing_errors() -> Iterator[None]:
    """What is raised in here suggests such commands too."""
    try:
        yield
    except PairbusError as error:
        error.args = (runnable(str(error)),)
        raise


def _completed(context: click.Context, suggested: str) -> str:
    root = context.find_root()
    command: click.Command | None = root.command
    for word in suggested.split():
        if not isinstance(command, click.Group):
            break
        command = command.get_command(root, word)
    taken = (
        frozenset[str]() if command is None else _PLACES & {option.name or "" for option in command.params}
    )
    words, others = [*_given(context, taken)], ""
    if "pair" in taken and "all_pairs" not in taken and context.params.get("all_pairs"):
        first, *rest = _pairs_of(context) or ["NAME"]
        words += ["--pair", first]
        others = f" (and so for {', '.join(rest)})" if rest else ""
    return f"`pairbus {' '.join([suggested, *map(shlex.quote, words)])}`{others}"


def _pairs_of(context: click.Context) -> list[str]:
    """The pairs of the file; none if that is what is wrong."""
    try:
        config = find_config(context.params["config"])
    except PairbusError:
        return []
    return [] if config is None else list(config.pairs)


def _given(context: click.Context, names: frozenset[str]) -> Iterator[str]:
    for option in context.command.params:
        if option.name is None or option.name not in names:
            continue
        if context.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[option.name]
        for one in value if option.multiple else [value]:
            yield option.opts[0]
            if one is not True:
                yield str(one)
