"""Exit codes, and what is said when something goes wrong."""

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from pairbus import __version__
from pairbus.cli import main as entry
from pairbus.errors import ConfigurationError, PairbusError, UnreachableError
from tests.processes import killed_at_end

from .process import COMMAND, PATIENCE, call, run


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"pairbus, version {__version__}\n")


def test_help_lists_every_command_below_a_heading() -> None:
    done = call("--help")
    assert done.returncode == 0
    listed = re.findall(r"^  ([a-z]+) +[A-Z]", done.stdout, flags=re.MULTILINE)
    assert sorted(listed) == sorted(entry.HELP)
    assert done.stdout.index("Drain the backlog:\n  syphon ") < done.stdout.index("Embedded namespaces:\n")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["stats"], "There is no command 'stats'. Did you mean 'status'?"),
        (["fault", "clean"], "There is no command 'clean'. Did you mean 'clear'?"),
        (["fault", "xyz"], "There is no command 'xyz'. There are: clear, list, set."),
        (["check", "--outrage", "3"], "--outage"),
    ],
)
def test_the_nearest_name_is_told(arguments: list[str], hint: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert hint in done.stderr


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["broker", "--nonsense"], ["fault", "set"], ["fault", "list"]]
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigurationError("mend this\n  and that"), 2, "pairbus: mend this; and that\n"),
        (ConfigurationError("did you mean this?\n  Or that"), 2, "pairbus: did you mean this? Or that\n"),
        (UnreachableError("nobody there"), 3, "pairbus: nobody there\n"),
        (PairbusError("something else of ours"), 3, "pairbus: something else of ours\n"),
        (ConnectionRefusedError(111, "Connection refused"), 3, "pairbus: [Errno 111] Connection refused\n"),
        (PairbusError(), 3, "pairbus: PairbusError\n"),
        (click.UsageError("not like that"), 2, "Error: not like that\n"),
    ],
)
def test_an_error_becomes_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    line: str,
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(entry.app, "main", fail)
    assert entry.main([]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line)


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(entry.app, "main", fail)
    with pytest.raises(AssertionError, match="a bug"):
        entry.main([])


def test_interruption_has_the_code_that_shells_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry.app, "main", fail)
    assert entry.main([]) == 130


class _Interrupting:
    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def test_an_interruption_while_a_class_is_made_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 makes another error of it."""

    def import_something(*given: object, **options: object) -> None:
        type("Imported", (), {"field": _Interrupting()})

    monkeypatch.setattr(entry.app, "main", import_something)
    assert entry.main([]) == 130


def test_an_interruption_while_modules_are_imported_is_no_news() -> None:
    script = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
runpy.run_module("pairbus.cli", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_what_a_library_logs_of_an_interruption_is_no_news(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            logging.exception("while sending a command")
            logging.error("something else")
            raise

    monkeypatch.setattr(entry.app, "main", fail)
    assert entry.main([]) == 130
    assert caplog.messages == ["something else"]


def test_streams_that_are_closed_are_no_news(tmp_path: Path) -> None:
    command = shlex.join([*COMMAND, "drill", "--list"])
    done = subprocess.run(
        ["sh", "-c", f"{command} <&- >&- 2>{tmp_path}/err; echo $?"], capture_output=True, timeout=PATIENCE
    )
    assert (done.stdout, (tmp_path / "err").read_text(encoding="utf-8")) == (b"0\n", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_that_takes_nothing_is_named(unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "drill", "--list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (3, "pairbus: standard output: No space left on device\n")


def test_standard_error_that_takes_nothing_changes_nothing() -> None:
    """A full disk below a log must end no drain."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "config", "check", "--config", "none"], stderr=full, timeout=PATIENCE
        )
    assert done.returncode == 2


def test_a_directory_whose_name_is_no_text_can_be_told_of(tmp_path: Path) -> None:
    (tmp_path / "\udcff" / "records").mkdir(parents=True)
    done = call("spool", "ls", "--state", str(tmp_path / "\udcff"))
    assert (done.returncode, done.stdout) == (0, f"nothing in the spool of {tmp_path}/\\udcff\n")
    done = call("records", "trim", "--keep-days", "1", "--records", str(tmp_path / "\udcff"), "--json")
    assert [one["place"] for one in json.loads(done.stdout)] == [str(tmp_path / "\udcff")]


@pytest.mark.parametrize("encoding", ["latin-1", "cp437", "utf-8"])
def test_json_is_json_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    place = tmp_path / "é–😀" / "records"
    place.mkdir(parents=True)
    done = subprocess.run(
        [*COMMAND, "records", "trim", "--keep-days", "1", "--records", str(place), "--json"],
        capture_output=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert [one["place"] for one in json.loads(done.stdout.decode(encoding))] == [str(place)]


@pytest.mark.parametrize("option", ["--state", "--records", "--config"])
def test_an_empty_name_is_not_that_of_the_directory_that_one_is_in(option: str) -> None:
    done = call("syphon", "status", option, "")
    assert done.returncode == 2
    assert "it is empty: has a variable of the shell no value?" in done.stderr


def _parameters(command: click.Command, name: str) -> Iterator[tuple[str, click.Parameter]]:
    takes_text = (one for one in command.params if not getattr(one, "is_flag", False))
    yield from ((f"{name} {one.name}", one) for one in takes_text)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from _parameters(below, f"{name} {below.name}")


def test_an_empty_text_is_never_taken_for_one_that_was_left_out() -> None:
    """`messages purge --namespace "$UNSET"` must not empty another namespace than the one that was meant."""
    context = click.Context(entry.app)
    commands = [entry.app.get_command(context, name) for name in entry.HELP]
    found = [one for command in commands if command for one in _parameters(command, str(command.name))]
    assert len(found) > 100
    taken = []
    for place, parameter in found:
        with suppress(click.UsageError):
            parameter.type.convert("", parameter, context)
            taken.append(place)
    assert taken == ["messages send body"]


@pytest.mark.parametrize("option", ["--namespace", "--primary-env", "--pair"])
def test_an_empty_name_chooses_nothing(option: str) -> None:
    done = call("messages", "purge", "orders", "--yes", option, "")
    assert done.returncode == 2
    assert "it is empty: has a variable of the shell no value?" in done.stderr


def test_a_reader_that_goes_away_is_no_news() -> None:
    started = subprocess.Popen(
        [*COMMAND, "fault", "set", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with killed_at_end(started) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        # As a shell tells it of others: 1 would mean that a check has found something.
        assert process.wait(timeout=PATIENCE) == 141


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_background", [False, True], ids=["foreground", "background"])
def test_an_interrupt_that_python_drops_ends_the_program_all_the_same(
    number: signal.Signals, is_background: bool
) -> None:
    # As in imports: what a weak reference's callback raises is printed, and the program goes on.
    script = f"""
import signal, sys, weakref
if {is_background}:  # as shells start what is followed by &
    signal.signal(signal.SIGINT, signal.SIG_IGN)
from pairbus.cli import __main__, main

class Dropped: pass

def command(**settings):
    reference = weakref.ref(Dropped(), lambda _: signal.raise_signal({int(number)}))
    print("it went on")
    return 0

main.app.main = command
sys.exit(__main__.start())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    is_heard = number is signal.SIGTERM or not is_background
    expected = (-number, "", "") if is_heard else (0, "it went on\n", "")
    assert (done.returncode, done.stdout, done.stderr) == expected
