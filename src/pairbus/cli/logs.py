"""Log lines of the commands, on standard error: readable, or one JSON object a line.

The library logs an event as a short text, its facts in `extra={"fields": {…}}`; both formats show them.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import click

from .shared_options import together

LEVELS = ("debug", "info", "warning", "error")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = {name: value for name, value in vars(record).items() if name not in _OWN}
    return {**facts.pop("fields", {}), **facts}


def _instant(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _plain(value: Any) -> str:
    """A value as one word. What a client says of itself may be anything, even like a log line."""
    text = str(value)
    if text and text.isprintable() and not any(character in text for character in " ='\""):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


class TextFormatter(logging.Formatter):
    """`time level logger: text name=value …`"""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_plain(value)}" for name, value in _facts(record).items())
        line = f"{_instant(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object a line, with the facts beside the text."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


#: The two options of every command that runs for a while.
log_options = together(
    click.option("--log-level", type=click.Choice(LEVELS), default="info", help="The least to be logged."),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="How to log."),
)


def configure_logs(level: str, log_format: str) -> None:
    """Send what Pairbus logs to standard error, and nothing of other libraries below a warning."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("pairbus").setLevel(level.upper())
