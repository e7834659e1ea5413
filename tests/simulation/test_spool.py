"""Histories of the spool, as many as `make test` has time for; `make soak` plays twenty thousand."""

import pytest

from .search import report, search

HISTORIES = 10


@pytest.mark.timeout(300)
def test_nothing_kept_is_lost_or_sent_again_without_a_reason() -> None:
    findings = search("spool", 0, HISTORIES)
    assert not findings, report(findings[0])
