"""How many examples a property is tried with: of many in the long form, `make test` tries an eighth."""

from hypothesis import settings

__all__ = ["SHARE", "examples"]

SHARE = 8


def examples(count: int) -> int:
    """So many, where `make soak` rolls dice; `make test` tries the same few each time."""
    return count if settings.get_current_profile_name() == "dice" else max(1, count // SHARE)
