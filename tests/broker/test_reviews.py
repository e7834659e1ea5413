"""Which links are looked at when an entity changes: its own, and no others."""

from typing import Any

import pytest

from pairbus import conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings
from pairbus.broker.links.objections import Objections
from tests.waiting import wait_until

from .bus import Bus
from .raw import RawClient


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    ask = Objections.to_link

    def noted(self: Objections, endpoint: Any, *rest: Any) -> AmqpError | None:
        paths.append(endpoint.path)
        return ask(self, endpoint, *rest)

    monkeypatch.setattr(Objections, "to_link", noted)
    return paths


def test_a_change_has_the_links_of_its_own_entity_looked_at(
    bus_without_client: Bus, looked_at: list[str]
) -> None:
    bus, namespace = bus_without_client, bus_without_client.namespace
    namespace.create_queue("Orders")
    namespace.create_queue("others")
    namespace.create_topic("news")
    namespace.create_subscription("news", "all")
    with RawClient.of_owner(namespace) as client:
        for path in ("orders", "others", "orders/$DeadLetterQueue", "news/Subscriptions/all"):
            client.attach(path, sends=False)
        client.attach("ORDERS/$management", sends=True)
        namespace.create_queue("more")
        assert not looked_at
        namespace.update_queue("others", QueueSettings(lock_duration=30))
        assert looked_at == ["others"]
        namespace.update_subscription("news", "all", settings=SubscriptionSettings(lock_duration=30))
        assert looked_at[1:] == ["news/Subscriptions/all"]
        namespace.update_queue("orders", QueueSettings(status=EntityStatus.RECEIVE_DISABLED))
        assert sorted(looked_at[2:]) == ["Orders", "Orders", "Orders/$DeadLetterQueue"]
        for _ in range(2):
            refused = client.refusal().error
            assert refused is not None
            assert refused.condition == conditions.ENTITY_DISABLED
        namespace.delete_topic("news")
        refused = client.refusal().error
        assert refused is not None
        assert refused.condition == conditions.NOT_FOUND
        client.vanish()
    objections = bus.broker._hosts["contoso"].objections
    wait_until(lambda: not objections._links)
