"""What a caller wants of an entity: the messages, how the SDK is asked to take them, and what came of it.

Where a call goes is decided in `router.py`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Literal

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.client.direct.encoding import encode_list, routing_of
from pairbus.client.observers.observer import RouteName
from pairbus.pairing.headroom import BATCH_RESERVE
from pairbus.sdk.privates import LinkLimits, batch_keywords, can_enclose, enclose, link_limits
from pairbus.sdk.side import SdkSender

from .message import Message, check_for_primary, measure
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
            check_for_primary(self.native, self.messages, limits)
            return
        for message in self.messages:  # a request is no batch
            measure(message)  # which raises what the SDK raises for a request that cannot be written
            check_for_primary(message, [message], limits)

    def transmit(self, sender: SdkSender) -> Awaitable[Any]:
        """Have the primary take the messages, or schedule them, which gives their sequence numbers."""
        if self.when is not None:
            return sender.schedule_messages(self.native, self.when)
        if type(self.native) is list:
            return self._transmit_list(sender)
        return sender.send_messages(self.native)

    async def _transmit_list(self, sender: SdkSender) -> Any:
        # The batch that the SDK would make of them itself: to write a message takes it ten times as long.
        limits, keywords = link_limits(sender), batch_keywords(sender)
        if limits is not None and keywords and can_enclose(keywords):
            payloads = encode_list(self.messages, limits.batch - BATCH_RESERVE)
            if payloads is not None:
                number, session, key = routing_of(self.messages[0])
                await sender.send_messages(
                    enclose(
                        payloads, message_id=number, session_id=session, partition_key=key, keywords=keywords
                    )
                )
                return payloads
        # It would also convert each message twice for it, which is a tenth of the whole send.
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
