import math
import pickle
from datetime import timedelta
from typing import Any

import pytest

from pairbus.errors import ConfigurationError
from pairbus.options import EntityState, SendAvailabilityOptions, StateChange, describe_options


def test_the_defaults_are_those_of_the_original() -> None:
    options = SendAvailabilityOptions()
    assert options.backlog_queue_count == 10
    assert options.failover_interval == 60
    assert options.ping_primary_interval == 60
    assert options.enable_syphon is False
    assert options.send_timeout == 10
    assert options.links_per_entity == 1
    assert (options.on_suspect, options.on_permanent, options.probe) == ("hold", "raise", "message")
    assert options.ttl_policy == "pause"


@pytest.mark.parametrize(
    ("name", "good", "bad", "said"),
    [
        ("backlog_queue_count", [1, 10_000], [0, -1, 2.5, True, "3"], "1 to 10000"),
        (
            "failover_interval",
            [0, 0.5, 3600],
            [-0.1, 3600.1, 10**400, math.nan, math.inf, None, "1"],
            "0 to 3600 seconds",
        ),
        ("ping_primary_interval", [1, 1800], [0, 0.9, 1801], "1 to 1800 seconds"),
        ("enable_syphon", [True], [1, "yes", None], "True or False"),
        ("send_timeout", [0.05, 3600], [0, -1], "0.05 to 3600 seconds"),
        ("links_per_entity", [1, 64], [0, 65], "1 to 64"),
        ("on_suspect", ["hold", "raise"], ["wait", None, ["hold"]], '"hold" or "raise"'),
        ("on_permanent", ["raise", "backlog"], ["hold"], '"raise" or "backlog"'),
        ("probe", ["message", "link"], ["ping"], '"message" or "link"'),
        ("good_pings", [1, 100], [0, 101], "1 to 100"),
        ("ping_jitter", [0, 0.9], [-0.1, 1], "0 to 0.9"),
        ("count_throttled_after", [None, 0, 5.5], [-1, "never"], "or None for never"),
        ("ordering", ["none", "session"], ["strict"], '"none" or "session"'),
        (
            "ttl_policies",
            [{}, {"a/b": "deduct"}],
            [{"a": "never"}, {"": "pause"}, {1: "pause"}, []],
            "mapping",
        ),
    ],
)
def test_each_option_is_checked_and_the_error_says_what_is_allowed(
    name: str, good: list[Any], bad: list[Any], said: str
) -> None:
    for value in good:
        assert getattr(SendAvailabilityOptions(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(ConfigurationError, match=rf"^{name} must be .*{said}"):
            SendAvailabilityOptions(**{name: value})


def test_a_timedelta_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigurationError, match="give seconds as a number"):
        SendAvailabilityOptions(failover_interval=timedelta(minutes=1))  # type: ignore[arg-type]


def test_delays_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="retry_delay_max"):
        SendAvailabilityOptions(retry_delay=10.0, retry_delay_max=5.0)


def test_pauses_between_attempts_double_up_to_a_limit() -> None:
    options = SendAvailabilityOptions(retry_delay=0.5, retry_delay_max=3.0)
    assert [options.retry_delay_after(count) for count in (0, 1, 2, 3, 4, 100_000)] == [
        0.5,
        0.5,
        1.0,
        2.0,
        3.0,
        3.0,
    ]


def test_the_policy_of_an_entity_is_found_whatever_its_spelling() -> None:
    given = {"/Sales/Orders": "deduct"}
    options = SendAvailabilityOptions(ttl_policies=given)  # type: ignore[arg-type]
    given.clear()
    assert options.ttl_policies == {"sales/orders": "deduct"}


def test_options_and_changes_travel_between_processes() -> None:
    options = SendAvailabilityOptions(failover_interval=5, ttl_policies={"a": "deduct"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(pickle.loads(pickle.dumps(options)))
    change = StateChange("a", EntityState.HEALTHY, EntityState.SUSPECT, 1.0, "x")
    copy = pickle.loads(pickle.dumps(change))
    assert copy == change
    assert copy.new is EntityState.SUSPECT
    assert {EntityState.SUSPECT: 1}[copy.new] == 1


def test_every_option_is_described() -> None:
    described = {option.name: option for option in describe_options()}
    assert set(described) == set(SendAvailabilityOptions.__dataclass_fields__)
    assert described["failover_interval"].default == "60.0"
    assert described["ttl_policies"].default == "{}"
    assert all(option.meaning.endswith(".") and option.allowed for option in described.values())
