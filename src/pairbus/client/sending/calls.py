"""What a caller wants of an entity: the messages, how the SDK is asked to take them, and what came of it.

Where a call goes is decided in `router.py`, and nowhere else.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.amqp.errors import DecodeError
from pairbus.client.direct.encoding import encode_all, encode_envelope, fit, routing_of
from pairbus.client.observers.observer import RouteName
from pairbus.pairing.headroom import BATCH_RESERVE
from pairbus.pump.sdk_messages import to_annotated
from pairbus.sdk.privates import LinkLimits, link_limits
from pairbus.sdk.side import SdkSender

from .headers import check_headers
from .message import Message, as_it_is_now, check_for_primary, measure
from .ticket import Ticket


class EntityCall(Ticket):
    """Have messages sent, or scheduled for `when`; and the place of that in the line of the primary.

    What `is_replay` has waited in the spool: it was taken before, and does not go back there.
    """

    __slots__ = (
        "deadline",
        "is_plain",
        "is_replay",
        "messages",
        "native",
        "route",
        "traces",
        "unanswered",
        "unsure",
        "when",
        "written",
    )

    def __init__(
        self,
        native: Any,
        messages: list[Message],
        *,
        when: datetime | None = None,
        is_replay: bool = False,
        traces: bool = False,
        plain: Sequence[bytes] | None = None,
    ) -> None:
        """`native` is what the SDK is given: a message, a list, or a batch. `traces`: the SDK does, and
        writes the messages. `plain` are they as bytes, which are the same whenever they are sent.
        """
        Ticket.__init__(self)  # as `super()` does, which takes as long as all else here
        self.native = native
        self.messages = messages
        self.when = when
        self.is_replay = is_replay
        self.traces = traces
        self.is_plain = plain is not None
        #: The messages as they were when they were called for, once they are written.
        self.written = plain
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
        if self.is_replay or self._is_surely_taken(limits):
            return
        check_headers(self.messages)
        if self.when is None:
            if type(self.native) is list and self._write(limits) is not None:
                limits = None  # they fit, which the SDK takes ten times as long to say
            check_for_primary(self.native, self.messages, limits)
            return
        for message in self.messages:  # a request is no batch
            measure(message)  # which raises what the SDK raises for a request that cannot be written
            check_for_primary(message, [message], limits)

    def _is_surely_taken(self, limits: LinkLimits | None) -> bool:
        """Of one message with an id and data alone nothing can be refused but its size, which is known."""
        if not self.is_plain or self.written is None or type(self.native) is list:
            return False
        return limits is None or len(self.written[0]) <= limits.message

    def keep_as_it_is(self) -> None:
        """However long it takes, it is sent as it was when it was called for, as by the SDK, whatever becomes
        of its owner's messages meanwhile.
        """
        if not isinstance(self.native, ServiceBusMessageBatch):  # which has taken them so
            self._replace([as_it_is_now(message) for message in self.messages])

    def restore(self) -> None:
        """The same after its first try: who sets out at once is not copied, for what was written tells it."""
        if self.written is not None:
            with suppress(DecodeError):  # of what nobody can read, which is refused however it looks
                self._replace([*map(_read, self.written)])

    def _replace(self, messages: list[Message]) -> None:
        self.messages = messages
        self.native = messages if type(self.native) is list else messages[0]

    def transmit(self, sender: SdkSender) -> Awaitable[Any]:
        """Have the primary take the messages, or schedule them, which gives their sequence numbers.

        What the SDK would write itself is given as bytes, if it takes them: to write it takes it ten times as
        long. What it has to write is copied before: it would change some of it.
        """
        if self.when is not None:
            return sender.schedule_messages(self.native, self.when)
        native = self.native
        write: Callable[..., Awaitable[Any]] | None = getattr(sender, "send_written", None)
        if type(native) is list:
            written = None if write is None else self._write(link_limits(sender))
            if write is not None and written is not None:
                return write(encode_envelope(routing_of(native[0]), written), is_batch=True)
            self.keep_as_it_is()
            return self._transmit_batch(sender)
        if isinstance(native, ServiceBusMessageBatch):
            return sender.send_messages(native)
        written = self.written if self.is_plain or write is None else self._encode()
        if write is not None and written is not None:
            return write(written[0])
        self.keep_as_it_is()
        return sender.send_messages(self.native)

    def _encode(self) -> Sequence[bytes] | None:
        if not self.is_plain:  # others may have the time of the send in them
            self.written = None if self.traces else encode_all(self.messages)
        return self.written

    def _write(self, limits: LinkLimits | None) -> Sequence[bytes] | None:
        """A list as bytes, if it fits and the SDK would write it so."""
        written = None if limits is None else self._encode()
        if limits is None or written is None or not fit(written, limits.batch - BATCH_RESERVE):
            return None
        return written

    async def _transmit_batch(self, sender: SdkSender) -> Any:
        # Given a list it would convert each message twice, which is a tenth of the whole send.
        batch = await sender.create_message_batch()
        for message in self.messages:
            batch.add_message(message)
        return await sender.send_messages(batch)


def _read(payload: bytes) -> Message:
    message = to_annotated(payload)
    if message.header is not None and message.header.time_to_live and message.properties is not None:
        # They come with a time to live, whenever it is written.
        message.properties.absolute_expiry_time = message.properties.creation_time = None
    return message


def timed_out(path: str) -> OperationTimeoutError:
    """What a call ends with whose time is over."""
    return OperationTimeoutError(
        message=f"Neither {path!r} nor the backlog took the message in the time given to the call. Give it "
        "more time, or shorten failover_interval."
    )
