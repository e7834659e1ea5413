"""Numbers of the command line that are none."""

from collections.abc import Iterator
from typing import Any

import click
import pytest

from pairbus.cli.main import app
from pairbus.cli.numbers import DURATION

from .process import call


def options_of(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every option below a command that takes a number."""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from options_of(below, (*words, name))
    for option in command.params:
        if isinstance(option.type, click.FloatRange | click.IntRange | type(DURATION)):
            yield " ".join((*words, option.opts[0])), option.type


def test_no_option_takes_what_is_no_number() -> None:
    taken = []
    found = dict(options_of(app))
    for name, kind in found.items():
        for text in ("nan", "inf", "-inf", "1e300", "1e400", "9" * 40, "some"):
            try:
                kind.convert(text, None, None)
            except click.BadParameter:
                continue
            taken.append(f"{name} {text}")
    assert "syphon plan --app-rate" in found
    assert taken == []


@pytest.mark.parametrize("value", ["nan", "1e300", "0"])
def test_a_time_to_wait_has_an_end(value: str) -> None:
    done = call("syphon", "status", "--state", "somewhere", "--watch", "--interval", value)
    assert done.returncode == 2
    assert f"'{value}' is not a number from 0.1 to 86400." in done.stderr


def test_help_says_what_a_number_may_be_in_words() -> None:
    odd = {
        name: shown
        for name, kind in options_of(app)
        if isinstance(kind, click.FloatRange | click.IntRange)
        and (set(shown := kind._describe_range()) & set("<>=x") or "range" in kind.name)
    }
    assert odd == {}
    shown = call("check", "--help").stdout
    assert "[default: 21600; above 0]" in " ".join(shown.split())
