"""Histories of the client, as many as `make test` has time for; `make soak` plays fifty thousand."""

from dataclasses import replace

import pytest

from .client_history import play_client
from .client_plan import ClientPlan, PlannedCall, draw_client_plan
from .faults import Fault
from .pump_plan import PRIMARY, SECONDARY
from .search import report, search

HISTORIES = 16
CONVOYS = 6
ORDERED = 8


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_and_every_call_ends() -> None:
    findings = search("client", 0, HISTORIES)
    assert not findings, report(findings[0])


@pytest.mark.timeout(300)
def test_those_who_go_to_the_backlog_together_have_each_their_own_fate() -> None:
    findings = search("convoy", 0, CONVOYS)
    assert not findings, report(findings[0])


@pytest.mark.timeout(300)
def test_sessions_keep_their_order_whatever_happens_to_the_secondary() -> None:
    findings = search("order", 0, ORDERED)
    assert not findings, report(findings[0])


def test_a_session_does_not_stay_for_what_does_not_fit_the_backlog() -> None:
    """It would wait in the spool for the session, and the session for it."""
    knobs = replace(
        draw_client_plan(0).knobs,
        keeps_order=True,
        spools=True,
        is_narrow=True,
        is_cramped=False,
        queues=1,
        on_suspect="hold",
    )
    first = PlannedCall(("m000",), 0, "orders", "s0", 1.0, "one", None, None)
    large = PlannedCall(("m001",), 0, "orders", "s0", 6.0, "one", None, None, is_large=True)
    small = PlannedCall(("m002",), 0, "orders", "s0", 7.0, "one", None, None)
    faults = (Fault("refuse", PRIMARY, 5.0, 40.0), Fault("refuse", SECONDARY, 5.0, 30.0))
    history = play_client(ClientPlan(0, knobs, (first, large, small), faults, ()))
    assert history.failures == []
    assert set(history.ended.values()) == {"done"}
