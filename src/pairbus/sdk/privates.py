"""Everything that is read of the SDK beyond its public API: one function for each such thing, and why.

`tests/sdk/test_privates.py` holds each of them against the SDK that is installed, so that a version that
moves one is found there and not in an outage. If one is gone the client goes on without it, slower or less
exact, as its text says. `pyproject.toml` bounds the version of the SDK for their sake, and a guard keeps
every other module away from what the SDK marks as its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

# Modules of the SDK that turn what the caller gave into bytes.
_ENCODERS = frozenset({"_encode", "_amqp_message", "message"})
# The function of the SDK's clients, senders and receivers that connects, authenticates and attaches.
_OPENER = "_open"


def batch_keywords(client: Any) -> dict[str, Any]:
    """What a batch has to be made with, so that the senders of an SDK client take it as it is.

    Without it, a sender makes another batch of the same messages: the send costs twice the encoding.
    """
    transport = getattr(client, "_amqp_transport", None)
    return {} if transport is None else {"amqp_transport": transport}


class LinkLimits(NamedTuple):
    """The largest message and the largest batch that a link takes, in bytes."""

    message: int
    batch: int


def link_limits(sender: Any) -> LinkLimits | None:
    """What an open sender takes; None if it does not tell.

    There is no public word for the largest single message, which Premium lets differ from a batch, and none
    for either that does not make a batch. Without it nothing is refused before it is sent.
    """
    message = int(getattr(sender, "_max_message_size_on_link", 0) or 0)
    batch = int(getattr(sender, "_max_batch_size_on_link", 0) or 0)
    return LinkLimits(message, batch) if message and batch else None


def is_settled_by_request(message: Any) -> bool:
    """Whether the SDK settles a received message by a request of its own, as it does after a fetch by number.

    Without this, those requests are missing in the bill.
    """
    return bool(getattr(message, "_is_deferred_message", False))


def connection_of(sender: Any) -> Any:
    """The connection of a sender, while it has one; None otherwise.

    There is no public way to close it whatever the peer does, and the SDK's own clean-up forgets one that it
    could not close. Without this, a client that fails over for hours runs out of sockets.
    """
    return getattr(getattr(sender, "_handler", None), "_connection", None)


def sever(connection: Any) -> None:
    """Cut what is still open of a connection, TCP or WebSocket."""
    transport = getattr(connection, "_transport", None)
    stream = getattr(getattr(transport, "writer", None), "transport", None)
    if stream is not None:
        stream.abort()
    websocket = getattr(transport, "session", None)
    if websocket is not None and not websocket.closed:
        _in_background(websocket.close())


_closing: set[asyncio.Future[Any]] = set()


def _in_background(work: Awaitable[Any]) -> None:
    task = asyncio.ensure_future(work)
    _closing.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    _closing.discard(task)
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()


def wrapped_by(error: BaseException) -> Iterator[BaseException]:
    """What an error of the SDK wraps: public errors by one attribute, those of its AMQP by another.

    Without this, a bad certificate and a refused port look the same.
    """
    for inner in (
        getattr(error, "inner_exception", None),
        getattr(error, "inner_error", None),
        error.__cause__,
    ):
        if isinstance(inner, BaseException):
            yield inner


def was_encoding(error: BaseException) -> bool:
    """Whether an error was raised by the code that encodes: then it is the caller's, whatever its class.

    Without this, a property that AMQP has no type for counts towards a failover.
    """
    frames = list(_frames(error))
    return bool(frames) and _module(frames[-1]) in _ENCODERS


def was_opening(error: BaseException) -> bool:
    """Whether an error came up through the SDK's function that opens a link: then nothing was sent.

    Without this, such a send counts as one of unknown outcome, and its message may be sent again.
    """
    return any(frame.tb_frame.f_code.co_name == _OPENER for frame in _frames(error))


def _frames(error: BaseException) -> Iterator[TracebackType]:
    """The frames that an error has passed, the one that raised it last."""
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _module(frame: TracebackType) -> str:
    """The name of a frame's module, without its package."""
    return str(frame.tb_frame.f_globals.get("__name__", "")).rpartition(".")[2]
