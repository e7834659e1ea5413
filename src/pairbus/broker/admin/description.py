"""Descriptions of queues, topics and subscriptions: their settings, and what they are doing."""

from collections.abc import Mapping

from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.results import Counts
from pairbus.broker.engine.settings import NamespaceLimits
from pairbus.broker.engine.subscription import Subscription
from pairbus.broker.engine.topic import Topic

from .atom import DESCRIPTION_SPACES
from .duration import format_instant
from .markup import XmlNode, branch, leaf
from .settings import ELEMENTS, shown_size, write_settings

_COUNTS_SPACE = "http://schemas.microsoft.com/netservices/2011/06/servicebus"


def describe_queue(queue: MessageQueue, *, limits: NamespaceLimits, authorization: XmlNode) -> XmlNode:
    counts = queue.counts()
    texts = {
        "SupportOrdering": "true",
        **_sendable(queue, limits),
        "MessageCount": str(counts.total),
    }
    return _assemble("QueueDescription", texts, [authorization, _count_details(counts)])


def describe_topic(
    topic: Topic, *, limits: NamespaceLimits, filters: Mapping[str, int], authorization: XmlNode
) -> XmlNode:
    texts = {
        **_sendable(topic, limits),
        **{element: str(count) for element, count in filters.items()},
        "SubscriptionCount": str(len(topic.subscriptions)),
        "EnableSubscriptionPartitioning": "false",
    }
    details = _count_details(topic.counts())
    return _assemble("TopicDescription", texts, [authorization, details])


def describe_subscription(subscription: Subscription) -> XmlNode:
    counts = subscription.counts()
    texts = {
        **write_settings(subscription.settings),
        **_times(subscription, since_birth=True),
        "MessageCount": str(counts.total),
        "EntityAvailabilityStatus": "Available",
    }
    return _assemble("SubscriptionDescription", texts, [_count_details(counts)])


def _sendable(entity: MessageQueue | Topic, limits: NamespaceLimits) -> dict[str, str]:
    """What queues and topics have in common."""
    return {
        "MaxMessageSizeInKilobytes": str(limits.max_message_size // 1024),
        **write_settings(entity.settings),
        "MaxSizeInMegabytes": str(shown_size(entity.settings, limits)),
        **_times(entity),
        "SizeInBytes": str(entity.size_bytes),
        "IsAnonymousAccessible": "false",
        "EntityAvailabilityStatus": "Available",
    }


def _assemble(name: str, texts: Mapping[str, str], branches: list[XmlNode]) -> XmlNode:
    nodes = {element: leaf(element, text) for element, text in texts.items()}
    nodes |= {node.name: node for node in branches}
    return branch(name, [nodes[element] for element in ELEMENTS if element in nodes], DESCRIPTION_SPACES)


def _times(entity: MessageQueue | Topic, *, since_birth: bool = False) -> dict[str, str]:
    # Queues and topics that nobody used were never accessed; to make a subscription is an access already.
    accessed_at = entity.accessed_at or (entity.created_at if since_birth else None)
    return {
        "CreatedAt": format_instant(entity.created_at),
        "UpdatedAt": format_instant(entity.updated_at),
        "AccessedAt": format_instant(accessed_at),
    }


def _count_details(counts: Counts) -> XmlNode:
    # The JavaScript client finds the prefix in the only attribute.
    texts = {
        "ActiveMessageCount": counts.active,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": counts.transfer,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letter,
    }
    children = [leaf(f"d2p1:{element}", str(count)) for element, count in texts.items()]
    return branch("CountDetails", children, {"xmlns:d2p1": _COUNTS_SPACE})
