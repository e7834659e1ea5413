"""Numbers on the command line, refused in words rather than in click's formulas."""

from __future__ import annotations

import math
import re
from typing import Any

import click


class _Positive(click.FloatRange):
    """A number above 0."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        # Nothing is greater than nan, nor less.
        return self.fail(f"{value!r} is not a number above 0.", param, ctx) if number != number else number


class _AtLeastOne(click.IntRange):
    """A whole number from 1 on."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(f"{value!r} is not a whole number from 1 on.", param, ctx)


class _Duration(click.ParamType):  # type: ignore[type-arg] # older versions of click have no argument
    """Seconds, or a number with s, m, h or d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _DURATION.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration such as 90, 15m, 2h or 1d.", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = _Duration()
POSITIVE = _Positive(min=0, min_open=True)
AT_LEAST_ONE = _AtLeastOne(min=1)
