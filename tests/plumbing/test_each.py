"""Several things to do, of which some fail."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.plumbing.each import call_each


@given(st.lists(st.booleans(), max_size=20))
def test_all_are_called_in_order_and_the_first_failure_is_raised(fails: list[bool]) -> None:
    called: list[int] = []

    def make(number: int, does_fail: bool) -> Callable[[], None]:
        def act() -> None:
            called.append(number)
            if does_fail:
                raise ValueError(number)

        return act

    acts = [make(number, does_fail) for number, does_fail in enumerate(fails)]
    if any(fails):
        with pytest.raises(ValueError, match=f"^{fails.index(True)}$"):
            call_each(acts)
    else:
        call_each(acts)
    assert called == list(range(len(fails)))
