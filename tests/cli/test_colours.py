"""Colour and progress are for terminals; columns stay straight with colour."""

import os
import pty
import subprocess
import sys

import click
import pytest

PROGRAM = """
from pairbus.cli.tables import coloured, draw_table, print_lines
rows = [("healthy", "now"), ("faulted", "then"), ("x", "-")]
print_lines(draw_table(("STATE", "SINCE"), [(coloured(state), since) for state, since in rows]))
"""
PLAIN = ["STATE    SINCE", "healthy  now", "faulted  then", "x        -"]


def shown_on_a_terminal(program: str = PROGRAM, **variables: str) -> str:
    """What a terminal gets that is both streams of a program."""
    ours, theirs = pty.openpty()
    try:
        environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        subprocess.run(
            [sys.executable, "-c", program],
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm", **variables},
            check=True,
            timeout=30,
        )
        return os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_shows_states_in_colour_and_columns_stay_straight() -> None:
    lines = shown_on_a_terminal().splitlines()
    assert [click.unstyle(line) for line in lines] == PLAIN
    assert [line for line in lines if "\x1b" in line] == [
        "\x1b[32mhealthy\x1b[0m  now",
        "\x1b[31mfaulted\x1b[0m  then",
    ]


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_turned_off(variables: dict[str, str]) -> None:
    assert shown_on_a_terminal(**variables).splitlines() == PLAIN


def test_a_pipe_gets_no_colour() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines() == PLAIN


WORK = """
from pairbus.cli.progress import working
with working("asking"):
    print("meanwhile", flush=True)
print("done")
"""


def test_work_is_told_on_a_terminal_and_taken_away() -> None:
    assert shown_on_a_terminal(WORK) == "\r\x1b[Kasking …meanwhile\r\n\r\x1b[Kdone\r\n"
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("meanwhile\ndone\n", "")
