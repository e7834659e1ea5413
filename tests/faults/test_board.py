"""The board answers questions about any moment, without a clock, a socket or a broker."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus import conditions
from pairbus.broker.faults.board import FaultBoard
from pairbus.broker.faults.fault import Fault
from pairbus.errors import ConfigurationError
from pairbus.fault_kinds import ARGUMENTS, ClientAction, FaultKind, LineState

NOW = 1_700_000_000.0
LINES = {
    FaultKind.REFUSE: LineState.REFUSE,
    FaultKind.RESET: LineState.RESET,
    FaultKind.SILENCE: LineState.SILENCE,
    FaultKind.BLACKHOLE: LineState.BLACKHOLE,
    FaultKind.FLAP: LineState.REFUSE,
}
ATTACHES = {ClientAction.ATTACH_SENDER, ClientAction.ATTACH_RECEIVER, ClientAction.ATTACH_MANAGEMENT}
phases = st.floats(0.01, 10_000)


def board_with(
    kind: FaultKind | str, *, entity: Any = None, duration: Any = None, **arguments: Any
) -> FaultBoard:
    board = FaultBoard()
    board.set(kind, now=NOW, entity=entity, duration=duration, arguments=arguments)
    return board


def conditions_of(board: FaultBoard, entity: str = "orders") -> dict[ClientAction, str]:
    errors = {operation: board.refusal(operation, entity, now=NOW) for operation in ClientAction}
    return {operation: error.condition for operation, error in errors.items() if error is not None}


def severed_by(board: FaultBoard, entity: str = "orders") -> set[ClientAction]:
    return {attach for attach in ATTACHES if board.severance(attach, entity, now=NOW)}


# -- what each kind does


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_works_with_no_further_argument(kind: FaultKind) -> None:
    board = board_with(kind)
    assert board.any
    assert [fault.kind for fault in board.active(NOW + 1e6)] == [kind]
    assert board.line(NOW) is LINES.get(kind, LineState.UP)


@pytest.mark.parametrize("kind", LINES)
def test_a_fault_of_the_line_leaves_the_answers_of_a_namespace_alone(kind: FaultKind) -> None:
    assert conditions_of(board_with(kind)) == {}


@pytest.mark.parametrize("kind", [FaultKind.REFUSE, FaultKind.RESET, FaultKind.FLAP])
def test_set_on_an_entity_it_takes_that_entitys_links(kind: FaultKind) -> None:
    board = board_with(kind, entity="orders")
    assert board.line(NOW) is LineState.UP
    assert board.line(NOW, "orders") is LINES[kind]
    on_links = {operation for operation in ClientAction if operation is not ClientAction.ADMINISTER}
    assert conditions_of(board) == dict.fromkeys(on_links, conditions.DETACH_FORCED)
    assert severed_by(board) == ATTACHES
    assert conditions_of(board, "invoices") == {}


@pytest.mark.parametrize("kind", [FaultKind.SILENCE, FaultKind.BLACKHOLE])
def test_a_mute_entity_refuses_nothing_and_severs_nothing(kind: FaultKind) -> None:
    board = board_with(kind, entity="orders")
    assert board.line(NOW, "orders").is_mute
    assert (conditions_of(board), severed_by(board)) == ({}, set())


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        (FaultKind.ERROR, conditions.INTERNAL_ERROR),
        (FaultKind.TOKEN, conditions.UNAUTHORIZED),
    ],
)
def test_some_refuse_everything_and_tell_receivers(kind: FaultKind, condition: str) -> None:
    board = board_with(kind)
    assert conditions_of(board) == dict.fromkeys(ClientAction, condition)
    assert severed_by(board) == {ClientAction.ATTACH_RECEIVER}


def test_busy_refuses_everything_and_lets_receivers_starve() -> None:
    board = board_with("busy", entity="orders")
    assert conditions_of(board) == dict.fromkeys(ClientAction, conditions.SERVER_BUSY)
    assert severed_by(board) == set()
    assert board.withholds("orders", NOW)
    assert not board.withholds("invoices", NOW)


def test_error_has_the_condition_that_was_asked_for() -> None:
    board = board_with("error", condition=conditions.OPERATION_CANCELLED)
    assert set(conditions_of(board).values()) == {conditions.OPERATION_CANCELLED}


def test_busy_says_how_long_to_wait() -> None:
    error = board_with("busy").refusal(ClientAction.SEND, "orders", now=NOW)
    assert error is not None
    assert "50009" in (error.description or "")
    assert "2 seconds" in (error.description or "")


def test_disabled_refuses_senders_and_receivers_but_not_their_management() -> None:
    board = board_with("disabled")
    refused = {
        ClientAction.SEND,
        ClientAction.SCHEDULE,
        ClientAction.ATTACH_SENDER,
        ClientAction.ATTACH_RECEIVER,
    }
    assert conditions_of(board) == dict.fromkeys(refused, conditions.ENTITY_DISABLED)
    assert severed_by(board) == {ClientAction.ATTACH_RECEIVER}


def test_full_refuses_what_would_add_a_message() -> None:
    board = board_with("full")
    assert conditions_of(board) == dict.fromkeys(
        {ClientAction.SEND, ClientAction.SCHEDULE}, conditions.RESOURCE_LIMIT
    )
    assert severed_by(board) == set()


def test_token_is_about_the_entities_that_it_concerns() -> None:
    board = board_with("token", entity="orders")
    assert board.refuses_tokens("orders", NOW)
    assert not board.refuses_tokens("invoices", NOW)


def test_delay_is_told_in_seconds() -> None:
    assert board_with("delay").delay("orders", NOW) == 30.0
    assert board_with("delay", seconds=0.5).delay("orders", NOW) == 0.5
    assert board_with("full").delay("orders", NOW) == 0.0


@given(every=st.integers(1, 20), sends=st.integers(0, 100))
def test_drop_loses_every_so_manieth_answer(every: int, sends: int) -> None:
    board = board_with("drop", every=every, entity="orders")
    lost = [number for number in range(1, sends + 1) if board.drops("orders", NOW)]
    assert lost == list(range(every, sends + 1, every))
    assert not board.drops("invoices", NOW)


def test_each_drop_counts_for_itself_and_keeps_its_count_when_another_goes() -> None:
    board = FaultBoard()
    board.set("drop", now=NOW, duration=5, arguments={"every": 2})
    board.set("drop", now=NOW, arguments={"every": 3})
    assert [board.drops("orders", NOW) for _ in range(4)] == [False, True, True, True]
    board.expire(NOW + 5)
    assert [board.drops("orders", NOW + 5) for _ in range(3)] == [False, True, False]


# -- where


@pytest.mark.parametrize(
    ("path", "concerned"),
    [
        ("orders", True),
        ("ORDERS", True),
        ("/orders/", True),
        ("orders/$DeadLetterQueue", True),
        ("orders/Subscriptions/s", True),
        ("orders/subscriptions/s/$deadletterqueue", True),
        ("orders/new", False),
        ("orders2", False),
        ("order", False),
    ],
)
def test_an_entity_is_found_in_any_spelling_and_with_its_parts(path: str, *, concerned: bool) -> None:
    board = board_with("full", entity="/Orders")
    assert (board.refusal(ClientAction.SEND, path, now=NOW) is not None) is concerned


def test_a_subscription_does_not_drag_its_topic_along() -> None:
    board = board_with("disabled", entity="news/Subscriptions/s")
    assert conditions_of(board, "news") == {}
    assert conditions_of(board, "News/subscriptions/S") != {}


def test_the_latest_wins() -> None:
    board = FaultBoard()
    board.set("error", now=NOW, entity="orders")
    board.set("busy", now=NOW)
    assert set(conditions_of(board).values()) == {conditions.SERVER_BUSY}
    board.set("silence", now=NOW)
    board.set("refuse", now=NOW)
    assert board.line(NOW) is LineState.REFUSE


# -- when


def test_a_fault_ends_with_its_time() -> None:
    board = board_with("full", duration=10)
    assert board.next_change(NOW) == NOW + 10
    assert board.refusal(ClientAction.SEND, "orders", now=NOW + 9.999) is not None
    assert board.refusal(ClientAction.SEND, "orders", now=NOW + 10) is None
    assert board.expire(NOW + 9.999) == []
    assert [fault.kind for fault in board.expire(NOW + 10)] == [FaultKind.FULL]
    assert not board.any
    assert board.next_change(NOW + 10) is None


def test_what_lasts_until_cleared_never_changes_by_itself() -> None:
    assert board_with("refuse").next_change(NOW) is None


def test_clear_takes_all_or_those_of_one_entity() -> None:
    board = FaultBoard()
    for entity in (None, "orders", "Orders", "orders/$DeadLetterQueue", "invoices"):
        board.set("full", now=NOW, entity=entity)
    assert board.clear("/ORDERS") == 2
    assert {fault.entity for fault in board.active(NOW)} == {None, "orders/$DeadLetterQueue", "invoices"}
    assert board.clear() == 3
    assert (board.clear(), board.any) == (0, False)


@given(
    up=phases,
    down=phases,
    ahead=st.floats(0, 1e7),
    since=st.floats(0, 4e9),
)
def test_flapping_changes_exactly_when_it_says(up: float, down: float, ahead: float, since: float) -> None:
    fault = Fault(kind=FaultKind.FLAP, since=since, up=up, down=down)
    now = since + ahead
    for _ in range(6):
        line, change = fault.line(now), fault.next_change(now)
        assert change > now
        assert fault.line(math.nextafter(change, 0)) is line
        assert fault.line((now + change) / 2) is line
        assert fault.line(change) is not line
        length = down if line is LineState.REFUSE else up
        assert change - now <= length + 1e-3
        now = change


def test_flapping_is_down_first() -> None:
    board = board_with("flap", up=3, down=2)
    seen = [board.line(NOW + moment) for moment in (0, 1.999, 2, 4.999, 5, 6.999, 7)]
    down, up = LineState.REFUSE, LineState.UP
    assert seen == [down, down, up, up, down, down, up]


@given(up=phases, down=phases, duration=st.floats(0.01, 1e5), ahead=st.floats(0, 2e5))
def test_flapping_too_ends_with_its_time(up: float, down: float, duration: float, ahead: float) -> None:
    board = board_with("flap", up=up, down=down, duration=duration)
    now = NOW + ahead
    change = board.next_change(now)
    if now >= NOW + duration:
        assert (board.line(now), change) == (LineState.UP, None)
    else:
        assert change is not None
        assert now < change <= NOW + duration


def test_while_it_is_up_a_flapping_line_lets_an_older_fault_be_seen() -> None:
    board = FaultBoard()
    board.set("silence", now=NOW)
    board.set("flap", now=NOW, arguments={"up": 1, "down": 1})
    assert [board.line(NOW), board.line(NOW + 1)] == [LineState.REFUSE, LineState.SILENCE]


# -- what is refused


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("sulk", {}, "there is no fault 'sulk'"),
        (None, {}, "choose one of refuse"),
        ("refuse", {"every": 3}, "no argument of its own"),
        ("flap", {"seconds": 3}, "takes down and up"),
        ("delay", {"seconds": 0}, "more than 0"),
        ("delay", {"seconds": -1.0}, "more than 0"),
        ("delay", {"seconds": math.nan}, "more than 0"),
        ("delay", {"seconds": math.inf}, "more than 0"),
        ("delay", {"seconds": "3"}, "more than 0"),
        ("delay", {"seconds": True}, "more than 0"),
        ("delay", {"seconds": 10**400}, "more than 0"),
        ("drop", {"every": 1.5}, "whole number"),
        ("drop", {"every": 0}, "whole number"),
        ("drop", {"every": True}, "whole number"),
        ("flap", {"up": 1e-6}, "at least"),
        ("error", {"condition": ""}, "name of an AMQP error"),
        ("error", {"condition": 5}, "name of an AMQP error"),
        ("error", {"condition": "ümlaut"}, "name of an AMQP error"),
        ("refuse", {"duration": 0}, "leave the time out"),
        ("refuse", {"duration": "soon"}, "leave the time out"),
        ("refuse", {"duration": math.inf}, "leave the time out"),
        ("refuse", {"entity": 5}, "path of a queue"),
        ("refuse", {"entity": "/"}, "path of a queue"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(kind: Any, arguments: dict[str, Any], said: str) -> None:
    board = FaultBoard()
    entity, duration = arguments.pop("entity", None), arguments.pop("duration", None)
    with pytest.raises(ConfigurationError, match=said):
        board.set(kind, now=NOW, entity=entity, duration=duration, arguments=arguments)
    assert not board.any


def test_clearing_something_that_is_no_entity_is_a_mistake() -> None:
    board = board_with("full")
    with pytest.raises(ConfigurationError, match="path of a queue"):
        board.clear(5)  # type: ignore[arg-type]
    assert board.any


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers())
)


@given(
    kind=st.one_of(anything, st.sampled_from(FaultKind)),
    values=st.dictionaries(st.sampled_from([*ARGUMENTS, "entity", "duration"]), anything),
)
def test_whatever_is_given_is_a_good_fault_or_a_configuration_error(
    kind: Any, values: dict[str, Any]
) -> None:
    board = FaultBoard()
    try:
        entity, duration = values.pop("entity", None), values.pop("duration", None)
        fault = board.set(kind, now=NOW, entity=entity, duration=duration, arguments=values)
    except ConfigurationError:
        return
    json.dumps(fault.describe(), allow_nan=False)
    for entity in ("orders", None):
        assert board.line(NOW, entity) in LineState
    for operation in ClientAction:
        board.refusal(operation, "orders", now=NOW)
    change = board.next_change(NOW)
    assert change is None or change > NOW


def test_a_description_has_what_its_kind_knows_and_no_more() -> None:
    board = FaultBoard()
    flap = board.set("flap", now=NOW, entity="orders", duration=60)
    assert flap.describe() == {
        "kind": "flap",
        "entity": "orders",
        "since": NOW,
        "until": NOW + 60,
        "down": 5.0,
        "up": 5.0,
    }
    refuse = board.set("refuse", now=NOW)
    assert refuse.describe() == {"kind": "refuse", "entity": None, "since": NOW, "until": None}
