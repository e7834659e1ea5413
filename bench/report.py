"""What was measured, as JSON for programs and as a table for people."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import Figure, Target

__all__ = ["Report"]

_HEAD = ("what", "median", "low", "high", "unit")


@dataclass(slots=True)
class Report:
    """All figures of a run. `notes` are for who reads the table."""

    settings: dict[str, object]
    figures: list[Figure] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, options: argparse.Namespace) -> Report:
        """An empty one of a run with these options."""
        return cls({name: value for name, value in vars(options).items() if name != "output"})

    def write_json(self, path: Path) -> None:
        """Everything, each round's value included."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {
                "processors": os.cpu_count(),
                "system": f"{platform.system()} {platform.release()} {platform.machine()}",
                "python": platform.python_version(),
                "sqlite": sqlite3.sqlite_version,
            },
            "settings": self.settings,
            "figures": [figure.to_dict() for figure in self.figures],
            "targets": [target.to_dict() for target in self.targets],
            "notes": self.notes,
        }
        path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")

    def table(self) -> str:
        """A table in Markdown."""
        lines = [_line(_HEAD), _line("-" * len(name) for name in _HEAD)]
        lines += [_line(_cells(figure)) for figure in self.figures]
        lines += ["", _line((*_HEAD[:4], "target", "")), _line(["-"] * 6)]
        lines += [_line(_target_cells(target)) for target in self.targets]
        return "\n".join([*lines, "", *self.notes])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(figure: Figure) -> list[str]:
    return [figure.name, *(_number(value) for value in (figure.median, figure.low, figure.high)), figure.unit]


def _target_cells(target: Target) -> list[str]:
    bound = f"{'at least' if target.at_least else 'at most'} {target.bound:g}"
    return [*_cells(target.figure)[:4], bound, "met" if target.is_met else "MISSED"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
