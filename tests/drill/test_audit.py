"""The audit finds what was planted: a loss, a duplicate, a disorder, a changed body; and nothing else."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pairbus.drill.audit import Audit, audit
from pairbus.drill.messages import Arrival, Resting, SendOutcome, SentMessage

NODES = {
    "orders": ("orders",),
    "events": ("events/Subscriptions/audit", "events/Subscriptions/mail"),
    "payments": ("payments",),
}
PATHS = tuple(NODES)
counts = st.lists(st.sampled_from(PATHS), min_size=1, max_size=40)


def send(paths: Sequence[str], *, outcome: SendOutcome = "returned") -> list[SentMessage]:
    """Messages in the order of their sending; payments belong to two sessions."""
    return [
        SentMessage(
            message_id=f"{path}-{number}",
            path=path,
            client="app-1",
            position=number,
            session=f"session-{number % 2}" if path == "payments" else None,
            checksum=number,
            outcome=outcome,
            route="primary",
        )
        for number, path in enumerate(paths)
    ]


def deliver(sent: Sequence[SentMessage], *, first_number: int = 1) -> list[Arrival]:
    """Each of them at each of its nodes, once, in order."""
    places = [(message, node) for message in sent for node in NODES[message.path]]
    return [
        Arrival(
            node=node,
            path=message.path,
            message_id=message.message_id,
            sequence_number=number,
            session=message.session,
            checksum=message.checksum,
        )
        for number, (message, node) in enumerate(places, start=first_number)
    ]


def judge(
    sent: Sequence[SentMessage],
    arrivals: Sequence[Arrival],
    resting: Sequence[Resting] = (),
    *,
    queues: dict[tuple[str, str], str] | None = None,
    ordered_across: bool = False,
) -> Audit:
    return audit(sent, arrivals, resting, nodes=NODES, queues=queues, ordered_across=ordered_across)


def total(found: Audit) -> int:
    verdict = found.verdict
    return (
        verdict.delivered
        + verdict.waiting
        + verdict.dead_lettered
        + verdict.refused
        + verdict.unknown
        + verdict.lost
    )


@given(counts)
def test_what_simply_arrived_leaves_nothing_to_tell(paths: list[str]) -> None:
    sent = send(paths)
    found = judge(sent, deliver(sent))
    assert found.verdict.delivered == found.verdict.sent == len(sent)
    assert (found.verdict.unaccounted, found.unexpected, found.altered) == ((), (), ())
    assert found.verdict.is_clean


@given(counts, st.data())
def test_a_planted_loss_is_named(paths: list[str], data: st.DataObject) -> None:
    sent = send(paths)
    arrivals = deliver(sent)
    missing = data.draw(st.sampled_from(arrivals))
    found = judge(sent, [one for one in arrivals if one is not missing])
    assert found.verdict.lost == 1
    assert [(one.message_id, one.fate) for one in found.verdict.unaccounted] == [(missing.message_id, "lost")]
    assert missing.node in found.verdict.unaccounted[0].note
    assert found.by_path[missing.path].lost == 1
    assert total(found) == len(sent)


@given(counts, st.data())
def test_a_planted_duplicate_is_named_and_a_second_delivery_is_none(
    paths: list[str], data: st.DataObject
) -> None:
    sent = send(paths)
    arrivals = deliver(sent)
    again = data.draw(st.sampled_from(arrivals))
    twice = replace(again, sequence_number=10_000)
    found = judge(sent, [*arrivals, again, twice])
    assert (found.verdict.duplicated, found.verdict.lost) == (1, 0)
    assert [one.message_id for one in found.verdict.unaccounted] == [again.message_id]
    assert judge(sent, [*arrivals, again]).verdict.duplicated == 0


@given(st.integers(3, 20), st.data())
def test_a_planted_disorder_is_named(number: int, data: st.DataObject) -> None:
    sent = send(["payments"] * (2 * number))
    arrivals = deliver(sent)
    place = data.draw(st.integers(0, 2 * number - 3))
    # The next one of the same session overtakes it.
    arrivals[place], arrivals[place + 2] = arrivals[place + 2], arrivals[place]
    found = judge(sent, arrivals)
    assert found.verdict.out_of_order == 1
    assert [one.message_id for one in found.verdict.unaccounted] == [f"payments-{place}"]
    assert found.verdict.is_clean


def test_order_is_judged_on_each_way_unless_it_is_promised_across() -> None:
    sent = send(["payments"] * 8)
    by_backlog = sent[2:5]
    queues = {("payments", one.message_id): "contoso/x-servicebus-transfer/0" for one in by_backlog}
    arrivals = deliver([*sent[:2], *sent[5:], *by_backlog])
    assert judge(sent, arrivals, queues=queues).verdict.out_of_order == 0
    assert judge(sent, arrivals, queues=queues, ordered_across=True).verdict.out_of_order == 3


@given(counts, st.sampled_from(["raised", "unknown", "open"]))
def test_a_send_that_did_not_return_is_no_loss(paths: list[str], outcome: SendOutcome) -> None:
    sent = send(paths, outcome=outcome)
    nowhere = judge(sent, [])
    assert nowhere.verdict.lost == 0
    assert (nowhere.verdict.refused if outcome == "raised" else nowhere.verdict.unknown) == len(sent)
    arrived = judge(sent, deliver(sent))
    assert arrived.verdict.delivered == len(sent)


def test_what_lies_somewhere_is_waiting_or_dead_and_not_lost() -> None:
    sent = send(["orders"] * 3)
    waiting = Resting(message_id="orders-0", path="Orders", place="contoso/x-servicebus-transfer/1")
    dead = Resting(message_id="orders-1", path="orders", place="the dead letters", is_dead=True, reason="big")
    found = judge(sent, deliver(sent[2:]), [waiting, dead])
    assert (found.verdict.waiting, found.verdict.dead_lettered, found.verdict.lost) == (1, 1, 0)
    notes = {one.message_id: one.note for one in found.verdict.unaccounted}
    assert "contoso/x-servicebus-transfer/1" in notes["orders-0"]
    assert "big" in notes["orders-1"]


def test_a_message_to_a_topic_must_arrive_at_every_subscription() -> None:
    sent = send(["events"])
    found = judge(sent, deliver(sent)[:1])
    assert found.verdict.lost == 1
    assert "mail" in found.verdict.unaccounted[0].note


def test_a_changed_body_and_a_foreign_message_are_found() -> None:
    sent = send(["orders", "orders"])
    arrivals = deliver(sent)
    foreign = replace(arrivals[0], message_id="ping", sequence_number=99)
    found = judge(sent, [arrivals[0], replace(arrivals[1], checksum=77), foreign])
    assert found.altered == ("orders-1",)
    assert found.unexpected == ("orders: ping",)


def test_the_worst_are_named_first_and_all_are_counted() -> None:
    sent = [*send(["orders"] * 1500, outcome="raised"), *send(["events"] * 1)]
    found = judge(sent, [])
    assert found.verdict.refused == 1500
    assert len(found.verdict.unaccounted) == 1000
    assert found.verdict.unaccounted[0].fate == "lost"
