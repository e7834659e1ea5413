"""What a user can type or set is documented, and what is documented exists."""

import re
from collections.abc import Iterator

import click

from pairbus.cli.main import HELP, app

from .sources import ROOT, project_files

CLI = ROOT / "docs" / "cli.md"
SETTINGS = ROOT / "docs" / "settings.md"
VARIABLE = re.compile(r"\bPAIRBUS_[A-Z][A-Z_]*[A-Z]\b")


def commands(command: click.Command = app, path: str = "pairbus") -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it, groups included."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


def sections() -> dict[str, str]:
    """The text below each heading of docs/cli.md that names a command: ``## `pairbus broker` ``."""
    parts = re.split(r"^#+ `(pairbus[^`]*)`.*$", CLI.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options_of(command: click.Command) -> set[str]:
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return {name for option in options for name in option.opts if name.startswith("--")}


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert sections().keys() == dict(commands()).keys()


def test_every_option_is_documented_and_every_documented_option_exists() -> None:
    documented = sections()
    for path, command in commands():
        rows = re.findall(r"^\| `(--[a-z-]+)", documented[path], flags=re.MULTILINE)
        assert set(rows) == options_of(command), path
        assert len(rows) == len(set(rows)), path


def test_help_lines_of_the_group_are_those_of_its_commands() -> None:
    assert isinstance(app, click.Group)
    for name, text in HELP.items():
        command = app.get_command(click.Context(app), name)
        assert command is not None
        assert command.name == name
        assert (command.help or "").splitlines()[0] == text


def test_every_command_and_option_has_help() -> None:
    for path, command in commands():
        assert command.help, path
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{path} {parameter.name}"


def test_every_environment_variable_is_documented_and_every_documented_one_is_read() -> None:
    used = {
        name
        for file, text in project_files()
        if not file.endswith(".md") and (not file.startswith("tests/") or file == "tests/conftest.py")
        for name in VARIABLE.findall(text)
    }
    documented = VARIABLE.findall(SETTINGS.read_text(encoding="utf-8"))
    assert used == set(documented)
