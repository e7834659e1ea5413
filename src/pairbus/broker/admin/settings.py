"""Settings of queues, topics and subscriptions, between dataclasses and the elements of a description.

One table names every setting: its element, its field, and its kind of value. Elements that the tables do not
name are ignored, as Azure ignores them: clients send back whole descriptions, counts and times included.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from pairbus.broker.engine.settings import (
    EntitySettings,
    NamespaceLimits,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)
from pairbus.broker.engine.validity import FIXED
from pairbus.errors import show_value

from . import scalar
from .errors import AdminRefused
from .markup import XmlNode
from .scalar import Scalar

SettingsType = TypeVar("SettingsType", QueueSettings, TopicSettings, SubscriptionSettings)
Sendable = TypeVar("Sendable", QueueSettings, TopicSettings)

# The elements of a description in the order of the service's data contract, which .NET's own reader wants,
# and how the texts of settings are read and written; what is only told has None.
ELEMENTS: Final[dict[str, Scalar | None]] = {
    "LockDuration": scalar.limited_duration,
    "MaxSizeInMegabytes": scalar.number,
    "RequiresDuplicateDetection": scalar.boolean,
    "RequiresSession": scalar.boolean,
    "DefaultMessageTimeToLive": scalar.duration,
    "DeadLetteringOnMessageExpiration": scalar.boolean,
    "DeadLetteringOnFilterEvaluationExceptions": scalar.boolean,
    "DuplicateDetectionHistoryTimeWindow": scalar.limited_duration,
    "MessageCount": None,
    "MaxDeliveryCount": scalar.number,
    "EnableBatchedOperations": scalar.boolean,
    "SizeInBytes": None,
    "FilteringMessagesBeforePublishing": scalar.boolean,
    "IsAnonymousAccessible": None,
    "AuthorizationRules": None,
    "Status": scalar.status,
    "ForwardTo": scalar.forwarding,
    "CreatedAt": None,
    "UpdatedAt": None,
    "AccessedAt": None,
    "SupportOrdering": scalar.boolean,
    "CountDetails": None,
    "SubscriptionCount": None,
    "SqlFilterCount": None,
    "CorrelationFilterCount": None,
    "AutoDeleteOnIdle": scalar.duration,
    "EnablePartitioning": scalar.boolean,
    "EntityAvailabilityStatus": None,
    "EnableSubscriptionPartitioning": None,
    "EnableExpress": scalar.boolean,
    "UserMetadata": scalar.text,
    "ForwardDeadLetteredMessagesTo": scalar.forwarding,
    "MaxMessageSizeInKilobytes": scalar.number,
}
# Element, field and form of each setting: `LockDuration` is `lock_duration`.
_TABLE: Final = tuple(
    (element, re.sub(r"(?<!^)([A-Z])", r"_\1", element).lower(), form)
    for element, form in ELEMENTS.items()
    if form is not None
)


def read_settings(
    kind: type[SettingsType], description: XmlNode, current: EntitySettings | None = None
) -> SettingsType:
    """Settings as described. `current` is what an update replaces: what is fixed need not be told again. All
    others that are left out have their defaults.
    """
    known = _fields_of(kind)
    given: dict[str, Any] = {}
    if current is not None:
        given = {name: getattr(current, name) for name in FIXED if name in known}
    for element, field, kind_of_value in _TABLE:
        node = description.find(element)
        if field in known and node is not None and (node.text or kind_of_value is scalar.text):
            given[field] = _read(element, node, kind_of_value)
    return replace(kind(), **given)


def _read(element: str, node: XmlNode, kind_of_value: Scalar) -> Any:
    try:
        return kind_of_value.read(node.text)
    except ValueError as error:
        raise AdminRefused(400, f"The value of {element} is not allowed: {error}.") from error


def write_settings(settings: EntitySettings) -> Mapping[str, str]:
    """Texts by element, for every setting that has one."""
    known = _fields_of(type(settings))
    texts = {
        element: kind_of_value.write(getattr(settings, field))
        for element, field, kind_of_value in _TABLE
        if field in known
    }
    return {element: text for element, text in texts.items() if text is not None}


def settings_of(kind: type[EntitySettings]) -> dict[str, str]:
    """The elements that a kind of entity has, and the field of each."""
    known = _fields_of(kind)
    return {element: field for element, field, _ in _TABLE if field in known}


def read_value(field: str, value: object) -> Any:
    """A setting as files have it, durations in seconds or ISO 8601; ValueError says what would be right."""
    kind = next(kind for _, name, kind in _TABLE if name == field)
    if kind in (scalar.duration, scalar.limited_duration):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        if not isinstance(value, str):
            raise ValueError(f"{show_value(value)} is no duration; write seconds, or a text like 'PT1M'")
    elif not isinstance(value, _NATIVE[kind]) or isinstance(value, bool) != (kind is scalar.boolean):
        raise ValueError(f"{show_value(value)} is not {_IN_WORDS[_NATIVE[kind]]}")
    return kind.read(value) if isinstance(value, str) else value


_NATIVE: Final[dict[Scalar, type]] = {
    scalar.boolean: bool,
    scalar.number: int,
    scalar.text: str,
    scalar.status: str,
    scalar.forwarding: str,
}
_IN_WORDS: Final = {bool: "true or false", int: "a whole number", str: "a text"}


def shown_size(settings: EntitySettings, limits: NamespaceLimits) -> int:
    """The service tells the size of all partitions together, though it was told that of one."""
    assert isinstance(settings, QueueSettings | TopicSettings)
    return settings.max_size_in_megabytes * (limits.partitions if settings.enable_partitioning else 1)


def size_of_one_partition(settings: Sendable, limits: NamespaceLimits) -> Sendable:
    """Settings that may come from a client with the size that it was shown: that of all partitions."""
    told = settings.max_size_in_megabytes
    if not settings.enable_partitioning or told <= limits.max_queue_megabytes or told % limits.partitions:
        return settings
    return replace(settings, max_size_in_megabytes=told // limits.partitions)


def _fields_of(kind: type[EntitySettings]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))
