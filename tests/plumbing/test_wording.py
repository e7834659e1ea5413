"""Numbers as people read them: lengths of time, moments, and money of which nothing is hidden."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.plumbing.wording import counted, time_span, write_amounts, write_cents, write_moment, write_money

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.6, "1 min"), (185, "3 min 5 s"), (3600, "1 h"), (7805, "2 h 10 min"), (-3, "0 s")],
)
def test_a_length_of_time_is_told_as_people_say_it(seconds: float, words: str) -> None:
    assert time_span(seconds) == words


@given(st.integers(0, 10**9))
def test_a_length_of_time_loses_less_than_its_smaller_unit(seconds: int) -> None:
    parts = time_span(seconds).replace(",", "").split()
    units = [UNITS[unit] for unit in parts[1::2]]
    told = sum(int(number) * unit for number, unit in zip(parts[::2], units, strict=True))
    finest = {1: 1, 60: 1, 3600: 60, 86_400: 3600}[units[0]]
    assert 0 <= seconds - told < finest
    assert len(units) <= 2


def test_a_moment_is_told_in_utc() -> None:
    assert write_moment(1_794_873_661.9) == "2026-11-17 00:01:01"
    assert write_moment(1_794_873_661.9, timespec="minutes") == "2026-11-17 00:01"


def test_one_is_not_many() -> None:
    assert [counted(number, "pump", "pumps") for number in (0, 1, 2310)] == [
        "0 pumps",
        "1 pump",
        "2,310 pumps",
    ]


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        ("0", "0.00"),
        ("0.00898", "0.0090"),
        ("0.5", "0.50"),
        ("1234.5", "1,234.50"),
        ("0.0000042", "0.000004"),
        ("0.00000042", "< 0.000001"),
    ],
)
def test_money_below_a_cent_is_not_told_as_none(amount: str, words: str) -> None:
    assert write_money(amount) == words


def test_cents_tell_what_is_less_than_one() -> None:
    amounts = ("0", "0.005", "0.0051", "1234.567")
    assert [write_cents(Decimal(one)) for one in amounts] == ["0.00", "< 0.01", "0.01", "1,234.57"]


@given(st.lists(st.decimals(0, 10**6, places=9), min_size=1, max_size=5))
def test_amounts_below_each_other_have_their_points_below_each_other(amounts: list[Decimal]) -> None:
    told = write_amounts(*amounts)
    assert len({len(text.partition(".")[2]) for text in told if not text.startswith("<")}) <= 1
    for amount, text in zip(amounts, told, strict=True):
        assert (Decimal(text.replace(",", "").removeprefix("< ")) == 0) == (amount == 0)
