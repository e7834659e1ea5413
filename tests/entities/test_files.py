"""What the two forms of entity files say, and what is said of their mistakes."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.filters import CorrelationFilter, SqlFilter
from pairbus.broker.engine.settings import EntityStatus, QueueSettings
from pairbus.broker.entities.files import EntityFiles, read_entity_file
from pairbus.errors import ConfigurationError
from tests.logs import our_records

CONFIG = Path(__file__).parent / "Config.json"


def test_the_config_of_the_official_emulator_is_read_as_it_is() -> None:
    file = read_entity_file(CONFIG)
    assert file.passed_over == ()
    assert list(file.namespaces) == ["sbemulatorns"]
    declared = file.namespaces["sbemulatorns"]
    assert declared.queues == {
        "queue.1": QueueSettings(
            default_message_time_to_live=3600.0,
            duplicate_detection_history_time_window=20.0,
            forward_to="topic.1",
            lock_duration=45.0,
            max_delivery_count=3,
            requires_duplicate_detection=True,
        )
    }
    subscriptions = declared.topics["topic.1"].subscriptions
    assert list(subscriptions) == ["subscription.1", "subscription.2", "subscription.3"]
    first, second, third = subscriptions.values()
    assert (first.settings.max_delivery_count, first.settings.requires_session) == (7, True)
    assert [rule.name for rule in first.rules] == ["app-prop-filter-1", "user-prop-filter-1"]
    assert first.rules[0].filter == CorrelationFilter(
        content_type="application/text",
        correlation_id="id1",
        subject="subject1",
        message_id="msgid1",
        reply_to="someQueue",
        reply_to_session_id="sessionId",
        session_id="session1",
        to="xyz",
    )
    assert first.rules[1].filter == CorrelationFilter(properties={"prop3": "value3"})
    assert second.rules == ()
    assert third.rules[0].filter == SqlFilter("sys.MessageId = '123456' AND userProp1 = 'value1'")
    assert third.rules[0].action == SqlAction("SET sys.To = 'Entity'")


def write_config(tmp_path: Path, namespace: dict[str, Any]) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}), encoding="utf-8")
    return path


def test_keys_of_the_config_have_any_case_and_unknown_ones_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = {"name": "orders", "properties": {"lockDuration": "PT30S", "Sparkle": 1, "maxDeliveryCount": "4"}}
    path = write_config(tmp_path, {"Name": "one", "queues": [queue], "Topics": None})
    with caplog.at_level(logging.WARNING):
        declared = EntityFiles([path]).declared("one")
    assert declared.queues == {"orders": QueueSettings(lock_duration=30.0, max_delivery_count=4)}
    (record,) = our_records(caplog)
    assert record.fields["key"] == "UserConfig.Namespaces[1].queues[1].properties.Sparkle"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("namespace", "told"),
    [
        ({"Queues": []}, "Name is missing"),
        ({"Name": "one", "Queues": [{"Name": "a"}, {"Name": "A"}]}, "'A' was used before"),
        ({"Name": "one", "Queues": [{"Name": "a"}], "Topics": [{"Name": "a"}]}, "'a' was used before"),
        (
            {"Name": "one", "Queues": [{"Name": "a", "Properties": {"LockDuration": "60s"}}]},
            "'60s' is not a duration",
        ),
        (
            {"Name": "one", "Queues": [{"Name": "a", "Properties": {"MaxDeliveryCount": 1.5}}]},
            "MaxDeliveryCount: 1.5 is not a whole number",
        ),
        ({"Name": "one", "Queues": {"Name": "a"}}, "Queues"),
        (
            {
                "Name": "one",
                "Topics": [
                    {
                        "Name": "t",
                        "Subscriptions": [
                            {"Name": "s", "Rules": [{"Name": "r", "Properties": {"FilterType": "Sq"}}]}
                        ],
                    }
                ],
            },
            "FilterType must be Sql or Correlation, not 'Sq'",
        ),
    ],
)
def test_mistakes_of_a_config_are_told(tmp_path: Path, namespace: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_entity_file(write_config(tmp_path, namespace))
    assert told in str(raised.value)
    assert "Config.json" in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "{",
        '{"UserConfig": 3}',
        '{"UserConfig": {}}',
        '{"UserConfig": {"Namespaces": null}}',
        '{"UserConfig": {"Namespaces": []}}',
        "[" * 100_000,
        "",
    ],
)
def test_a_json_file_that_is_no_config_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError):
        read_entity_file(path)


TOML = """
[queues.orders]
lock_duration = "PT30S"
default_message_time_to_live = 90.5
requires_session = true
status = "SendDisabled"

