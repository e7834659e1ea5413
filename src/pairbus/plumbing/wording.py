"""Counts, times, money and refusals as people read them: the same on the terminal and on every page."""

import re
from datetime import UTC, datetime
from decimal import Decimal

_SPANS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
# What is less is told as such, not as a row of noughts.
_MOST_PLACES = 6
_HALF_A_CENT = Decimal("0.005")
_LEAST = Decimal(1).scaleb(-_MOST_PLACES)
# How azure-identity tells of many ways to sign in, and of one that there is not here.
_TRIED = "Attempted credentials:"
_NO_SUCH_WAY = re.compile("unavailable|not found|not be found|not installed|requires the")
#: What to do where a credential gives no token.
SIGN_IN = "is anybody signed in here, for instance by `az login`?"


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


def write_no_token(error: BaseException) -> str:
    """Why a credential gave no token, in a line: of the ways that it tried, those that there are here."""
    first, _, tried = str(error).partition(_TRIED)
    ways = [line for line in tried.splitlines() if line.startswith("\t") and not _NO_SUCH_WAY.search(line)]
    return " ".join(" ".join([first, *ways]).split()) or type(error).__name__
