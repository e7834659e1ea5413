"""A broker that has what its files declare, at the start and on change."""

import logging
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.broker import Broker, QueueSettings
from pairbus.broker.engine.namespace import Namespace
from pairbus.errors import ConfigurationError
from tests.cli.process import call, running_broker
from tests.logs import our_lines
from tests.waiting import wait_until

from .test_files import CONFIG, write_toml


def paths(broker: Broker, name: str) -> list[str]:
    def look(engine: Namespace, now: float) -> list[str]:
        topics = engine.list_topics()
        found = [queue.path for queue in engine.list_queues()] + [topic.path for topic in topics]
        return found + [one.path for topic in topics for one in topic.subscriptions]

    return broker._run(broker._hosts[name], look)


def settings(broker: Broker, queue: str) -> QueueSettings:
    def look(engine: Namespace, now: float) -> QueueSettings:
        found = engine.get_queue(queue).settings
        assert isinstance(found, QueueSettings)
        return found

    return broker._run(broker._hosts["contoso"], look)


def test_the_command_serves_the_config_of_the_emulator(tmp_path: Path) -> None:
    """With the emulator's own key, whose connection string applications have."""
    ready, config = tmp_path / "ready.json", tmp_path / "Config.json"
    config.write_text(CONFIG.read_text(encoding="utf-8"), encoding="utf-8")
    policy = "RootManageSharedAccessKey=SAS_KEY_VALUE:send,listen,manage"
    arguments = ("--namespace", "sbemulatorns=0", "--entities", str(config), "--policy", policy)
    with running_broker(ready, *arguments) as (_, described):
        text = (
            f"Endpoint=sb://localhost:{described['sbemulatorns']['port']};SharedAccessKeyName="
            "RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        with ServiceBusClient.from_connection_string(text) as client:
            # queue.1 forwards to topic.1, and only subscription.2 takes a message without properties.
            client.get_queue_sender("queue.1").send_messages(ServiceBusMessage("hello"))
            receiver = client.get_subscription_receiver("topic.1", "subscription.2")
            assert [str(one) for one in receiver.receive_messages(max_wait_time=10)] == ["hello"]
            config.write_text(
                config.read_text(encoding="utf-8").replace('"queue.1"', '"queue.2"'), encoding="utf-8"
            )
            sender = client.get_queue_sender("queue.2")

            def is_there() -> bool:
                try:
                    sender.send_messages(ServiceBusMessage("again"))
                except Exception:  # noqa: BLE001 - not there yet
                    return False
                return True

            wait_until(is_there)


def test_a_file_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    path = write_toml(tmp_path, "[queues.a]\nlock_duration = 3600\n")
    done = call("broker", "--namespace", "contoso=0", "--entities", str(path))
    assert done.returncode == 2
    assert "pairbus: entity a of contoso: " in done.stderr
    assert "lock_duration" in done.stderr
    path = write_toml(tmp_path, "[namespaces.other.queues.a]\n")
    done = call("broker", "--namespace", "contoso=0", "--entities", str(path))
    assert (done.returncode, "--namespace other=PORT" in done.stderr) == (2, True)


def test_what_is_there_is_kept_and_configured_anew(tmp_path: Path) -> None:
    path = write_toml(tmp_path, "[queues.a]\nforward_to = 'b'\n[queues.b]\nlock_duration = 30\n")
    for _ in range(2):
        with Broker({"contoso": 0}, data_dir=tmp_path / "data", entities=[path]) as broker:
            assert paths(broker, "contoso") == ["a", "b"]
            assert settings(broker, "a").forward_to == "b"
            assert settings(broker, "b").lock_duration == 30
            broker["contoso"].update_queue("b", QueueSettings(lock_duration=10))


def test_a_change_is_followed_and_a_bad_one_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_toml(
        tmp_path, "[queues.a]\nlock_duration = 30\n[topics.t.subscriptions.s.rules.r]\nsql='1=1'"
    )
    with Broker({"contoso": 0, "contoso-dr": 0}, entities=[path]) as broker:
        broker.reload_entities()
        path.write_text("[queues.a]\n[queues.new]\n", encoding="utf-8")
        broker.reload_entities()
        for name in broker:
            assert paths(broker, name) == ["a", "new", "t", "t/Subscriptions/s"]  # nothing is deleted
        assert settings(broker, "a").lock_duration == 60  # the default: the file does not say more
        with caplog.at_level(logging.ERROR):
            path.write_text("[queues.broken\n", encoding="utf-8")
            broker.reload_entities()
            broker.reload_entities()  # told once
            path.unlink()
            broker.reload_entities()
            path.write_text("[queues.a]\nrequires_session = true\n[queues.newer]\n", encoding="utf-8")
            broker.reload_entities()
            path.write_text("[queues.newest]\n[namespaces.else.queues.x]\n", encoding="utf-8")
            broker.reload_entities()
            broker.reload_entities()
        assert our_lines(caplog, level=logging.ERROR) == [
            "an entity file is not usable, and nothing of it is done",
            "an entity file is not usable, and nothing of it is done",
            "a declared entity is refused",
            "a declared entity is refused",
            "an entity file names a namespace that is not here",
        ]
        assert {"newer", "newest"} < set(paths(broker, "contoso-dr"))


def test_rules_are_those_of_the_file(tmp_path: Path) -> None:
    form = "[topics.t.subscriptions.s.rules.{}]\nsql = '{}'\n"
    path = write_toml(tmp_path, form.format("one", "a = 1") + form.format("two", "a = 2"))

    def rules(engine: Namespace, now: float) -> dict[str, str]:
        return {rule.name: rule.filter.expression for rule in engine.get_subscription("t", "s").rules}  # type: ignore[union-attr]

    with Broker({"contoso": 0}, entities=[path]) as broker:
        host = broker._hosts["contoso"]
        assert broker._run(host, rules) == {"one": "a = 1", "two": "a = 2"}
        path.write_text(form.format("two", "a = 22") + form.format("three", "a = 3"), encoding="utf-8")
        broker.reload_entities()
        assert broker._run(host, rules) == {"two": "a = 22", "three": "a = 3"}
        path.write_text("[topics.t.subscriptions.s]\n", encoding="utf-8")
        broker.reload_entities()
        assert broker._run(host, rules) == {"two": "a = 22", "three": "a = 3"}


def test_a_broker_refuses_files_about_namespaces_that_it_has_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no namespace 'sbemulatorns' here, only contoso"):
        Broker({"contoso": 0}, entities=[CONFIG])
