"""What an entity can be told: the settings of queues, topics and subscriptions, and the limits of a tier.

Fields carry the names of the official Python administration client. Durations are float seconds; None means
for ever.
"""

import enum
import math
from dataclasses import dataclass, field

MEGABYTE = 1024 * 1024


class EntityStatus(enum.Enum):
    """What an entity lets be done with it. The values are those of the admin API."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def forbids_sending(self) -> bool:
        """Whether sends are refused."""
        return self in (EntityStatus.DISABLED, EntityStatus.SEND_DISABLED)

    @property
    def forbids_receiving(self) -> bool:
        """Whether receivers are refused."""
        return self in (EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED)


@dataclass(frozen=True, kw_only=True, slots=True)
class EntitySettings:
    """What every entity has."""

    status: EntityStatus = EntityStatus.ACTIVE
    default_message_time_to_live: float | None = None
    auto_delete_on_idle: float | None = None
    enable_batched_operations: bool = True
    user_metadata: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivableSettings(EntitySettings):
    """What entities have that messages are received from."""

    lock_duration: float = 60.0
    requires_session: bool = False
    max_delivery_count: int = 10
    dead_lettering_on_message_expiration: bool = False
    # As it was written: a path, or a URI that ends with one.
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueSettings(ReceivableSettings):
    """The settings of a queue, with Azure's defaults."""

    max_size_in_megabytes: int = 1024
    max_message_size_in_kilobytes: int | None = None
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: float = 600.0
    enable_partitioning: bool = False
    enable_express: bool = False
    # A record of the administration API's, which means nothing to the engine. It may hold keys.
    authorization_rules: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicSettings(EntitySettings):
    """The settings of a topic, with Azure's defaults."""

    max_size_in_megabytes: int = 1024
    max_message_size_in_kilobytes: int | None = None
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: float = 600.0
    enable_partitioning: bool = False
    enable_express: bool = False
    support_ordering: bool = True
    filtering_messages_before_publishing: bool = False
    authorization_rules: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscriptionSettings(ReceivableSettings):
    """The settings of a subscription, with Azure's defaults."""

    dead_lettering_on_filter_evaluation_exceptions: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceLimits:
    """The quotas of a tier."""

    max_message_size: int = 262_144
    max_batch_size: int = 262_144
    # One property, and all that comes before the body.
    max_property_size: int = 32_768
    max_header_size: int = 65_536
    # What max_message_size_in_kilobytes may ask for; only Premium lets an entity take larger messages.
    largest_message_size: int = 262_144
    smallest_kilobytes: int = 1
    max_entities: int = 10_000
    max_subscriptions: int = 2_000
    max_rules: int = 2_000
    max_path: int = 260
    max_subscription_name: int = 50
    max_rule_name: int = 50
    max_identifier: int = 128
    max_user_metadata: int = 1024
    max_session_state: int = 262_144
    max_queue_megabytes: int = 5_120
    # The sizes that an entity may have; any up to the largest if none are named.
    queue_megabytes: tuple[int, ...] = (1024, 2048, 3072, 4096, 5120)
    # Each partition of a partitioned entity may become as large as the entity was to be.
    partitions: int = 16
    max_lock_duration: float = 300.0
    min_lock_duration: float = 5.0
    max_delivery_count: int = 2_147_483_647
    min_time_to_live: float = 1.0
    max_time_to_live: float = math.inf
    min_duplicate_window: float = 20.0
    max_duplicate_window: float = 604_800.0
    min_auto_delete: float = 300.0
    # How often a message may be forwarded before it goes to the transfer dead letters.
    max_hops: int = 4
    has_topics: bool = True
    has_sessions: bool = True
    has_duplicate_detection: bool = True
    has_forwarding: bool = True
    has_transactions: bool = True
    sku: str = "Standard"
