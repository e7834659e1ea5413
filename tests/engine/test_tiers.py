"""What each tier has and lacks."""

from typing import Any

import pytest

from pairbus import conditions
from pairbus.broker import Broker, Strictness, Tier
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings, TopicSettings
from pairbus.broker.engine.tiers import limits_of
from pairbus.errors import ConfigurationError

from .samples import START, refused

DAY = 86_400.0


def of(tier: Tier, strictness: Strictness = Strictness.STRICT) -> Namespace:
    return Namespace("contoso", limits=limits_of(tier, strictness))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"requires_session": True}, "The Basic tier has no sessions"),
        ({"requires_duplicate_detection": True}, "no duplicate detection"),
        ({"forward_to": "other"}, "no forwarding"),
        ({"forward_dead_lettered_messages_to": "other"}, "no forwarding"),
        ({"default_message_time_to_live": 15 * DAY}, "default_message_time_to_live"),
    ],
)
def test_basic_lacks_what_it_lacks(settings: dict[str, Any], told: str) -> None:
    space = of(Tier.BASIC)
    space.create_queue("other", None, START)
    with refused(conditions.ARGUMENT_ERROR, text=told):
        space.create_queue("orders", QueueSettings(**settings), START)
    with refused(conditions.ARGUMENT_ERROR):
        space.update_queue("other", QueueSettings(**settings), START)


def test_basic_has_no_topics_and_no_message_for_ever() -> None:
    space = of(Tier.BASIC)
    with refused(conditions.ARGUMENT_ERROR, text="The Basic tier has no topics"):
        space.create_topic("events", TopicSettings(), START)
    assert space.create_queue("orders", None, START).settings.default_message_time_to_live == 14 * DAY
    assert (
        space.update_queue("orders", QueueSettings(), START).settings.default_message_time_to_live == 14 * DAY
    )


@pytest.mark.parametrize("kilobytes", [1, 256, 1023, 102_401, 2**31])
def test_premium_refuses_sizes_by_name(kilobytes: int) -> None:
    space = of(Tier.PREMIUM)
    settings = QueueSettings(max_message_size_in_kilobytes=kilobytes)
    with refused(
        conditions.ARGUMENT_ERROR,
        text="value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400",
    ):
        space.create_queue("orders", settings, START)
    with refused(conditions.ARGUMENT_ERROR, text="MaxMessageSizeInKilobytes"):
        space.create_topic("events", TopicSettings(max_message_size_in_kilobytes=kilobytes), START)


@pytest.mark.parametrize("kilobytes", [None, 1024, 2048, 102_400])
def test_premium_takes_sizes_within_its_range(kilobytes: int | None) -> None:
    of(Tier.PREMIUM).create_queue("orders", QueueSettings(max_message_size_in_kilobytes=kilobytes), START)


@pytest.mark.parametrize("tier", [Tier.BASIC, Tier.STANDARD])
def test_other_tiers_have_256_kilobytes(tier: Tier) -> None:
    space = of(tier)
    space.create_queue("orders", QueueSettings(max_message_size_in_kilobytes=256), START)
    with refused(conditions.ARGUMENT_ERROR, text="MaxMessageSizeInKilobytes"):
        space.create_queue("large", QueueSettings(max_message_size_in_kilobytes=1024), START)


@pytest.mark.parametrize(
    ("tier", "taken", "refusable"),
    [
        (Tier.STANDARD, (1024, 5120), (0, 1, 1000, 6144, 10_240, 81_920)),
        (Tier.PREMIUM, (1024, 5120, 10_240, 81_920), (0, 1, 6144, 81_921)),
    ],
)
def test_entities_have_the_sizes_of_the_tier(
    tier: Tier, taken: tuple[int, ...], refusable: tuple[int, ...]
) -> None:
    space = of(tier)
    for megabytes in taken:
        space.create_queue(f"q{megabytes}", QueueSettings(max_size_in_megabytes=megabytes), START)
    for megabytes in refusable:
        told = f"The specified value {megabytes} is invalid. The property MaxSizeInMegabytes, must be one of"
        with refused(conditions.ARGUMENT_ERROR, text=told):
            space.create_topic("events", TopicSettings(max_size_in_megabytes=megabytes), START)
    of(tier, Strictness.RELAXED).create_queue("small", QueueSettings(max_size_in_megabytes=1), START)


@pytest.mark.parametrize("tier", Tier)
def test_relaxed_is_the_tier_with_short_durations(tier: Tier) -> None:
    strict, relaxed = limits_of(tier), limits_of(tier, Strictness.RELAXED)
    assert strict.sku == relaxed.sku == tier.value.capitalize()
    settings = QueueSettings(lock_duration=0.5, default_message_time_to_live=0.1)
    Namespace("contoso", limits=relaxed).create_queue("orders", settings, START)
    with refused(conditions.ARGUMENT_ERROR):
        Namespace("contoso", limits=strict).create_queue("orders", settings, START)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"tier": "gold"}, "there is no tier 'gold'; there are basic, standard, premium"),
        ({"strictness": "lax"}, "there are strict, relaxed"),
        ({"credits": 0}, "at least 1"),
        ({"tier": "premium", "credits": 5}, "Premium tier has no credits"),
    ],
)
def test_a_broker_refuses_what_there_is_not(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Broker({"contoso": 0}, **wrong)
