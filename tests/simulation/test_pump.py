"""Histories of the pump, as many as `make test` has time for; `make soak` plays fifty thousand."""

import pytest

from .search import report, search

HISTORIES = 20


@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_disordered_or_stuck() -> None:
    findings = search("pump", 0, HISTORIES)
    assert not findings, report(findings[0])
