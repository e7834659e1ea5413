"""How a drill writes its numbers and names: the same on the page, on the terminal and in a log."""

from decimal import Decimal

from pairbus.plumbing.wording import write_money

_CENT = Decimal("0.01")


def write_seconds(seconds: float) -> str:
    """A duration with as many places as it deserves: `240 ms`, `1.3 s`, `42 s`, `3 min`, `3 min 05 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min{f' {whole % 60:02d} s' if whole % 60 else ''}"


def write_rate(rate: float) -> str:
    return f"{rate:,.1f}/s" if 0 < rate < 9.95 else f"{rate:,.0f}/s"


def write_sum(amount: str) -> str:
    """Money for a reader in a hurry: what is less than a cent is just that."""
    value = Decimal(amount)
    return "< 0.01" if 0 < value < _CENT else write_money(value)


def name_state(state: str) -> str:
    """`FAILED_OVER` and `failed_over` are `failed over` to people."""
    return state.lower().replace("_", " ")
