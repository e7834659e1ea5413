"""rhea, the AMQP client of Node below the official one: its main paths on an embedded namespace."""

from typing import Any

import pytest

from pairbus.broker import NamespaceHandle, QueueSettings

SCRIPT = "rhea.js"
ANNOTATIONS = ["x-opt-enqueued-time", "x-opt-locked-until", "x-opt-sequence-number"]


@pytest.fixture(scope="module")
def prepared(namespace: NamespaceHandle) -> None:
    for name in ("orders", "settled", "many"):
        namespace.create_queue(name)
    namespace.create_queue("sessions", QueueSettings(requires_session=True))


def check_message(seen: Any) -> None:
    assert seen == {
        "message_id": "m-1",
        "subject": "hi",
        "body": {"a": [1, "two"]},
        "application_properties": {"n": 3, "t": "x"},
        "annotations": ANNOTATIONS,
    }


def test_plain(seen: Any) -> None:
    check_message(seen)


def test_tls(seen: Any) -> None:
    check_message(seen)


def test_settlements(seen: Any) -> None:
    assert sorted(seen["counts"]) == [["abandoned", 0], ["abandoned", 1], ["rejected", 0]]
    assert seen["dead"] in ("abandoned", "rejected")


def test_session(seen: Any) -> None:
    assert seen == ["one", "one"]


def test_many_messages(seen: Any) -> None:
    assert seen is True


def test_refusals(seen: Any) -> None:
    assert seen == ["amqp:not-found", "amqp:link:message-size-exceeded"]
