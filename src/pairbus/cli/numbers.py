"""Numbers on the command line, refused, and shown in help, in words rather than in click's formulas."""

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
        self._range = words
        self._words = words if "max" in bounds else f"{words} and at most {_MOST:,}"

    def _describe_range(self) -> str:
        return self._range

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isfinite(number):
            return number
        return self.fail(f"{value!r} is not a number {self._words}.", param, ctx)


class _Whole(click.IntRange):
    """A whole number of a range."""

    name = "integer"

    def __init__(self, first: int, last: int = _MOST) -> None:
        super().__init__(first, last)

    def _describe_range(self) -> str:
        return f"{self.min} to {self.max}" if (self.max or _MOST) < _MOST else f"from {self.min} on"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(f"{value!r} is not a whole number from {self.min} to {self.max:,}.", param, ctx)


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
POSITIVE = _Number("above 0", min=0, min_open=True)
NOT_NEGATIVE = _Number("from 0 on", min=0)
#: How often something is shown again, in seconds.
INTERVAL = _Number("from 0.1 to 86400", min=0.1, max=86_400)
AT_LEAST_ONE = _Whole(1)
PORT = _Whole(0, 65_535)
#: What a namespace counts messages with, and a seed.
LONG = _Whole(0, 2**63 - 1)
