"""The rules of the pre-flight check, by value."""

import pytest

from pairbus.backlog.findings import (
    Finding,
    Plan,
    Severity,
    judge_capacity,
    judge_contents,
    judge_duplicates,
    judge_headroom,
    judge_names,
    judge_options,
    judge_queues,
    measure_capacity,
)
from pairbus.backlog.provisioner import BacklogQueueReport, Difference, ProvisioningReport
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.headroom import MAX_OVERHEAD
from pairbus.pairing.names import Endpoint

GIB = 1024**3


def severities(findings: list[Finding]) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.topic) for finding in findings]


def test_names_are_told_and_those_that_come_from_an_address_warned_of() -> None:
    azure = Endpoint("contoso.servicebus.windows.net", 5671)
    (note,) = judge_names("contoso", azure, count=10, entities=["orders"])
    assert (note.severity, note.text) == ("note", "backlog queues: contoso/x-servicebus-transfer/0 to 9")
    local = Endpoint("127.0.0.1", 5672)
    findings = list(
        judge_names("127-0-0-1-5672", local, count=1, entities=["fabrikam/x-servicebus-transfer/0"])
    )
    assert [(finding.severity, finding.subject) for finding in findings] == [
        ("note", "127-0-0-1-5672"),
        ("warning", "127-0-0-1-5672"),
        ("warning", "fabrikam/x-servicebus-transfer/0"),
    ]
    assert findings[0].text == "backlog queues: 127-0-0-1-5672/x-servicebus-transfer/0"


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        (SendAvailabilityOptions(), True),
        (SendAvailabilityOptions(failover_interval=5.0), False),
        (SendAvailabilityOptions(on_suspect="raise"), False),
    ],
)
def test_a_long_hold_is_noted(options: SendAvailabilityOptions, noted: bool) -> None:
    assert severities(list(judge_options(options))) == ([("note", "hold")] if noted else [])


def test_queues_that_are_missing_differ_or_exceed_are_found() -> None:
    slow = Difference("lock_duration", "60 s", "5 s")
    sessions = Difference("requires_session", "false", "true")
    report = ProvisioningReport(
        state="pending",
        queues=(
            BacklogQueueReport(name="q/0", existed=True, differences=(slow,)),
            BacklogQueueReport(name="q/1", existed=True, differences=(slow, sessions)),
            BacklogQueueReport(name="q/2", error="it does not exist"),
        ),
        extra=("q/9",),
    )
    findings = list(judge_queues(report))
    assert [(one.severity, one.topic, one.subject) for one in findings] == [
        ("error", "backlog", "q/2"),
        ("warning", "backlog", "q/9"),
        ("warning", "locks", "q/0 and 1 more"),
        ("error", "settings", "q/1"),
    ]
    assert "pairbus provision" in findings[0].text


def test_without_manage_there_is_a_note_and_no_complaint() -> None:
    report = ProvisioningReport(state="not_permitted", queues=(BacklogQueueReport(name="q/0", error="no"),))
    assert severities(list(judge_queues(report))) == [("note", "claims")]


def test_what_lies_in_the_backlog_is_told() -> None:
    assert list(judge_contents(0, 0)) == []
    assert [finding.text for finding in judge_contents(1200, 3)] == [
        "1,200 messages wait in the backlog: `pairbus syphon run --once` moves what can be moved",
        "3 messages are dead letters of the backlog: `pairbus redrive --dry-run` shows why",
    ]


def test_capacity_is_what_fits_with_its_envelope() -> None:
    plan = Plan(outage=3600.0, rate=100.0, message_size=1024)
    capacity = measure_capacity(50 * GIB, plan)
    assert capacity.messages == 50 * GIB // (1024 + MAX_OVERHEAD)
    assert capacity.hours == pytest.approx(capacity.messages / 100.0 / 3600.0)
    assert judge_capacity(capacity, plan).severity == "note"


def test_a_backlog_that_is_full_before_the_outage_ends_is_warned_of() -> None:
    plan = Plan(outage=6 * 3600.0, rate=5000.0, message_size=1024)
    finding = judge_capacity(measure_capacity(50 * GIB, plan), plan)
    assert finding.severity == "warning"
    assert "an outage of 6 h needs more" in finding.text


def test_without_a_rate_capacity_is_told_in_messages() -> None:
    plan = Plan(outage=1.0)
    capacity = measure_capacity(GIB, plan)
    assert capacity.hours is None
    finding = judge_capacity(capacity, plan)
    assert (finding.severity, "give a rate" in finding.text) == ("note", True)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (None, "no duplicate detection"),
        (600.0, "for 10 min, which is not longer than an outage of 1 h"),
        (3600.0, "for 1 h"),
    ],
)
def test_duplicates_that_would_not_be_found_are_warned_of(window: float | None, words: str) -> None:
    (finding,) = judge_duplicates("orders", window, outage=3600.0)
    assert finding.severity == "warning"
    assert words in finding.text


def test_a_window_longer_than_the_outage_is_fine() -> None:
    assert list(judge_duplicates("orders", 3601.0, outage=3600.0)) == []


@pytest.mark.parametrize(
    ("limit", "compressing", "severity"),
    [
        (262_144 - MAX_OVERHEAD, True, None),
        (262_144, True, "note"),
        (262_144, False, "warning"),
        (1024**2, True, "warning"),
    ],
)
def test_headroom(limit: int, compressing: bool, severity: Severity | None) -> None:
    found = list(judge_headroom("orders", limit, backlog_limit=262_144, compressing=compressing))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
