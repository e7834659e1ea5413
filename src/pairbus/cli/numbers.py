"""Numbers on the command line, refused in words rather than in click's formulas."""

from __future__ import annotations

import math
import re
from typing import Any

import click

# More than any rate, size or count of a namespace, and few enough seconds for every clock.
_MOST = 10**9


class _Number(click.FloatRange):
    """A finite number of a range: nan is in every range of click's, and nobody waits for ever."""

    name = "number"

    def __init__(self, words: str, **bounds: Any) -> None:
        super().__init__(**{"max": _MOST, **bounds})
        self._words = words if "max" in bounds else f"{words} and at most {_MOST:,}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isfinite(number):
            return number
        return self.fail(f"{value!r} is not {self._words}.", param, ctx)


class _AtLeastOne(click.IntRange):
    """A whole number from 1 on."""

    name = "integer"

    def __init__(self) -> None:
        super().__init__(min=1, max=_MOST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(f"{value!r} is not a whole number from 1 to {_MOST:,}.", param, ctx)


class _Duration(click.ParamType):  # type: ignore[type-arg] # older versions of click have no argument
    """Seconds, or a number with s, m, h or d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _DURATION.fullmatch(str(value))
        seconds = math.inf if found is None else float(found[1]) * _SECONDS[found[2]]
        if seconds > _MOST:
            self.fail(f"{value!r} is not a duration such as 90, 15m, 2h or 1d.", param, ctx)
        return seconds


_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = _Duration()
POSITIVE = _Number("a number above 0", min=0, min_open=True)
NOT_NEGATIVE = _Number("a number from 0 on", min=0)
#: How often something is shown again.
INTERVAL = _Number("a number of seconds from 0.1 to 86400", min=0.1, max=86_400)
AT_LEAST_ONE = _AtLeastOne()
