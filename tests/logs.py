"""What was logged for the sake of a test, and not by whatever else lives in its process.

The SDK's threads warn when a line is cut, also one of a test before. And of a task or a future that nobody
asks, asyncio tells when the collector meets it: what the SDK has left behind is told in some later test.
"""

import logging
from pathlib import Path

import pytest

import pairbus

__all__ = ["our_lines", "our_records"]

SOURCES = str(Path(pairbus.__file__).parent)
COLLECTED = ("was never retrieved", "was destroyed but it is pending", "Unclosed ")


def our_records(caplog: pytest.LogCaptureFixture, *, level: int = logging.WARNING) -> list[logging.LogRecord]:
    """What our own loggers have said in the test so far, and asyncio of our loops and tasks."""
    return [record for record in caplog.get_records("call") if record.levelno >= level and is_of_ours(record)]


def our_lines(caplog: pytest.LogCaptureFixture, *, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in our_records(caplog, level=level)]


def is_of_ours(record: logging.LogRecord) -> bool:
    logger, text = record.name.partition(".")[0], record.getMessage()
    if logger == "asyncio":
        return SOURCES in text or not any(words in text for words in COLLECTED)
    return logger == "pairbus"
