"""Topics, subscriptions and rules."""

import pytest

from pairbus import conditions
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.filters import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import SubscriptionSettings, TopicSettings
from pairbus.broker.engine.subscription import Subscription
from tests.engine.samples import (
    START,
    application_properties,
    bodies,
    message,
    namespace,
    ping,
    refused,
)


def news(*rules: Rule) -> tuple[Namespace, Subscription]:
    space = namespace()
    space.create_topic("news", None, START)
    subscription = space.create_subscription("news", "mine", None, START, rules[0] if rules else None)
    for rule in rules[1:]:
        space.create_rule("news", "mine", rule, START)
    return space, subscription


RED = {"colour": "red"}


@pytest.mark.parametrize(
    ("rules", "copies"),
    [
        ((), 1),
        ((Rule("none", FalseFilter()),), 0),
        ((Rule("a", TrueFilter()), Rule("b", TrueFilter())), 1),
        ((Rule("a", SqlFilter("colour = 'red'")), Rule("b", CorrelationFilter(subject="s"))), 1),
        ((Rule("a", SqlFilter("colour = 'blue'")), Rule("b", CorrelationFilter(subject="t"))), 0),
        ((Rule("a", TrueFilter()), Rule("b", TrueFilter(), SqlAction("SET x = 1"))), 2),
        (
            (
                Rule("a", TrueFilter(), SqlAction("SET x = 1")),
                Rule("b", TrueFilter(), SqlAction("SET x = 2")),
                Rule("c", FalseFilter(), SqlAction("SET x = 3")),
            ),
            2,
        ),
    ],
)
def test_how_many_copies_the_rules_ask_for(rules: tuple[Rule, ...], copies: int) -> None:
    space, subscription = news(*rules)
    space.send("news", [message(b"1", subject="s", properties=RED)], START)
    assert bodies(subscription.receive(9, START)) == [b"1"] * copies


def test_an_action_changes_its_own_copy_only() -> None:
    action = SqlAction("SET colour = 'blue'; SET sys.Label = 'changed'; REMOVE weight")
    space, subscription = news(Rule("plain", TrueFilter()), Rule("changed", TrueFilter(), action))
    other = space.create_subscription("news", "other", None, START)
    given = {"colour": "red", "weight": 3}
    space.send("news", [message(b"1", subject="s", message_id="m", properties=given)], START)
    plain, changed = subscription.receive(9, START)
    assert application_properties(plain.message) == given
    assert application_properties(changed.message) == {"colour": "blue"}
    assert changed.message.message_id == "m"
    assert application_properties(other.receive(1, START)[0].message) == given
    assert plain.message.content.whole is changed.message.content.whole


def test_an_action_may_move_a_message_to_another_session() -> None:
    space = namespace()
    space.create_topic("news", None, START)
    rule = Rule("r", TrueFilter(), SqlAction("SET sys.SessionId = 'chosen'"))
    settings = SubscriptionSettings(requires_session=True)
    subscription = space.create_subscription("news", "mine", settings, START, rule)
    space.send("news", [message(b"1")], START)
    lock = subscription.accept_session("chosen", START)
    assert lock is not None
    assert bodies(subscription.receive(1, START, session=lock)) == [b"1"]


def test_subscriptions_number_their_copies_and_keep_the_topics_number() -> None:
    space, first = news()
    space.send("news", [message(), message()], START)
    second = space.create_subscription("news", "second", None, START)
    space.send("news", [message()], START)
    assert [each.sequence_number for each in first.peek(0, 9, START)] == [1, 2, 3]
    assert [each.enqueued_sequence_number for each in first.peek(0, 9, START)] == [1, 2, 3]
    assert [each.sequence_number for each in second.peek(0, 9, START)] == [1]
    assert [each.enqueued_sequence_number for each in second.peek(0, 9, START)] == [3]


def test_copies_are_independent_and_share_the_body() -> None:
    space, first = news()
    second = space.create_subscription("news", "second", None, START)
    space.send("news", [message(b"1")], START)
    (a,), (b,) = first.receive(1, START), second.receive(1, START)
    assert a.message.content.whole is b.message.content.whole
    assert a.lock_token is not None
    first.abandon(a.lock_token, START, properties={"seen": 1})
    assert application_properties(b.message) == {}
    assert b.message.delivery_count == 0


def test_the_shortest_life_of_message_topic_and_subscription() -> None:
    space = namespace()
    space.create_topic("news", TopicSettings(default_message_time_to_live=50.0), START)
    shorter = SubscriptionSettings(
        default_message_time_to_live=20.0, dead_lettering_on_message_expiration=True
    )
    short = space.create_subscription("news", "short", shorter, START)
    long = space.create_subscription("news", "long", None, START)
    space.send("news", [message(ttl=100.0), message(ttl=10.0)], START)
    assert [each.expires_at for each in short.peek(0, 9, START)] == [START + 20, START + 10]
    assert [each.expires_at for each in long.peek(0, 9, START)] == [START + 50, START + 10]
    space.tick(START + 30)
    assert short.counts()[:2] == (0, 2)
    assert short.dead_letters is not None
    assert short.dead_letters.path == "news/Subscriptions/short/$DeadLetterQueue"
    (letter, _) = short.dead_letters.peek(0, 9, START + 30)
    assert letter.dead_letter_source == "news/Subscriptions/short"


