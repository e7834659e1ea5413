"""A command that a text suggests names the pair as its reader did, so that it can be run as it is printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from pairbus.cli.main import app
from pairbus.cli.suggestions import runnable

from .process import call


def suggest(given: str, text: str) -> str:
    """What `runnable` makes of a text while a command line runs."""
    words = shlex.split(given)
    context = app.make_context("pairbus", words[:1])
    while isinstance(context.command, click.Group):
        command = context.command.get_command(context, words.pop(0))
        assert command is not None
        rest = words[:1] if isinstance(command, click.Group) else words
        context = command.make_context(command.name, list(rest), parent=context)
    with context:
        return runnable(text)


@pytest.mark.parametrize(
    ("given", "text", "told"),
    [
        ("syphon plan", "`pairbus syphon run --once`", "`pairbus syphon run --once`"),
        (
            "syphon plan --pair shop --config 'a b.toml' --rate 5 --include-extra",
            "do `pairbus syphon run --once`, or not",
            "do `pairbus syphon run --once --config 'a b.toml' --pair shop --include-extra`, or not",
        ),
        (
            "check --primary-env P --secondary-env S --option a=1 --option b=2",
            "`pairbus provision`",
            "`pairbus provision --primary-env P --secondary-env S --option a=1 --option b=2`",
        ),
        (
            "status --state /var/x --pair shop",
            "`pairbus spool replay`, `pairbus provision`",
            "`pairbus spool replay --pair shop --state /var/x`, `pairbus provision --pair shop`",
        ),
        ("status --state /var/x", "see `pairbus spool` and `pip`", "see `pairbus spool` and `pip`"),
    ],
)
def test_suggestions_name_what_the_reader_named(given: str, text: str, told: str) -> None:
    assert suggest(given, text) == told


def test_what_a_variable_names_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRBUS_CONFIG", "shop.toml")
    assert suggest("check --pair shop", "`pairbus provision`") == "`pairbus provision --pair shop`"


def test_errors_suggest_such_commands_too(tmp_path: Path) -> None:
    done = call("spool", "show", "nothing", "--state", str(tmp_path))
    assert f"`pairbus spool ls --state {tmp_path}` lists the names" in done.stderr


def test_a_text_outside_of_commands_stays() -> None:
    assert runnable("`pairbus provision`") == "`pairbus provision`"
