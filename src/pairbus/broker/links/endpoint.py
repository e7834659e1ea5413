"""What stands behind a link: each kind of endpoint minds what concerns it of all that happens there."""

from collections import deque
from itertools import islice, repeat

from pairbus import conditions
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import LinkFlowed, ProtocolEvent, Settled, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.types import Blob

from .pace import MOST_BYTES_IN_RUN, MOST_IN_RUN

Needs = tuple[str, tuple[str, ...]]


class LinkEndpoint:
    """The broker's end of one link. `needs` is a path and the claims on it without which the link may not go
    on; `path` is the entity that the link concerns, empty if none; `is_owed_an_answer` tells that a mute line
    has swallowed something that was asked of it.
    """

    __slots__ = ("_used", "is_owed_an_answer", "link", "needs", "path")

    def __init__(self, link: Link, needs: Needs | None = None, *, path: str = "") -> None:
        self.link = link
        self.needs = needs
        self.path = path
        self.is_owed_an_answer = False
        self._used = 0

    def take_messages(self, first: TransferReceived, todo: deque[ProtocolEvent]) -> None:
        """A message has come; others that are next to be done may be taken off with it."""
        self.on_received(first)

    def take_settlements(self, event: Settled, todo: deque[ProtocolEvent]) -> None:
        """The other side has settled deliveries; a part of them may be put back, to be done next."""
        self.on_settled(event)

    def renew(self, credit: int, used: int = 1) -> None:
        """So much of the credit was used: grant it anew in time."""
        self._used += used
        if self._used >= credit // 2:
            self._used = 0
            self.link.flow(credit)

    def on_received(self, event: TransferReceived) -> None:
        """A message has come."""

    def on_flow(self, event: LinkFlowed) -> None:
        """The other side has told its state, and perhaps granted credit."""

    def on_settled(self, event: Settled) -> None:
        """The other side has settled deliveries."""

    def on_room(self) -> None:
        """More can be written, after a while in which that was not so."""

    def on_detached(self) -> None:
        """The link is gone."""


def take_run(first: TransferReceived, todo: deque[ProtocolEvent]) -> list[TransferReceived]:
    """A message, and those next of the same link: no batches, no large ones, none of a transaction."""
    run = [first]
    if first.message_format or first.view is not None or first.state is not None:
        return run
    link, size = first.link, len(first.payload)
    for event in islice(todo, MOST_IN_RUN - 1):
        if (
            type(event) is not TransferReceived
            or event.link is not link
            or event.message_format
            or event.view is not None
            or event.state is not None
        ):
            break
        size += len(event.payload)
        if size > MOST_BYTES_IN_RUN:
            break
        run.append(event)
    for _ in repeat(None, len(run) - 1):
        todo.popleft()
    return run


def whole_payload(event: TransferReceived) -> Blob:
    """What a message holds; DecodeError for one so large that its bytes were dropped as they came."""
    if event.dropped:
        raise DecodeError(
            f"The message has {event.dropped} bytes or more, above what the link allows. Send less at once, "
            "or keep large bodies elsewhere and send where they are.",
            conditions.MESSAGE_SIZE_EXCEEDED,
        )
    return event.payload if event.view is None else event.view


class Unanswered(LinkEndpoint):
    """Behind a link that its client has attached while the line was mute."""

    __slots__ = ()

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link, path=path)
        self.is_owed_an_answer = True