def test_a_session_subscription_buries_what_has_no_session() -> None:
    space = namespace()
    space.create_topic("news", None, START)
    subscription = space.create_subscription(
        "news", "mine", SubscriptionSettings(requires_session=True), START
    )
    space.send("news", [message(b"1"), message(b"2", session_id="a")], START)
    assert subscription.counts()[:2] == (1, 1)
    assert subscription.dead_letters is not None
    (letter,) = subscription.dead_letters.peek(0, 9, START)
    assert application_properties(letter)["DeadLetterReason"] == "Session ID is null."


def test_a_ping_reaches_nobody() -> None:
    space, subscription = news()
    space.send("news", [ping()], START)
    assert subscription.peek(0, 9, START) == []


def test_room_is_shared_and_comes_back_with_a_subscription() -> None:
    space, subscription = news()
    topic = space.get_topic("news")
    space.create_subscription("news", "other", None, START)
    space.send("news", [message(b"x" * 1000)], START)
    whole = topic.size_bytes
    (delivery,) = subscription.receive(1, START)
    assert delivery.lock_token is not None
    subscription.dead_letter(delivery.lock_token, START)
    assert topic.size_bytes == whole
    space.delete_subscription("news", "OTHER", START)
    assert topic.size_bytes == whole // 2
    space.delete_subscription("news", "mine", START)
    assert topic.size_bytes == 0


def test_rules_by_name() -> None:
    space, subscription = news()
    assert [rule.name for rule in space.get_subscription("news", "mine").rules] == ["$Default"]
    space.create_rule("news", "mine", Rule("B", FalseFilter()), START)
    space.create_rule("News", "Mine", Rule("a", FalseFilter()), START)
    assert [rule.name for rule in subscription.rules] == ["$Default", "a", "B"]
    with refused(conditions.ENTITY_ALREADY_EXISTS):
        space.create_rule("news", "mine", Rule("b", TrueFilter()), START)
    space.update_rule("news", "mine", Rule("B", TrueFilter()), START)
    assert space.get_subscription("news", "mine").get_rule("b").filter == TrueFilter()
    space.delete_rule("news", "mine", "$default", START)
    with refused(conditions.NOT_FOUND):
        space.get_subscription("news", "mine").get_rule("$Default")
    with refused(conditions.NOT_FOUND):
        space.delete_rule("news", "mine", "$Default", START)
    with refused(conditions.NOT_FOUND):
        space.update_rule("news", "mine", Rule("new", TrueFilter()), START)
    with refused(conditions.ARGUMENT_ERROR):
        space.create_rule("news", "mine", Rule("x" * 51, TrueFilter()), START)
    with refused(conditions.ARGUMENT_ERROR):
        space.create_rule("news", "mine", Rule("half of a character: \ud800", TrueFilter()), START)
    space.delete_rule("news", "mine", "B", START)
    space.send("news", [message()], START)
    assert subscription.counts().active == 0, "only a rule that takes nothing is left"


def test_a_topic_is_only_sent_to_and_a_subscription_only_received_from() -> None:
    space, subscription = news()
    space.get_topic("news").check_send()
    subscription.check_receive()
    with refused(conditions.NOT_ALLOWED, text="'news'"):
        space.send("news/Subscriptions/mine", [message()], START)


@pytest.mark.parametrize(
    ("rule", "is_wide"),
    [
        (Rule("long", SqlFilter(" OR ".join(["n = 1"] * 80))), True),
        (Rule("many", CorrelationFilter(properties=dict.fromkeys(map(str, range(16)), 1))), True),
        (Rule("few", CorrelationFilter(properties=dict.fromkeys(map(str, range(15)), 1))), False),
        (Rule("plain", SqlFilter("n > 3")), False),
        (Rule("pattern", SqlFilter("name like p")), True),
        (Rule("changes", SqlFilter("n > 3"), SqlAction("SET n = 0")), True),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_a_rule_that_may_take_long_with_one_message_is_told(rule: Rule, is_wide: bool) -> None:
    space = namespace()
    space.create_topic("news", None, START)
    space.create_subscription("news", "s", None, START)
    assert not space.is_wide("news")
    space.create_rule("news", "s", rule, START)
    assert space.is_wide("news") is is_wide
    space.delete_rule("news", "s", rule.name, START)
    assert not space.is_wide("news")
