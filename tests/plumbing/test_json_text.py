"""JSON that others have written."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pairbus.plumbing.json_text import LAST_MOMENT, MAYBE_MOMENT, MOMENT, NUMBER, Shape, fits, parse_json
from tests.guards.sources import SRC, python_files


def test_json_is_read() -> None:
    assert parse_json(b'{"a": [1, null]}') == {"a": [1, None]}


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"", "1" * 10_000, b"\x00"])
def test_whatever_is_none_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_it_is_the_only_reader() -> None:
    """An error that nobody expects of a reader, `RecursionError`, is caught in one place."""
    readers = {path.name for path in python_files(SRC) if "json.loads(" in path.read_text(encoding="utf-8")}
    assert readers == {"json_text.py"}


def test_a_moment_is_one_that_calendars_can_tell() -> None:
    assert all(fits(moment, MOMENT) for moment in (0, 1.5, LAST_MOMENT))
    datetime.fromtimestamp(LAST_MOMENT, UTC)
    assert not any(fits(moment, MAYBE_MOMENT) for moment in (-1, LAST_MOMENT + 1, 1e15, float("nan"), "1"))
    assert fits(None, MAYBE_MOMENT)
    assert not fits(None, MOMENT)


def test_a_value_has_its_shape_or_not() -> None:
    shape: Shape = {
        "name": str,
        "at": NUMBER,
        "since?": NUMBER,
        "parts": [{"size": int}],
        "sums?": {"*": int},
    }
    whole = {"name": "a", "at": 1.5, "parts": [{"size": 1, "more": None}]}
    assert fits(whole, shape)
    assert fits({**whole, "since": None, "sums": {"x": 1}, "other": []}, shape)
    mistakes: list[dict[str, Any]] = [
        {"name": None},
        {"at": "1"},
        {"at": float("nan")},
        {"since": float("inf")},
        {"parts": {}},
        {"parts": [{"size": 1}, {}]},
        {"parts": [1]},
        {"sums": {"x": 1, "y": "1"}},
        {"sums": {"x": 10**400}},
        {"at": -1e308},
    ]
    for wrong in mistakes:
        assert not fits(whole | wrong, shape), wrong
    others: list[Any] = [{}, [], None, "text", 1]
    for other in others:
        assert not fits(other, shape)
