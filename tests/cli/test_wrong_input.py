"""Whatever an option is given: no traceback, a documented exit code, a word about it, and JSON that is JSON.

The commands, their options and their types are asked of the command line itself, so that what is added is
tried too. Nothing is reached and nothing is served: what a command does first on an event loop, or with
Spark, ends it.
"""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

from pairbus.errors import UnreachableError
from tests.guards.test_documentation import commands

from .process import call
from .test_complaints import NAMED, NOBODY

BROKER = ["--ready-file", "ready.json"]
ONE = ["--primary-env", "P"]
#: What a command needs to get as far as it can; the others work on a pair.
NEEDED = {
    "backlog sql": ["select 1", *NAMED],
    "broker": ["--namespace", "a=0"],
    "completion": ["bash"],
    "config check": [],
    "config example": [],
    "config schema": [],
    "cost estimate": [],
    "cost report": ["--records", "folder"],
    "counters": BROKER,
    "dashboard": ["--state", "folder"],
    "drill": ["--no-spark"],
    "entity create": ["orders", *ONE],
    "entity delete": ["orders", "--yes", *ONE],
    "entity ls": ONE,
    "entity show": ["orders", *ONE],
    "fault clear": ["contoso", *BROKER],
    "fault list": BROKER,
    "fault set": ["contoso", "refuse", *BROKER],
    "messages export": ["orders", *ONE],
    "messages import": ["orders", *ONE],
    "messages ls": ["orders", *ONE],
    "messages peek": ["orders", *ONE],
    "messages purge": ["orders", "--yes", *ONE],
    "messages send": ["orders", "hello", *ONE],
    "records trim": ["--keep-days", "3", "--records", "folder"],
    "send": ["orders", *NAMED],
    "spool drop": ["--all", "--yes", "--state", "folder"],
    "spool ls": ["--state", "folder"],
    "spool replay": ["--state", "folder", *NAMED],
    "spool show": ["name", "--state", "folder"],
}
COMMANDS = {path: command for path, command in commands() if not isinstance(command, click.Group)}
# Bytes that are no UTF-8, as the command line hands them on; and what a terminal would obey.
NO_TEXT, ESCAPES = "\udcff", "a\x1b[31m\nb"
NESTED = f"a={'[' * 3000}"
NUMBERS = ("", "nan", "inf", "-1", "0", "1e300", "9" * 40, "1.5", "many", NO_TEXT)
PLACES = (
    "",
    "none/such",
    "folder",
    "empty/below",
    "bytes",
    "broken.toml",
    "x" * 300,
    ESCAPES,
    NO_TEXT,
    "s3://",
    "/dev/zero",
)
TEXTS = ("", "=", "a=", "=b", "a=b", "a=1e400", "%s{0}", "//", "x" * 5000, NESTED, ESCAPES, NO_TEXT)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files of all sorts; nothing behind the command line works."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise UnreachableError("nothing is reached here")

    def refuse_to_run(work: Coroutine[Any, Any, Any]) -> NoReturn:
        work.close()
        refuse()

    monkeypatch.setattr(asyncio, "run", refuse_to_run)
    monkeypatch.setattr("pairbus.spark.session.open_spark", refuse)
    monkeypatch.setattr("pairbus.spark.java.check_java", lambda: 17)
    for module in ("broker", "send"):
        monkeypatch.setattr(f"pairbus.cli.{module}.configure_logs", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(b"\xff\x00\x80\n" * 9)
    (tmp_path / "broken.toml").write_text('[pairs\n{"a": [', encoding="utf-8")
    embedded = {"connection_string": NOBODY["P"], "cert": "empty"}
    described = {"contoso": embedded, "control": {"url": "http://127.0.0.1:1", "token": "x"}}
    (tmp_path / "ready.json").write_text(json.dumps(described), encoding="utf-8")
    return tmp_path


def values_for(parameter: click.Parameter) -> tuple[str, ...]:
    kind = parameter.type
    if isinstance(kind, click.Path | click.File) or kind.name == "directory|uri":
        return PLACES
    if isinstance(kind, click.Choice):
        return ("", "another", NO_TEXT)
    return NUMBERS if kind.name in ("integer", "float", "number", "duration", "amount") else TEXTS


def lines_for(command: click.Command, needed: list[str]) -> Iterator[list[str]]:
    """Each flag by itself, and each option and argument with each of the values that fit it least."""
    yield []
    yield needed
    arguments: list[click.Parameter] = [one for one in command.params if isinstance(one, click.Argument)]
    for parameter in command.params:
        name = parameter.opts[-1]
        if isinstance(parameter, click.Option) and parameter.is_flag:
            yield [*needed, name]
            continue
        rest = list(needed)
        if name in rest:
            place = rest.index(name)
            del rest[place : place + 2]
        for value in values_for(parameter):
            if isinstance(parameter, click.Option):
                yield [*rest, f"{name}={value}"]
            else:
                place = arguments.index(parameter)
                yield [*rest[:place], value, *rest[place + 1 :]]


def find_fault(done: Any) -> str | None:
    """What is wrong with how a command has ended."""
    if done.returncode not in range(5):
        return f"exit code {done.returncode}"
    if "Traceback" in done.stderr:
        return "a traceback"
    if done.returncode in (2, 3) and not (done.stderr.strip() or done.stdout.strip()):
        return "no word about it"
    if "--json" in done.args and done.stdout:
        try:
            json.loads(done.stdout)
        except ValueError:
            return "no JSON"
    return None


@pytest.mark.parametrize(("path", "command"), COMMANDS.items(), ids=COMMANDS)
def test_nothing_that_is_typed_ends_in_a_traceback(offline: Path, path: str, command: click.Command) -> None:
    words = path.split()[1:]
    as_json = ["--json"] if any("--json" in one.opts for one in command.params) else []
    variables = {**NOBODY, "XDG_STATE_HOME": str(offline / "state")}
    faults = []
    for line in lines_for(command, NEEDED.get(" ".join(words), NAMED)):
        try:
            done = call(*words, *line, *as_json, variables=variables)
        except Exception as error:  # noqa: BLE001  (each is a fault, and all are told)
            faults.append(f"{line}: {error!r}")
            continue
        if (fault := find_fault(done)) is not None:
            faults.append(f"{line}: {fault}: {done.stderr[-200:]}")
    assert not faults, "\n".join(faults)


def test_what_is_no_text_is_refused_wherever_any_text_is_taken() -> None:
    """Before a namespace, a page or a file is given it, which take it no more than the command does."""
    for path, command in COMMANDS.items():
        assert [each.opts for each in command.params if each.type is click.STRING] == [], path
    refused = call("entity", "show", NO_TEXT, "--primary-env", "NONE")
    assert refused.returncode == 2
    assert "'\\udcff' is not valid text: write it in UTF-8" in refused.stderr
