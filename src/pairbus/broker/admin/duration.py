"""Durations and instants as .NET writes them: `PT1M`, `P3D`, `P10675199DT2H48M5.4775807S`.

The last is the longest duration that .NET knows, and stands for "for ever" throughout the API.
"""

import re
from datetime import UTC, datetime, timedelta

FOR_EVER = "P10675199DT2H48M5.4775807S"

_TICKS_PER_SECOND = 10_000_000
_MAX_TICKS = 2**63 - 1
_MAX_SECONDS = _MAX_TICKS // _TICKS_PER_SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What .NET shows for an instant that never came.
_NEVER = "0001-01-01T00:00:00Z"

_DURATION = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,12})Y)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12})W)?(?:([0-9]{1,12})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,15})H)?(?:([0-9]{1,15})M)?(?:([0-9]{1,15}(?:\.[0-9]{1,12})?)S)?)?"
)
# A year is 365 days and a month 30 in .NET's reading.
_UNIT_SECONDS = (365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60)


def parse_duration(text: str) -> float | None:
    """Seconds, or None for ever; raises ValueError on anything that is not a duration that .NET can hold."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write it like 'PT1M', 'P3D' or 'PT1H30M0.5S'")
    *whole, fraction = match.groups()
    seconds = sum(unit * int(count) for unit, count in zip(_UNIT_SECONDS, whole, strict=True) if count)
    total = seconds + float(fraction or 0)
    # Clients that count microseconds round the maximum up, so "for ever" begins at its whole seconds.
    if total >= _MAX_SECONDS + 1:
        raise ValueError(f"{text!r} is too long; the longest duration, {FOR_EVER}, means for ever")
    return None if total >= _MAX_SECONDS else total


def format_duration(seconds: float | None) -> str:
    """The shortest .NET spelling; None is for ever."""
    ticks = _MAX_TICKS if seconds is None else min(round(seconds * _TICKS_PER_SECOND), _MAX_TICKS)
    if ticks <= 0:
        return "PT0S"
    whole, fraction = divmod(ticks, _TICKS_PER_SECOND)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    decimals = f".{fraction:07}".rstrip("0") if fraction else ""
    time = "".join(
        f"{count}{unit}"
        for count, unit in ((hour, "H"), (minute, "M"), (f"{second}{decimals}", "S"))
        if count != "0" and count
    )
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def format_instant(moment: float | None) -> str:
    """ISO 8601 in UTC; None is .NET's "never"."""
    if moment is None:
        return _NEVER
    try:
        instant = _EPOCH + timedelta(seconds=moment)
    except OverflowError:
        return "9999-12-31T23:59:59.9999999Z"
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_instant(text: str) -> datetime:
    """An instant, aware or naive as it was written. Raises ValueError."""
    # .NET writes seven decimals; six is what Python keeps.
    return datetime.fromisoformat(re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text.strip()))
