"""What commands print: lengths of time, moments, and a status of which nothing can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cli.tables import clock_time, lay_out, per_second, time_span

from .process import call

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
NOW = 1_794_873_600.0  # 2026-11-17, midnight in UTC
DEAD = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=YQ==;UseDevelopmentEmulator=true;Namespace="


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.6, "1 min"), (185, "3 min 5 s"), (3600, "1 h"), (7805, "2 h 10 min"), (-3, "0 s")],
)
def test_a_length_of_time_is_told_as_people_say_it(seconds: float, words: str) -> None:
    assert time_span(seconds) == words


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0, "0"),
        (0.004, "less than 0.01"),
        (0.36, "0.36"),
        (4.83, "4.8"),
        (9.97, "10"),
        (3.0, "3"),
        (4000.4, "4,000"),
    ],
)
def test_few_a_second_are_not_told_as_none(rate: float, words: str) -> None:
    assert per_second(rate) == words


@given(st.integers(0, 10**9))
def test_a_length_of_time_loses_less_than_its_smaller_unit(seconds: int) -> None:
    parts = time_span(seconds).replace(",", "").split()
    units = [UNITS[unit] for unit in parts[1::2]]
    told = sum(int(number) * unit for number, unit in zip(parts[::2], units, strict=True))
    finest = {1: 1, 60: 1, 3600: 60, 86_400: 3600}[units[0]]
    assert 0 <= seconds - told < finest
    assert len(units) <= 2


def test_a_moment_of_another_day_has_its_date() -> None:
    assert clock_time(NOW + 60, now=NOW + 90) == "00:01:00Z"
    assert clock_time(NOW - 60, now=NOW) == "2026-11-16 23:59Z"
    assert clock_time(None, now=NOW) == ""


WORDS = st.lists(st.text("abc,.", min_size=1, max_size=12), max_size=30).map(" ".join)


@given(st.text("xyz", max_size=20), WORDS, st.integers(30, 120))
def test_a_text_that_is_too_long_for_the_screen_goes_on_below_itself(
    name: str, text: str, width: int
) -> None:
    lines = list(lay_out(("NAME", "COUNT", "WHY"), [(name, "1", text)], numbers=(1,), width=width))
    assert all(len(line) <= width for line in lines)
    assert " ".join(lines).split() == ["NAME", "COUNT", "WHY", *name.split(), "1", *text.split()]


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_cell_says_anything_to_the_terminal(name: str, text: str) -> None:
    lines = list(lay_out(("NAME", "WHY"), [(name, text)]))
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_without_a_screen_a_row_is_a_line() -> None:
    assert list(lay_out(("A", "WHY"), [("x", "y " * 100)])) == ["A  WHY", "x  " + ("y " * 100).rstrip()]


def test_a_place_that_is_given_twice_is_refused_where_one_counts() -> None:
    for command in (("cost", "report"), ("syphon", "status"), ("syphon", "run", "--once")):
        done = call(*command, "--records", "a", "--records", "b")
        assert done.returncode == 2
        assert "'--records': it takes one place, and 2 are given." in done.stderr


def test_the_status_of_a_syphon_of_which_nothing_is_seen(tmp_path: Path) -> None:
    variables = {"A": DEAD + "contoso", "B": DEAD.replace(":1;", ":2;") + "contoso-dr"}
    pair = ("--primary-env", "A", "--secondary-env", "B", "--state", str(tmp_path))
    done = call("syphon", "status", *pair, variables=variables)
    assert done.returncode == 3
    assert "lease    cannot be looked at: cannot reach 127.0.0.1:2" in done.stdout
    assert "backlog  cannot be looked at: " in done.stdout
