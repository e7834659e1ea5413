"""What commands print: rates, moments, tables, and a status of which nothing can be seen."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cli.tables import clock_time, draw_table, lay_out, per_second

from .process import call

NOW = 1_794_873_600.0  # 2026-11-17, midnight in UTC
DEAD = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=YQ==;UseDevelopmentEmulator=true;Namespace="


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


def test_where_nothing_is_left_to_tell_no_line_is_left_free() -> None:
    lines = list(lay_out(("STAGE", "COUNT", ""), [("a" * 30, 1, ""), ("b", 2, "██")], width=36))
    assert lines == [f"{'STAGE':30}  COUNT", f"{'a' * 30}      1", f"{'b':30}      2", "    ██"]


def test_numbers_stand_at_the_right_and_money_below_its_point() -> None:
    rows = [("a", 1_200, Decimal("12.5"), ""), ("b", "", Decimal("0.004"), "late")]
    assert list(draw_table(("NAME", "COUNT", "USD", "WHY"), rows)) == [
        "NAME  COUNT      USD  WHY",
        "a     1,200  12.5000",
        "b             0.0040  late",
    ]


def test_what_is_true_is_no_number() -> None:
    assert list(draw_table(("NAME", "IS"), [("a", True), ("bcd", False)])) == [
        "NAME  IS",
        "a     True",
        "bcd   False",
    ]


def test_a_table_without_rows_says_so_or_nothing() -> None:
    assert list(draw_table(("ONE", "TWO"), [], empty="none")) == ["none"]
    assert list(draw_table(("ONE", "TWO"), [])) == []


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
