"""What a running syphon leaves beside its receipts for whoever looks on from elsewhere.

A file for each run, replaced every few seconds and removed at the end. One that was not touched for a while
belongs to a syphon that was killed, and is shown with its age.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairbus.plumbing.files import publish
from pairbus.plumbing.json_text import parse_json

log = logging.getLogger(__name__)
_NAME = ".syphon-{run}.json"
# After so many seconds without a word a syphon is dead: it tells something every few of them.
_DEAD_AFTER = 300.0
# How much of what was measured before counts.
_INERTIA = 0.7


class Speed:
    """Messages a second, of late. Pure."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._seen: tuple[float, int] | None = None

    def note(self, handled: int, now: float) -> None:
        """So many were handled in all by now."""
        if self._seen is not None and now > self._seen[0]:
            measured = (handled - self._seen[1]) / (now - self._seen[0])
            self.rate = measured if self.rate == 0 else _INERTIA * self.rate + (1 - _INERTIA) * measured
        self._seen = now, handled


def write_status(records: Path, run: str, told: Mapping[str, Any]) -> None:
    """Replace what is told; a directory out of reach is no reason to stop moving messages."""
    try:
        publish(records / _NAME.format(run=run), json.dumps(told), durable=False)
    except OSError as error:
        log.debug("the status of the syphon cannot be written to %s: %s", records, error)


def remove_status(records: Path, run: str) -> None:
    """Nothing is told any more; and nothing by those that died long ago."""
    try:
        (records / _NAME.format(run=run)).unlink(missing_ok=True)
        for path in records.glob(_NAME.format(run="*")):
            if time.time() - path.stat().st_mtime > _DEAD_AFTER:
                path.unlink(missing_ok=True)
    except OSError as error:
        log.debug("the status of the syphon cannot be removed from %s: %s", records, error)


def read_statuses(records: Path) -> list[dict[str, Any]]:
    """What syphons tell there, the latest first."""
    begin, end = _NAME.split("{run}")
    found = []
    for path in records.glob(f"{begin}*{end}"):
        try:
            told = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # it has just been replaced or removed
        if isinstance(told, dict) and isinstance(told.get("at"), int | float):
            found.append(told)
    return sorted(found, key=lambda one: -float(one["at"]))
