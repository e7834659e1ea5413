"""Which settings are good, and which of them may change.

Each rule is a line of a table: the setting, and the smallest and largest value that the limits of the tier
allow.
"""

from dataclasses import replace
from typing import TypeVar

from .errors import bad_argument
from .settings import EntitySettings, NamespaceLimits, QueueSettings, ReceivableSettings, TopicSettings

# Azure refuses to change these after the entity was created.
FIXED = ("requires_session", "requires_duplicate_detection", "enable_partitioning")
FOREVER = float("inf")
AnySettings = TypeVar("AnySettings", bound=EntitySettings)


def fit_settings(settings: AnySettings, limits: NamespaceLimits) -> AnySettings:
    """Settings as the tier has them where nothing is said: in Basic no message lives for ever."""
    if settings.default_message_time_to_live is None and limits.max_time_to_live < FOREVER:
        return replace(settings, default_message_time_to_live=limits.max_time_to_live)
    return settings


def check_settings(settings: EntitySettings, limits: NamespaceLimits) -> None:
    """Raise Refused unless an entity can have these settings."""
    _check_tier(settings, limits)
    _check_range(settings, "default_message_time_to_live", limits.min_time_to_live, limits.max_time_to_live)
    _check_range(settings, "auto_delete_on_idle", limits.min_auto_delete, FOREVER)
    if len(settings.user_metadata) > limits.max_user_metadata:
        raise bad_argument(
            f"The user metadata has {len(settings.user_metadata)} characters; "
            f"it may have {limits.max_user_metadata} at most."
        )
    if isinstance(settings, ReceivableSettings):
        _check_range(settings, "lock_duration", limits.min_lock_duration, limits.max_lock_duration)
        _check_range(settings, "max_delivery_count", 1, limits.max_delivery_count)
    if isinstance(settings, QueueSettings | TopicSettings):
        _check_sendable(settings, limits)


def _check_tier(settings: EntitySettings, limits: NamespaceLimits) -> None:
    """Refuse what the tier lacks."""
    lacks = {
        "topics and subscriptions": not limits.has_topics and not isinstance(settings, QueueSettings),
        "sessions": not limits.has_sessions and getattr(settings, "requires_session", False),
        "duplicate detection": not limits.has_duplicate_detection
        and getattr(settings, "requires_duplicate_detection", False),
        "forwarding": not limits.has_forwarding
        and (
            getattr(settings, "forward_to", None) is not None
            or getattr(settings, "forward_dead_lettered_messages_to", None) is not None
        ),
    }
    for what, is_lacking in lacks.items():
        if is_lacking:
            raise bad_argument(f"The {limits.sku} tier has no {what}. Use the Standard or the Premium tier.")


def check_update(old: EntitySettings, new: EntitySettings) -> None:
    """Raise Refused if the update changes what is fixed."""
    kind = type(old).__name__.removesuffix("Settings")
    for name in FIXED:
        if getattr(old, name, None) == getattr(new, name, None):
            continue
        # Clients look for these very texts.
        if name == "enable_partitioning":
            text = f"Partitioning cannot be changed for {kind}. "
        else:
            text = f"The value for the {pascal(name)} property of an existing {kind} cannot be changed. "
        raise bad_argument(f"{text}Delete the entity and create it anew.")


def _check_sendable(settings: QueueSettings | TopicSettings, limits: NamespaceLimits) -> None:
    _check_size(settings, limits)
    largest = max(limits.largest_message_size, limits.max_message_size) // 1024
    _check_range(settings, "max_message_size_in_kilobytes", limits.smallest_kilobytes, largest)
    shortest, longest = limits.min_duplicate_window, limits.max_duplicate_window
    _check_range(settings, "duplicate_detection_history_time_window", shortest, longest)


def _check_size(settings: QueueSettings | TopicSettings, limits: NamespaceLimits) -> None:
    highest, megabytes = limits.max_queue_megabytes, settings.max_size_in_megabytes
    sizes = [size for size in limits.queue_megabytes if size <= highest]
    if not sizes:
        _check_range(settings, "max_size_in_megabytes", 1, highest)
    elif megabytes not in sizes:
        raise bad_argument(
            f"The specified value {megabytes} is invalid. The property MaxSizeInMegabytes, must be one of "
            f"the following values: {';'.join(map(str, sizes))} (max_size_in_megabytes, {limits.sku} tier)."
        )


def _check_range(settings: EntitySettings, name: str, lowest: float, highest: float) -> None:
    value = getattr(settings, name)
    if value is not None and not lowest <= value <= highest:
        raise bad_argument(
            f"The property value for '{pascal(name)}' must be between {lowest:.15g} and {highest:.15g}; "
            f"{name} is {value}."
        )


def pascal(name: str) -> str:
    """The name of a setting in the administration API, which is what most clients call it."""
    return name.title().replace("_", "")
