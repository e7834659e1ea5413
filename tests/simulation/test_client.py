"""Histories of the client, as many as `make test` has time for; `make soak` plays fifty thousand."""

from __future__ import annotations

import pytest

from .search import report, search

HISTORIES = 200


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_and_every_call_ends() -> None:
    findings = search("client", 0, HISTORIES)
    assert not findings, report(findings[0])
