"""Numbers on the command line, refused in words rather than in click's formulas."""

from __future__ import annotations

import math
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


POSITIVE = _Positive(min=0, min_open=True)
AT_LEAST_ONE = _AtLeastOne(min=1)
