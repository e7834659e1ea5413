"""Every command shows examples, and each of them parses, as do the command lines of the documents."""

import shlex
from collections.abc import Iterator

import click
import pytest

from pairbus.cli.main import app
from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT
from tests.guards.test_documentation import commands, options_of

HEADING = "Examples:\n"
# What ends a command in a shell.
ENDS = {"|", "<", ">", "&", ";", "||", "&&", ">>"}


def command_lines(text: str) -> Iterator[list[str]]:
    """The words of each `pairbus …` in lines of shell."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line.replace("2>", ">"), posix=True, punctuation_chars="|&;<>()")
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:
            continue  # a text in quotes that goes over lines
        if "pairbus" in words and words[0] != "from":  # Python, in a document for the shell to write
            given = words[words.index("pairbus") + 1 :]
            end = next((number for number, word in enumerate(given) if word in ENDS), len(given))
            yield given[:end]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    command: click.Command = app
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    return command, words


def parse(words: list[str]) -> None:
    """As click does, but for files that need not exist and options that a variable gives."""
    command, rest = resolve(words)
    context = click.Context(command)
    values, left, _ = command.make_parser(context).parse_args(list(rest))
    assert left == [], f"too many arguments: {left}"
    for parameter in command.params:
        assert parameter.name is not None
        value = values.get(parameter.name)
        if isinstance(parameter, click.Argument) and parameter.required:
            assert isinstance(value, str), f"{parameter.name} is missing"
        if isinstance(value, str | list) and not isinstance(parameter.type, click.Path | click.File):
            parameter.type_cast_value(context, value)


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=[path for path, _ in commands()])
def test_the_examples_of_a_command_are_of_that_command_and_parse(path: str, command: click.Command) -> None:
    shown = command.get_help(click.Context(command, info_name=path)).partition(HEADING)[2]
    examples = list(command_lines(shown))
    assert examples, "give it an epilog: examples(…)"
    for words in examples:
        parse(words)
        assert path.split()[1:] == words[: len(path.split()) - 1]


def test_every_command_that_reports_takes_json() -> None:
    # These print a text for another program to read, and nothing else; the last tells its JSON by HTTP.
    printing = {"pairbus completion", "pairbus config schema", "pairbus config example", "pairbus dashboard"}
    without = {
        path
        for path, command in commands()
        if not isinstance(command, click.Group) and "--json" not in options_of(command)
    }
    assert without == printing


def test_the_command_lines_of_the_documents_parse() -> None:
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [
        (f"{file.name}: pairbus {shlex.join(words)}", words)
        for file in files
        for block in code_blocks(file.read_text(encoding="utf-8"), "(?:sh|console|bash)")
        for words in command_lines(block)
    ]
    assert len(found) > 20
    for line, words in found:
        try:
            parse(words)
        except (click.UsageError, AssertionError) as error:
            raise AssertionError(f"{line}: {error}") from error


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["fault", "set", "contoso", "nonsense"], click.BadParameter),
        (["fault", "set", "contoso"], AssertionError),
        (["fault", "sit", "contoso"], AssertionError),
        (["check", "--rat", "3"], click.NoSuchOption),
        (["check", "--rate"], click.BadOptionUsage),
        (["check", "--rate", "fast"], click.BadParameter),
        (["check", "orders"], AssertionError),
    ],
)
def test_what_does_not_parse_is_seen(words: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        parse(words)
