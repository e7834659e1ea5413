"""Counts, times and money as people read them: the same on the terminal and on every page."""

from datetime import UTC, datetime
from decimal import Decimal

_SPANS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
# What is less is told as such, not as a row of noughts.
_MOST_PLACES = 6
_HALF_A_CENT = Decimal("0.005")
_LEAST = Decimal(1).scaleb(-_MOST_PLACES)


def counted(number: int, one: str, many: str) -> str:
    """1 pump, 2,310 pumps."""
    return f"{number:,} {one if number == 1 else many}"


def time_span(seconds: float) -> str:
    """A length of time as people say it: 45 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    for size, unit, part, part_unit in _SPANS:
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size:,} {unit}" + (f" {rest} {part_unit}" if rest else "")
    return f"{whole} s"


def write_moment(at: float, *, timespec: str = "seconds") -> str:
    """A Unix time as date and time in UTC."""
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(" ", timespec)


def write_money(amount: Decimal | str) -> str:
    """Cents; of what is less than a cent the first two figures."""
    return write_amounts(Decimal(amount))[0]


def write_cents(amount: Decimal) -> str:
    """Cents alone, for sums of a month; what is no more than half of one is something all the same."""
    return "< 0.01" if 0 < amount <= _HALF_A_CENT else f"{amount:,.2f}"


def write_amounts(*amounts: Decimal) -> list[str]:
    """Money below each other: all with as many decimals as the least of them needs."""
    least = min((abs(amount) for amount in amounts if amount), default=_LEAST)
    places = min(max(2, 1 - least.adjusted()), _MOST_PLACES) if any(amounts) else 2
    return [f"< {_LEAST:f}" if 0 < amount < _LEAST else f"{amount:,.{places}f}" for amount in amounts]
