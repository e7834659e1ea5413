"""The judge itself: it must find every kind of lie, and must not take what is right for one."""

import pytest

from tests.crash.journal import Fate, Found, Journal

NO_STATES: dict[str, bytes | None] = {}


def told(*steps: tuple[Fate, bool], message_id: str = "m") -> Journal:
    """A journal of one message: what was begun, and whether it was confirmed."""
    journal = Journal()
    for fate, is_confirmed in steps:
        number = journal.begin(message_id, fate)
        if is_confirmed:
            journal.confirm(message_id, number)
    return journal


def found(fate: Fate) -> list[Found]:
    return [] if fate is Fate.ABSENT else [Found("m", fate)]


SENT, MAYBE_SENT = (Fate.ACTIVE, True), (Fate.ACTIVE, False)
COMPLETED, MAYBE_COMPLETED = (Fate.ABSENT, True), (Fate.ABSENT, False)
DEFERRED, MAYBE_DEFERRED = (Fate.DEFERRED, True), (Fate.DEFERRED, False)
DEAD = (Fate.DEAD, True)
SCHEDULED = (Fate.SCHEDULED, True)


@pytest.mark.parametrize(
    ("steps", "right"),
    [
        ([SENT], {Fate.ACTIVE}),
        ([MAYBE_SENT], {Fate.ACTIVE, Fate.ABSENT}),
        ([SENT, COMPLETED], {Fate.ABSENT}),
        ([SENT, MAYBE_COMPLETED], {Fate.ACTIVE, Fate.ABSENT}),
        ([MAYBE_SENT, COMPLETED], {Fate.ABSENT}),
        ([SENT, DEFERRED], {Fate.DEFERRED}),
        ([SENT, MAYBE_DEFERRED], {Fate.ACTIVE, Fate.DEFERRED}),
        ([SENT, MAYBE_DEFERRED, MAYBE_COMPLETED], {Fate.ACTIVE, Fate.DEFERRED, Fate.ABSENT}),
        ([SENT, DEAD], {Fate.DEAD}),
        ([SCHEDULED], {Fate.SCHEDULED}),
        ([SCHEDULED, COMPLETED], {Fate.ABSENT}),
    ],
)
def test_what_is_right_and_what_is_a_lie(steps: list[tuple[Fate, bool]], right: set[Fate]) -> None:
    for fate in Fate:
        assert (told(*steps).judge(found(fate), NO_STATES) == []) is (fate in right), fate


def test_a_lost_message_is_named() -> None:
    assert told(SENT).judge([], NO_STATES) == ["m is absent, not active"]


def test_a_completed_message_that_comes_back_is_named() -> None:
    assert told(SENT, COMPLETED).judge(found(Fate.ACTIVE), NO_STATES) == ["m is active, not absent"]


def test_a_confirmation_that_comes_late_takes_nothing_back() -> None:
    """The consumer may be told that its completion was done before the producer reads that it was sent."""
    journal = Journal()
    sent = journal.begin("m", Fate.ACTIVE)
    completed = journal.begin("m", Fate.ABSENT)
    journal.confirm("m", completed)
    journal.confirm("m", sent)
    assert journal.judge([], NO_STATES) == []
    assert journal.judge(found(Fate.ACTIVE), NO_STATES) != []


def test_a_message_that_nobody_sent_is_a_lie() -> None:
    (wrong,) = Journal().judge([Found("ghost", Fate.ACTIVE)], NO_STATES)
    assert "never sent" in wrong


def test_a_message_that_is_there_twice_is_a_lie() -> None:
    twice = [Found("m", Fate.ACTIVE), Found("m", Fate.DEAD, place="orders/dead")]
    assert any("twice" in wrong for wrong in told(SENT).judge(twice, NO_STATES))


def test_a_delivery_that_was_not_counted_is_a_lie() -> None:
    journal = told(SENT)
    journal.confirm("m", journal.begin("m", Fate.ACTIVE), counted=True)
    assert journal.judge([Found("m", Fate.ACTIVE, delivery_count=1)], NO_STATES) == []
    assert journal.judge([Found("m", Fate.ACTIVE, delivery_count=0)], NO_STATES) != []


def test_a_sequence_number_that_is_used_again_is_a_lie() -> None:
    journal = told(SENT, COMPLETED)
    assert journal.judge([], NO_STATES) == []
    journal = told(SENT)
    assert journal.judge(found(Fate.ACTIVE), NO_STATES) == []
    journal.confirm("m", journal.begin("m", Fate.ABSENT))
    journal.confirm("n", journal.begin("n", Fate.ACTIVE))
    (wrong,) = journal.judge([Found("n", Fate.ACTIVE)], NO_STATES)
    assert "sequence number of m" in wrong


def test_session_states() -> None:
    journal = Journal()
    first = journal.begin_state("s", b"1")
    assert journal.sessions == [], "it may never have arrived"
    journal.confirm_state("s", first)
    journal.begin_state("s", b"2")
    assert journal.judge([], {"s": b"1"}) == []
    assert journal.judge([], {"s": b"2"}) == []
    assert journal.judge([], {"s": None}) != []
    assert journal.judge([], {"s": b"3"}) != []
    assert journal.sessions == ["s"]


def test_what_was_open_is_settled_by_what_was_found() -> None:
    journal = told(SENT, MAYBE_COMPLETED)
    journal.begin_state("s", b"1")
    journal.learn([], {"s": b"1"})
    assert journal.judge([], {"s": b"1"}) == []
    assert journal.judge(found(Fate.ACTIVE), {"s": b"1"}) != [], "it was gone, and has come back"
    assert journal.judge([], {"s": None}) != []