[topics."eu/events".subscriptions.audit]
max_delivery_count = 5

[topics."eu/events".subscriptions.audit.rules.large]
sql = "amount > @least"
parameters = { "@least" = 100 }
action = "SET size = 'large'"

[topics."eu/events".subscriptions.audit.rules.europe]
correlation = { subject = "order", properties = { region = "eu" } }

[namespaces.contoso-dr.queues.orders]
[namespaces.contoso-dr.queues.extra]
"""


def write_toml(tmp_path: Path, text: str, name: str = "entities.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_toml_has_entities_for_all_namespaces_and_for_single_ones(tmp_path: Path) -> None:
    files = EntityFiles([write_toml(tmp_path, TOML)])
    everywhere, special = files.declared("contoso"), files.declared("contoso-dr")
    assert everywhere.queues == {
        "orders": QueueSettings(
            lock_duration=30.0,
            default_message_time_to_live=90.5,
            requires_session=True,
            status=EntityStatus.SEND_DISABLED,
        )
    }
    assert special.queues == {"orders": QueueSettings(), "extra": QueueSettings()}
    large, europe = everywhere.topics["eu/events"].subscriptions["audit"].rules
    assert large.filter == SqlFilter("amount > @least", {"@least": 100})
    assert large.action == SqlAction("SET size = 'large'")
    assert europe.filter == CorrelationFilter(subject="order", properties={"region": "eu"})


def test_of_several_files_the_last_counts(tmp_path: Path) -> None:
    one = write_toml(tmp_path, "[queues.Orders]\nmax_delivery_count = 1\n[queues.a]\n", "one.toml")
    two = write_toml(tmp_path, "[queues.orders]\nmax_delivery_count = 2\n", "two.toml")
    queues = EntityFiles([one, two]).declared("contoso").queues
    assert queues == {"a": QueueSettings(), "orders": QueueSettings(max_delivery_count=2)}


def test_a_topic_of_several_files_has_the_subscriptions_of_all_and_keeps_its_settings(tmp_path: Path) -> None:
    first = """
        [topics.Events]
        user_metadata = "first"
        [topics.Events.subscriptions.Audit]
        max_delivery_count = 1
        [topics.Events.subscriptions.mail]
        [topics.other.subscriptions.all]
        [namespaces.contoso.topics.events.subscriptions.audit]
        max_delivery_count = 2
    """
    second = "[topics.events.subscriptions.news]\n[queues.other]"
    paths = [write_toml(tmp_path, first, "one.toml"), write_toml(tmp_path, second, "two.toml")]
    declared = EntityFiles(paths).declared("contoso")
    assert list(declared.topics) == ["events"]
    assert declared.topics["events"].settings.user_metadata == "first"
    subscriptions = declared.topics["events"].subscriptions
    counts = {name: one.settings.max_delivery_count for name, one in subscriptions.items()}
    assert counts == {"mail": 10, "audit": 2, "news": 10}
    assert list(EntityFiles(paths).declared("other").topics["events"].subscriptions) == [
        "Audit",
        "mail",
        "news",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[queue.orders]", "'queue' is not known; did you mean 'queues'?"),
        ("[queues.a]\nlock_duraton = 3", "did you mean 'lock_duration'?"),
        ("[queues.a]\nlock_duration = true", "lock_duration: True is no duration"),
        ("[queues.a]\nrequires_session = 1", "requires_session: 1 is not true or false"),
        ("[queues.a]\nmax_delivery_count = true", "max_delivery_count: True is not a whole number"),
        ("[queues.a]\nlock_duration = nan", "nan is no duration"),
        ("[queues.a]\nstatus = 'Asleep'", "Asleep"),
        ("[queues.a]\n[topics.a]", "a queue and a topic"),
        ("[topics.t.subscriptions.s.rules.r]", "either sql or correlation"),
        ("[topics.t.subscriptions.s.rules.r]\nsql = 'a >'", "[topics.t.subscriptions.s.rules.r]"),
        ("[topics.t.subscriptions.s.rules.r]\ncorrelation = {}", "needs a field or a property"),
        ("queues = 3", "must be a table"),
        ("[queues", "is not TOML"),
    ],
)
def test_mistakes_of_a_toml_are_told_with_their_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_entity_file(write_toml(tmp_path, text))
    assert told in str(raised.value)
