"""How a pump works. Plain values, checked on construction, that can be pickled."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from pairbus.errors import ConfigurationError
from pairbus.options import TtlPolicy
from pairbus.pairing.names import path_key


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpOptions:
    """Every option has a default that suits most drains. Durations are float seconds."""

    drain: bool = False
    """End when the queues are empty, or hold only messages whose path is down."""

    poll: float = 900.0
    """How long an idle queue is long-polled: one empty receive each."""

    drain_wait: float = 0.5
    """In a drain, how long a queue must give nothing before it is looked at whether it is empty."""

    patience: float = 0.0
    """In a drain, how long paths and queues that are down are waited for, counted from the last message that
    was moved.
    """

    run_for: float | None = None
    """Stop cleanly after so long."""

    max_rate: float | None = None
    """Messages a second, of the whole pump, and of a whole syphon with all its pairs; None for no limit."""

    max_byte_rate: float | None = None
    """Bytes a second, likewise."""

    credits: float | None = None
    """Credits that each namespace has a second, for everybody: the pump leaves the application what it needs
    of them. 0 for none, as in Premium; None for what the namespace tells, and for those of the Standard tier
    in Azure until shown otherwise.
    """

    adaptive: bool = True
    """Start gently, and go slower while the primary is busy or fails."""

    send_timeout: float = 10.0
    """Deadline of a single answer of a namespace."""

    max_in_hand: int = 1000
    """Messages of one queue under lock at a time, whatever the rate."""

    max_bytes_in_hand: int = 32 * 1024 * 1024
    """Bytes of one queue's messages in memory."""

    first_back_off: float = 1.0
    """How long a path that failed is left alone; doubled with each failure."""

    longest_back_off: float = 60.0
    """The longest that a path is left alone."""

    ttl_policy: TtlPolicy = "pause"
    """Whether the time in the backlog counts against a message's time to live."""

    ttl_policies: Mapping[str, TtlPolicy] = field(default_factory=dict)
    """The policy of single paths."""

    only_paths: tuple[str, ...] = ()
    """Move the messages of these paths only, if any are given; others are put aside."""

    scan: bool = True
    """Look through a queue when its link opens for messages that an earlier pump has put aside."""

    progress_interval: float = 1.0
    """How often progress is told."""

    transport: Literal["amqp", "sdk"] = "amqp"
    """Our own AMQP, or the official SDK: slower, the same behaviour."""

    def __post_init__(self) -> None:
        for name in ("poll", "drain_wait", "send_timeout", "first_back_off", "progress_interval"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be above 0 s, not {getattr(self, name)!r}")
        for name in ("max_rate", "max_byte_rate", "run_for"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"{name} must be above 0, or None for no limit, not {value!r}")
        if self.credits is not None and not 0 <= self.credits < inf:
            raise ConfigurationError(
                f"credits must be 0 for none, or what a namespace has a second, not {self.credits!r}"
            )
        if not 0 <= self.patience < inf:
            raise ConfigurationError(f"patience must be 0 s or longer, not {self.patience!r}")
        if self.max_in_hand < 1 or self.max_bytes_in_hand < 1:
            raise ConfigurationError("max_in_hand and max_bytes_in_hand must be 1 or more")
        if self.longest_back_off < self.first_back_off:
            raise ConfigurationError("longest_back_off must not be shorter than first_back_off")

    def policy_of(self, path: str) -> TtlPolicy:
        """The time-to-live policy of a path."""
        if not self.ttl_policies:
            return self.ttl_policy
        by_key = {path_key(given): policy for given, policy in self.ttl_policies.items()}
        return by_key.get(path_key(path), self.ttl_policy)
