"""What stands behind a link: it is told what happens on it. Each kind of endpoint minds what concerns it; the
rest passes it by.
"""

from pairbus import conditions
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import LinkFlowed, Settled, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.types import Blob

Needs = tuple[str, tuple[str, ...]]


class LinkEndpoint:
    """The broker's end of one link. `needs` is a path and the claims on it without which the link may not go
    on; `path` is the entity that the link concerns, empty if none; `is_owed_an_answer` tells that a mute line
    has swallowed something that was asked of it.
    """

    __slots__ = ("is_owed_an_answer", "link", "needs", "path")

    def __init__(self, link: Link, needs: Needs | None = None, *, path: str = "") -> None:
        self.link = link
        self.needs = needs
        self.path = path
        self.is_owed_an_answer = False

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


def whole_payload(event: TransferReceived) -> Blob:
    """What a message holds; DecodeError for one so large that its bytes were dropped as they came."""
    if event.dropped:
        raise DecodeError(
            f"The message has {event.dropped} bytes, far more than the link allows. Send less at once, or "
            "keep large bodies elsewhere and send where they are.",
            conditions.MESSAGE_SIZE_EXCEEDED,
        )
    return event.payload if event.view is None else event.view


class Unanswered(LinkEndpoint):
    """Behind a link that its client has attached while the line was mute."""

    __slots__ = ()

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link, path=path)
        self.is_owed_an_answer = True
