"""Log lines carry the facts of an event in both formats."""

import json
import logging
import sys

from pairbus.cli.logs import JsonFormatter, TextFormatter


def record(*, failed: bool = False) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {
            "name": "pairbus.broker",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": "fault %s",
            "args": ("set",),
            "created": 1_700_000_000.25,
            "fields": {"namespace": "contoso", "entity": None},
        }
    )
    if failed:
        try:
            raise ValueError("a cause")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


def test_text_shows_the_facts_behind_the_event() -> None:
    line = TextFormatter().format(record())
    assert line == "2023-11-14T22:13:20.250Z warning pairbus.broker: fault set namespace=contoso entity=None"


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record())
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "pairbus.broker",
        "event": "fault set",
        "namespace": "contoso",
        "entity": None,
    }


def test_both_show_the_exception() -> None:
    assert "ValueError: a cause" in TextFormatter().format(record(failed=True))
    assert "ValueError: a cause" in json.loads(JsonFormatter().format(record(failed=True)))["exception"]


def test_what_else_is_given_as_extra_is_shown_too() -> None:
    made = record()
    made.attempt = 3
    assert json.loads(JsonFormatter().format(made))["attempt"] == 3
