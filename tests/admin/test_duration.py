"""Durations and instants in .NET's spelling."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.admin.duration import (
    FOR_EVER,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "P10675199DT2H48M5.4775807S"),
        (0.0, "PT0S"),
        (60.0, "PT1M"),
        (90.0, "PT1M30S"),
        (0.5, "PT0.5S"),
        (3600.0, "PT1H"),
        (86400.0 * 3, "P3D"),
        (86400.0 * 14 + 1, "P14DT1S"),
        (36000.0, "PT10H"),
        (1e-7, "PT0.0000001S"),
        (100.25, "PT1M40.25S"),
    ],
)
def test_durations_are_written_as_dotnet_writes_them(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT60S", 60),
        ("PT1440M", 86400),
        ("P1Y", 365 * 86400),
        ("P1M", 30 * 86400),
        ("P1W", 7 * 86400),
        ("P0DT0H10M0S", 600),
        ("P10675199DT2H48M5.477581S", None),
    ],
)
def test_other_spellings_are_read(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "60", "PT1", "-PT1S", "PT1.S", "pt1s", "PT1S ", "P999999999D", "PT١S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration|too long"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**15))
def test_every_duration_reads_back(microseconds: int) -> None:
    seconds = microseconds / 1e6
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


def test_for_ever_is_the_greatest() -> None:
    assert format_duration(1e300) == FOR_EVER
    assert parse_duration(FOR_EVER) is None


def test_instants() -> None:
    assert format_instant(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"
    assert format_instant(None) == "0001-01-01T00:00:00Z"
    assert format_instant(1e300).startswith("9999-12-31")
    assert parse_instant("2023-11-14T22:13:20.1234567Z") == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert parse_instant("2020-01-01T00:00:00") == datetime(2020, 1, 1)
