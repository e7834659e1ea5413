"""What is believed of a path that refuses."""

from pairbus.pump.destinations import DENIALS, DENIED_FOR, Destinations, PathState
from pairbus.pump.judgement import Judgement, Remedy

DENIED = Judgement(Remedy.DENIED, "NotAuthorized", "not authorised")


def deny(destinations: Destinations, path: str, begin: float, seconds: float) -> PathState:
    """Have a path refused each time that it is tried, for so long; how it is then."""
    now = begin
    destinations.failed(path, DENIED, now)
    while (
        condition := destinations.look(path, now)
    ).state is PathState.DOWN and condition.due <= begin + seconds:
        now = condition.due
        assert destinations.claim_try(path, now)
        destinations.failed(path, DENIED, now)
    return destinations.look(path, now).state


def test_want_of_a_token_is_an_outage_however_long_it_lasts() -> None:
    """All paths are refused, so that it is no matter of this one; also if all were served a moment before."""
    destinations = Destinations()
    for path in ("orders", "bills"):
        destinations.sent(path, 0.0)
        assert deny(destinations, path, 1.0, 100 * DENIED_FOR) is PathState.DOWN


def test_a_refusal_of_some_seconds_is_an_outage_though_others_are_served() -> None:
    destinations = Destinations()
    destinations.failed("orders", DENIED, 0.0)
    destinations.sent("bills", 1.0)
    assert deny(destinations, "orders", 0.0, DENIED_FOR - 1) is PathState.DOWN
    destinations.sent("orders", DENIED_FOR)
    assert deny(destinations, "orders", DENIED_FOR + 1, DENIED_FOR - 2) is PathState.DOWN


def test_a_refusal_that_stays_while_others_are_served_is_the_paths_own() -> None:
    destinations = Destinations(first=DENIED_FOR)
    destinations.failed("orders", DENIED, 0.0)
    destinations.sent("bills", 1.0)
    for number in range(1, DENIALS):
        now = number * DENIED_FOR * 2
        assert destinations.look("orders", now).state is PathState.DOWN
        assert destinations.claim_try("orders", now)
        destinations.failed("orders", DENIED, now)
    assert destinations.look("orders", now).state is PathState.GONE
