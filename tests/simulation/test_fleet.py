"""A fleet that shares its pings: all come back, soon, whatever goes wrong; and what that costs."""

import logging
from collections.abc import Iterator

import pytest

from pairbus.client.fleet import fleet

from .fleet_history import FleetHistory, FleetPlan, play_fleet
from .search import find, report, search

HISTORIES = 5
INTERVAL = 60.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the code says of faults is no news here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def outage(clients: int, intervals: int, *, entities: int = 1) -> FleetHistory:
    """An outage of so many intervals, and nothing else that goes wrong."""
    skews = tuple(13.7 * number for number in range(clients))
    until = 15.0 + intervals * INTERVAL
    plan = FleetPlan(1, clients, INTERVAL, 5.0, 1, skews, (10.0, until), "silence", later=(0.0,) * entities)
    history = play_fleet(plan)
    assert history.failures == []
    assert len(history.back) == clients * entities
    return history


@pytest.mark.timeout(300)
def test_all_come_back_whatever_goes_wrong() -> None:
    findings = search("fleet", 0, HISTORIES)
    assert not findings, report(findings[0])


def test_fifty_clients_in_an_outage_of_twenty_intervals() -> None:
    history = outage(50, 20)
    assert history.pings <= 25
    assert history.pings + history.billed <= 300
    assert history.billed <= 3 * 50 - 1
    assert history.spread < 2.0


def test_what_it_costs_grows_with_entities_and_not_with_their_product() -> None:
    """The formulas of docs/scale.md."""
    clients, intervals, entities = 8, 5, 6
    history = outage(clients, intervals, entities=entities)
    assert history.pings <= (intervals + 4) * entities
    assert history.billed <= 5 * clients * entities
    assert history.spread < 2.0
    # A clock for each client; a slot, the same once more, and the company for each ping that is put off.
    assert history.meeting.asked <= clients + 3 * clients * entities * (intervals + 3)


def test_a_right_that_does_not_go_round_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word that is never told, and a slot that is kept after a good ping: none of the others comes back."""
    monkeypatch.setattr(fleet.Fleet, "tell", lambda *_: None)
    monkeypatch.setattr(fleet._Member, "let_go", lambda _: None)
    assert next(find("fleet", range(100)), None) is not None
