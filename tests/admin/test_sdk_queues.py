"""Queues through the official synchronous client."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import AuthorizationRule, EntityStatus, ServiceBusAdministrationClient

from pairbus.broker.admin.api import AdminApi
from pairbus.broker.admin.errors import Unauthorized
from pairbus.broker.admin.exchange import HttpRequest
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings

from .harness import AdminServer, send

FOR_EVER = "P10675199DT2H48M5.4775807S"


def test_a_queue_has_the_defaults_of_the_service(admin: ServiceBusAdministrationClient) -> None:
    queue = admin.create_queue("orders")
    assert queue.name == "orders"
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.max_size_in_megabytes == 1024
    assert queue.max_delivery_count == 10
    assert queue.requires_session is False
    assert queue.requires_duplicate_detection is False
    assert queue.dead_lettering_on_message_expiration is False
    assert queue.enable_batched_operations is True
    assert queue.enable_partitioning is False
    assert queue.enable_express is False
    assert queue.status == EntityStatus.ACTIVE
    assert queue.availability_status == "Available"
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert queue.max_message_size_in_kilobytes == 256
    assert queue.forward_to is None
    assert queue.forward_dead_lettered_messages_to is None
    assert queue.user_metadata is None
    assert queue.authorization_rules is None
    assert isinstance(queue.default_message_time_to_live, timedelta)
    assert queue.default_message_time_to_live.days == 10_675_199
    assert queue.auto_delete_on_idle == queue.default_message_time_to_live


def test_every_setting_of_a_queue_is_kept(admin: ServiceBusAdministrationClient, server: AdminServer) -> None:
    admin.create_queue("next")
    admin.create_queue("dead")
    created = admin.create_queue(
        "all",
        auto_delete_on_idle=timedelta(minutes=7),
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live="P2DT3H",
        duplicate_detection_history_time_window=timedelta(minutes=12),
        enable_batched_operations=False,
        enable_express=True,
        enable_partitioning=True,
        lock_duration=timedelta(seconds=13),
        max_delivery_count=14,
        max_size_in_megabytes=3072,
        requires_duplicate_detection=True,
        requires_session=True,
        forward_dead_lettered_messages_to="dead",
        user_metadata="a <b> & 'c'",
    )
    for queue in (created, admin.get_queue("all"), {q.name: q for q in admin.list_queues()}["all"]):
        assert queue.auto_delete_on_idle == timedelta(minutes=7)
        assert queue.dead_lettering_on_message_expiration is True
        assert queue.default_message_time_to_live == timedelta(days=2, hours=3)
        assert queue.duplicate_detection_history_time_window == timedelta(minutes=12)
        assert queue.enable_batched_operations is False
        assert queue.enable_express is True
        assert queue.enable_partitioning is True
        assert queue.lock_duration == timedelta(seconds=13)
        assert queue.max_delivery_count == 14
        assert queue.max_size_in_megabytes == 16 * 3072
        assert queue.requires_duplicate_detection is True
        assert queue.requires_session is True
        assert queue.forward_dead_lettered_messages_to == f"sb://127.0.0.1:{server.port}/dead"
        assert queue.user_metadata == "a <b> & 'c'"


def test_forwarding_is_shown_as_it_was_sent(
    admin: ServiceBusAdministrationClient, server: AdminServer, namespace: Namespace
) -> None:
    admin.create_queue("a/next")
    queue = admin.create_queue("first", forward_to="a/next")  # of which the client makes a URL
    assert queue.forward_to == f"sb://127.0.0.1:{server.port}/a/next"
    queue.user_metadata = "kept on update"
    admin.update_queue(queue)
    assert admin.get_queue("first").forward_to == f"sb://127.0.0.1:{server.port}/a/next"
    send(namespace, "first", count=1, now=time.time())
    assert namespace.get_queue("a/next").counts().active == 1
    queue.forward_to = "SB://LocalHost/A/NEXT"
    admin.update_queue(queue)
    assert admin.get_queue("first").forward_to == "sb://localhost/A/NEXT"
    send(namespace, "first", count=1, now=time.time())
    assert namespace.get_queue("a/next").counts().active == 2
    queue.forward_to = None
    admin.update_queue(queue)
    assert admin.get_queue("first").forward_to is None


def test_authorization_rules_are_kept_as_given(admin: ServiceBusAdministrationClient) -> None:
    rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=["Send", "Listen"],
            created_at_utc=datetime(2020, 1, 1, tzinfo=UTC),
            modified_at_utc=datetime(2020, 1, 2, tzinfo=UTC),
            key_name="mine",
            primary_key="first",
            secondary_key="second",
        ),
        AuthorizationRule(
            type="SharedAccessAuthorizationRule", rights=["Manage", "Send", "Listen"], key_name="all"
        ),
    ]
    created = admin.create_queue("guarded", authorization_rules=rules)
    for queue in (created, admin.get_queue("guarded")):
        assert queue.authorization_rules is not None
        first, second = queue.authorization_rules
        assert (first.key_name, first.primary_key, first.secondary_key) == ("mine", "first", "second")
        assert (first.rights, first.claim_type, first.claim_value) == (
            ["Send", "Listen"],
            "SharedAccessKey",
            "None",
        )
        assert first.created_at_utc == datetime(2020, 1, 1, tzinfo=UTC)
        assert (second.key_name, second.rights) == ("all", ["Manage", "Send", "Listen"])
    created.authorization_rules = None
    admin.update_queue(created)
    assert admin.get_queue("guarded").authorization_rules is None


def test_a_queue_that_is_not_there(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("nobody")
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue_runtime_properties("nobody")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_queue("nobody")
    queue = admin.create_queue("somebody")
    admin.delete_queue("somebody")
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(queue)
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("somebody")


def test_a_name_that_is_taken_is_a_conflict(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("Orders", max_delivery_count=3)
    admin.create_topic("news")
    for name in ("Orders", "orders", "news"):
        with pytest.raises(ResourceExistsError, match="40900"):
            admin.create_queue(name)
    assert admin.get_queue("ORDERS").max_delivery_count == 3


def test_update(admin: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    queue = admin.create_queue("orders", requires_session=True)
    queue.lock_duration = timedelta(seconds=45)
    queue.max_delivery_count = 3
    queue.status = EntityStatus.SEND_DISABLED
    queue.default_message_time_to_live = timedelta(days=1)
    admin.update_queue(queue)
    changed = admin.get_queue("orders")
    assert changed.lock_duration == timedelta(seconds=45)
    assert changed.max_delivery_count == 3
    assert changed.status == EntityStatus.SEND_DISABLED
    assert changed.default_message_time_to_live == timedelta(days=1)
    assert changed.requires_session is True
    admin.update_queue(
        changed, status=EntityStatus.ACTIVE, max_delivery_count=5, default_message_time_to_live=FOR_EVER
    )
    assert namespace.get_queue("orders").settings.default_message_time_to_live is None
    assert namespace.get_queue("orders").settings.max_delivery_count == 5
    admin.update_queue(dict(admin.get_queue("orders"), max_delivery_count=6))
    assert admin.get_queue("orders").max_delivery_count == 6


@pytest.mark.parametrize(
    "setting", ["requires_session", "requires_duplicate_detection", "enable_partitioning"]
)
def test_what_is_fixed_at_creation_cannot_be_updated(
    admin: ServiceBusAdministrationClient, setting: str
) -> None:
    queue = admin.create_queue("orders")
    with pytest.raises(HttpResponseError, match="cannot be changed") as caught:
        admin.update_queue(queue, **{setting: True})
    assert caught.value.status_code == 400
    assert getattr(admin.get_queue("orders"), setting) is False


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lock_duration", "PT6M"),
        ("lock_duration", "PT0S"),
        ("max_delivery_count", 0),
        ("auto_delete_on_idle", "PT1M"),
        ("default_message_time_to_live", "PT0S"),
        ("user_metadata", "x" * 1025),
        ("max_size_in_megabytes", -1),
        ("forward_to", "nowhere"),
    ],
)
def test_values_that_the_service_does_not_take(
    admin: ServiceBusAdministrationClient, setting: str, value: str | int
) -> None:
    with pytest.raises(HttpResponseError) as caught:
        admin.create_queue("orders", **{setting: value})  # type: ignore[arg-type]
    assert caught.value.status_code == 400
    assert "SubCode=40000" in caught.value.message
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("orders")


@pytest.mark.parametrize("name", ["a b", "-", "x" * 261, "a?b", "/"])
def test_names_that_the_service_does_not_take(admin: ServiceBusAdministrationClient, name: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        admin.create_queue(name)
    assert caught.value.status_code in (400, 404)


def test_counts_and_times(admin: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    admin.create_queue("orders")
    now = datetime.now(UTC).timestamp()
    send(namespace, "orders", count=5, now=now)
    send(namespace, "orders", count=2, now=now, at=now + 3600)
    queue = namespace.get_queue("orders")
    for delivery in queue.receive(2, now):
        assert delivery.lock_token is not None
        queue.dead_letter(delivery.lock_token, now)
    runtime = admin.get_queue_runtime_properties("orders")
    assert runtime.active_message_count == 3
    assert runtime.dead_letter_message_count == 2
    assert runtime.scheduled_message_count == 2
    assert runtime.transfer_message_count == 0
    assert runtime.transfer_dead_letter_message_count == 0
    assert runtime.total_message_count == 7
    assert runtime.size_in_bytes is not None
    assert runtime.size_in_bytes > 0
    for moment in (runtime.created_at_utc, runtime.updated_at_utc, runtime.accessed_at_utc):
        assert moment is not None
        assert before <= moment <= datetime.now(UTC)
    (listed,) = admin.list_queues_runtime_properties()
    assert (listed.name, listed.total_message_count) == ("orders", 7)


def test_lists_are_paged(
    admin: ServiceBusAdministrationClient, server: AdminServer, namespace: Namespace
) -> None:
    assert list(admin.list_queues()) == []
    names = [f"q{number:03}" for number in range(230)]
    for name in names:
        namespace.create_queue(name, QueueSettings(), 0.0)
    server.requests.clear()
    assert [queue.name for queue in admin.list_queues()] == names
    assert [request.target.split("$skip=")[1].split("&")[0] for request in server.requests] == [
        "0",
        "100",
        "200",
    ]
    assert [queue.name for queue in admin.list_queues(start_index=225, max_page_size=2)] == names[225:]
    assert len(list(admin.list_queues_runtime_properties())) == 230


def test_names_with_slashes_and_other_letters(admin: ServiceBusAdministrationClient) -> None:
    for name in ("a/b/c", "a.b-c_d", "q/subscriptions-x"):
        assert admin.create_queue(name).name == name
        assert admin.get_queue(name).name == name
    assert [queue.name for queue in admin.list_queues()] == ["a.b-c_d", "a/b/c", "q/subscriptions-x"]


def test_without_tls(plain_admin: ServiceBusAdministrationClient) -> None:
    plain_admin.create_queue("orders")
    assert [queue.name for queue in plain_admin.list_queues()] == ["orders"]
    plain_admin.delete_queue("orders")
    assert list(plain_admin.list_queues()) == []


def test_a_client_without_a_good_token_is_told_so(
    admin: ServiceBusAdministrationClient, server: AdminServer, namespace: Namespace
) -> None:
    seen: list[str | None] = []

    def refuse(request: HttpRequest, path: str) -> None:
        seen.append(request.token)
        raise Unauthorized("The signature does not fit the key.")

    server.api = AdminApi(namespace, authorize=refuse)
    with pytest.raises(ClientAuthenticationError, match="does not fit"):
        admin.create_queue("orders")
    assert seen[0] is not None
    assert seen[0].startswith("SharedAccessSignature sr=")
    assert namespace.list_queues() == []
