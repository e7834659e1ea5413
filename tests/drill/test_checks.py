"""What a scenario promises is judged by figures; a promise that was not kept is told with them."""

from dataclasses import replace

import pytest

from pairbus.clock import ManualClock
from pairbus.drill.audit import audit
from pairbus.drill.checks import Evidence, make_checks
from pairbus.drill.messages import Arrival, Resting, SentMessage
from pairbus.drill.recorder import Recorder
from pairbus.drill.result import DrainRun, FaultSpan
from pairbus.drill.scenario import parse_scenario
from pairbus.options import EntityState, StateChange
from pairbus.spark import Verdict

from .sample import make_result

SCENARIO = parse_scenario(
    """
title = "t"
[options]
failover_interval = 2
ping_primary_interval = 2
[[entity]]
path = "orders"
duplicate_detection = true
[[entity]]
path = "events"
[expect]
failover = ["orders"]
""",
    name="t",
    where="t",
)


class Story:
    """An outage of ten seconds, told to a recorder step by step."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.recorder = Recorder(SCENARIO.entities, self.clock)
        for path in ("orders", "events"):
            self.recorder.watch("app-1", path)

    def at(self, moment: float) -> None:
        self.clock.advance(moment - self.recorder.now())

    def change(self, path: str, old: EntityState, new: EntityState) -> None:
        self.recorder.note_state("app-1", StateChange(path, old, new, self.clock.now(), "because"))

    def send(self, path: str, *, ends: float, route: str) -> None:
        message = SentMessage(message_id=f"{path}-0", path=path, client="app-1", position=0)
        self.recorder.begin_sends([message])
        self.at(ends)
        message.outcome, message.route = "returned", route
        self.recorder.end_sends([message])

    def break_down(self, *, begins: float, ends: float) -> None:
        span = FaultSpan(namespace="primary", kind="refuse", entity=None, begins=begins, ends=ends)
        self.recorder.faults.append(span)


def tell(*, fails_over: float = 4.0, back: float | None = 12.0, late: float = 0.0) -> Story:
    story = Story()
    story.at(1.0)
    story.break_down(begins=1.0, ends=10.0)
    story.at(2.0)
    first = SentMessage(message_id="orders-0", path="orders", client="app-1", position=0)
    story.recorder.begin_sends([first])
    story.at(fails_over)
    story.change("orders", EntityState.HEALTHY, EntityState.FAILED_OVER)
    first.outcome, first.route = "returned", "backlog"
    story.recorder.end_sends([first])
    if late:
        story.recorder.note_lateness(late)
    if back is not None:
        story.at(back)
        story.change("orders", EntityState.FAILED_OVER, EntityState.HEALTHY)
    story.at(20.0)
    return story


def evidence(story: Story) -> Evidence:
    recorder = story.recorder
    recorder.take_sample(moved=1, backlog=0, spooled=0)
    recorder.finish()
    arrivals = [
        Arrival(node=one.path, path=one.path, message_id=one.message_id, sequence_number=number)
        for number, one in enumerate(recorder.sent)
    ]
    nodes = {plan.path: plan.nodes for plan in SCENARIO.entities}
    return Evidence(
        scenario=SCENARIO,
        recorder=recorder,
        audit=audit(recorder.sent, arrivals, [], nodes=nodes),
        runs=[DrainRun(moved=1, dead_lettered=0, waiting=0, bytes=1, seconds=1.0, slowest_path=None)],
        backlog=[],
        spooled=[],
        redirected=frozenset({("orders", "orders-0")}),
        records=Verdict(
            redirected=1,
            delivered=1,
            waiting=0,
            dead_lettered=0,
            refused=0,
            lost=0,
            duplicated=0,
            recovered=0,
            unexpected=0,
            at_most_duplicated=0,
            missing=(),
        ),
    )


def failures(found: Evidence) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in make_checks(found) if not check.passed]


def test_an_outage_that_went_as_promised_passes() -> None:
    found = evidence(tell())
    assert failures(found) == []
    told = {check.name: check.detail for check in make_checks(found)}
    assert told["orders failed over within 3 s of the first failing send"] == "2.00 s"
    assert told["orders was back on the primary within 3 s of the end of the outage"] == "2.00 s"
    # Nothing was sent there, which proves nothing.
    assert "events never left the primary" not in told


@pytest.mark.parametrize(
    ("story", "told"),
    [
        (
            tell(fails_over=6.0),
            "orders failed over within 3 s of the first failing send: 4.00 s; the machine was late by 0.00 s",
        ),
        (
            tell(back=14.5),
            "orders was back on the primary within 3 s of the end of the outage: 4.50 s; "
            "the machine was late by 0.00 s",
        ),
        (
            tell(back=None),
            "orders was back on the primary within 3 s of the end of the outage: app-1 never came back",
        ),
    ],
)
def test_a_promise_about_time_that_was_broken_is_told(story: Story, told: str) -> None:
    assert failures(evidence(story)) == [told]


def test_what_the_machine_was_late_is_not_held_against_the_client() -> None:
    assert failures(evidence(tell(fails_over=6.0, late=1.5))) == []


def test_on_a_machine_that_was_late_by_seconds_a_broken_promise_proves_nothing() -> None:
    found = evidence(tell(fails_over=8.5, late=1.5))
    (check,) = [check for check in make_checks(found) if not check.passed]
    assert (check.word, check.detail) == ("inconclusive", "6.50 s; the machine was late by 1.50 s")
    (check,) = [check for check in make_checks(evidence(tell(fails_over=8.5, late=0.5))) if not check.passed]
    assert check.word == "failed"


def test_a_neighbour_that_fails_over_and_one_that_does_not_are_told() -> None:
    story = Story()
    story.send("orders", ends=1.0, route="primary")
    story.send("events", ends=1.5, route="primary")
    story.change("events", EntityState.HEALTHY, EntityState.FAILED_OVER)
    story.at(2.0)
    story.change("events", EntityState.FAILED_OVER, EntityState.HEALTHY)
    found = failures(evidence(story))
    assert found[0] == "orders failed over within 3 s of the first failing send: it never failed over"
    assert "events never left the primary: 1 failover" in found
    assert any(text.startswith("the backlog took what the primary could not") for text in found)


def test_what_is_left_in_the_backlog_is_named() -> None:
    left = Resting(message_id="orders-9", path="orders", place="contoso/x-servicebus-transfer/0")
    (told,) = failures(replace(evidence(tell()), backlog=[left]))
    assert told == "the backlog is empty: orders: orders-9 in contoso/x-servicebus-transfer/0"


def test_records_that_disagree_are_told() -> None:
    found = evidence(tell())
    assert found.records is not None
    (told,) = failures(replace(found, records=replace(found.records, lost=1, delivered=0)))
    assert told.startswith("the records say the same as the audit: verify: 1 redirected, 0 delivered")


def test_a_drill_that_sent_nothing_has_proved_nothing() -> None:
    sample = make_result()
    nothing = replace(sample.verdict, sent=0, delivered=0, unaccounted=())
    assert sample.passed
    assert not replace(sample, verdict=nothing).passed
