"""A command that a text suggests names the pair as its reader did, so that it can be run as it is printed."""

import json
import shlex
from pathlib import Path

import click
import pytest

from pairbus.cli.main import app, main
from pairbus.cli.suggestions import runnable
from pairbus.errors import ConfigurationError

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


def test_errors_of_commands_for_one_namespace_do_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = tmp_path / "odd  name.json"
    address = "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=eA=="
    east = {"connection_string": address, "port": 1, "cert": ""}
    ready.write_text(json.dumps({"east": east, "control": {"url": "http://x", "token": ""}}))

    async def refuse(*_: object, **__: object) -> None:
        raise ConfigurationError("east has no entity 'o'; `pairbus entity ls` shows what there is")

    monkeypatch.setattr("pairbus.sdk.entities.administer", refuse)
    assert main(["entity", "show", "o", "--ready-file", str(ready), "--namespace", "east"]) == 2
    told = f"`pairbus entity ls --ready-file '{ready}' --namespace east`"
    assert told in capsys.readouterr().err, "with both spaces"


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ("ab", "`pairbus redrive --dry-run --config {file} --pair a` (and so for b) and"),
        ("a", "`pairbus redrive --dry-run --config {file} --pair a` and"),
        ("", "`pairbus redrive --dry-run --config {file} --pair NAME` and"),
    ],
)
def test_of_all_pairs_one_is_named_where_a_command_takes_one(tmp_path: Path, pairs: str, told: str) -> None:
    file = tmp_path / "pairbus.toml"
    sides = 'primary_env = "P"\nsecondary_env = "S"\n'
    file.write_text("".join(f"[pairs.{name}]\n{sides}" for name in pairs))
    text = "`pairbus redrive --dry-run` and `pairbus syphon stop`"
    said = suggest(f"syphon run --all-pairs --config {file}", text)
    assert said == f"{told.format(file=file)} `pairbus syphon stop --config {file} --all-pairs`"


def test_a_text_outside_of_commands_stays() -> None:
    assert runnable("`pairbus provision`") == "`pairbus provision`"
