"""What a caller wants of an entity: the messages, how the SDK is asked to take them, and what came of it.

Where a call goes is decided in `router.py`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Literal

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.client.direct.encoding import encode_alone, encode_envelope, encode_list, routing_of
from pairbus.client.observers.observer import RouteName
from pairbus.pairing.headroom import BATCH_RESERVE
from pairbus.sdk.privates import LinkLimits, link_limits
from pairbus.sdk.side import SdkSender, SendWritten

from .message import Message, as_it_is_now, check_for_primary, measure
from .ticket import Ticket


class EntityCall(Ticket):
    """Have messages sent, or scheduled for `when`; and the place of that in the line of the primary.

    What `is_replay` has waited in the spool: it was taken before, and does not go back there.
    """

    __slots__ = (
        "deadline",
        "is_replay",
        "messages",
        "native",
        "route",
        "size",
        "unanswered",
        "unsure",
        "when",
    )

    def __init__(
        self,
        native: Any,
        messages: list[Message],
        *,
        when: datetime | None = None,
        is_replay: bool = False,
        size: int | None = None,
    ) -> None:
        """`native` is what the SDK is given: a message, a list, or a batch; `size` that of the body of
        a single message, where it was seen in passing.
        """
        Ticket.__init__(self)  # as `super()` does, which takes as long as all else here
        self.native = native
        self.messages = messages
        self.when = when
        self.is_replay = is_replay
        self.size = size
        #: The way that was taken last.
        self.route: RouteName = "primary"
        #: Until when it may wait.
        self.deadline: float | None = None
        #: How often the primary may have taken it without a word.
        self.unanswered = 0
        #: And how often a backlog queue.
        self.unsure = 0

    @property
    def operation(self) -> Literal["send", "schedule"]:
        """What the caller has asked for."""
        return "send" if self.when is None or self.is_replay else "schedule"

    def check(self, limits: LinkLimits | None) -> None:
        """Raise what the primary would refuse: it is refused in every state, but for what was taken."""
        if self.is_replay:
            return
        if self.when is None:
            if type(self.native) is list and self._written(limits) is not None:
                limits = None  # they fit, which the SDK takes ten times as long to say
            check_for_primary(self.native, self.messages, limits)
            return
        for message in self.messages:  # a request is no batch
            measure(message)  # which raises what the SDK raises for a request that cannot be written
            check_for_primary(message, [message], limits)

    def keep_as_it_is(self) -> None:
        """However long it takes, it is sent as it was when it was called for, as by the SDK, whatever becomes
        of its owner's messages meanwhile.
        """
        if isinstance(self.native, ServiceBusMessageBatch):
            return  # which has taken them so
        self.messages = [as_it_is_now(message) for message in self.messages]
        self.native = self.messages if type(self.native) is list else self.messages[0]

    def transmit(self, sender: SdkSender) -> Awaitable[Any]:
        """Have the primary take the messages, or schedule them, which gives their sequence numbers."""
        if self.when is not None:
            return sender.schedule_messages(self.native, self.when)
        # What the SDK would write itself: to write a message takes it ten times as long.
        write: SendWritten | None = getattr(sender, "send_written", None)
        if type(self.native) is list:
            return self._transmit_list(sender, write)
        payload = None if write is None else encode_alone(self.native)
        if write is None or payload is None:
            return sender.send_messages(self.native)
        return write(payload)

    def _written(self, limits: LinkLimits | None) -> list[bytes] | None:
        """A list as bytes, if it fits and the SDK would write it so."""
        return None if limits is None else encode_list(self.messages, limits.batch - BATCH_RESERVE)

    async def _transmit_list(self, sender: SdkSender, write: SendWritten | None) -> Any:
        payloads = None if write is None else self._written(link_limits(sender))
        if write is not None and payloads is not None:
            await write(encode_envelope(routing_of(self.messages[0]), payloads), is_batch=True)
            return payloads
        # It would also convert each message twice for a list, which is a tenth of the whole send.
        batch = await sender.create_message_batch()
        for message in self.messages:
            batch.add_message(message)
        return await sender.send_messages(batch)


def timed_out(path: str) -> OperationTimeoutError:
    """What a call ends with whose time is over."""
    return OperationTimeoutError(
        message=f"Neither {path!r} nor the backlog took the message in the time given to the call. Give it "
        "more time, or shorten failover_interval."
    )
