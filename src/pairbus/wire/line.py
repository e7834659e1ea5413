"""A line: one AMQP connection in the client's role, on the event loop, with everything under a deadline.

Theory of operation
1. `pairbus.amqp.Connection` knows the protocol and does no I/O. The line gives it the bytes of a socket and
   the time, hands its events to the links that they concern, and writes what it has to say once a turn of the
   loop, however many links spoke in that turn.
2. Events are handled where they arrive, in `buffer_updated`, by plain function calls. A future is made for a
   *call* (attach, a wave of sends, a range of settlements), never for a single message: a message costs a
   dictionary entry and no turn of the loop.
3. Nothing waits for ever. Each call has a deadline. Where a deadline passes while the peer said nothing at
   all since the call began, the whole line is taken for dead and cut, for a peer that is silent on one link
   would have said something on another. No deadline counts while the peer's words wait in the socket because
   we are slow, nor while it answers in turn what was asked before.
4. When the line ends, every call that waits ends with `TransportError(CONNECTION_LOST)`. A line is not
   opened again: its owner opens another.
5. Before a link is attached, a token for its entity is put on `$cbs`. It is renewed when three quarters of
   its life are over, and again and again until that succeeds: links live only as long as their token. What
   was refused because a token had ended is no word on a message or on its path. A token may end before its
   time, by the clock of the service: whoever is denied something has it put anew. Who opens links to many
   entities may try one token for the whole namespace; where that is refused, or a link in spite of it, each
   entity gets one of its own.
6. Links are spread over sessions, since a session has room for a limited number of them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pairbus import conditions
from pairbus.amqp.connection import Connection
from pairbus.amqp.errors import UsageError
from pairbus.amqp.events import (
    Closed,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
    ProtocolEvent,
    SessionEnded,
    Settled,
    TransferReceived,
)
from pairbus.amqp.limits import MIN_IDLE_TIMEOUT, UNLIMITED, CodecLimits
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import AmqpError
from pairbus.amqp.session import Session
from pairbus.amqp.types import Symbol
from pairbus.clock import SystemClock
from pairbus.plumbing.hosts import os_reason
from pairbus.plumbing.promises import wake_all
from pairbus.plumbing.tasks import is_cancelled
from pairbus.plumbing.wording import write_no_token
from pairbus.timers import LoopTimers

from .answers import SendAnswer
from .errors import CONNECTION_LOST, NO_TOKEN, UNANSWERED, TokenMissing, TokenRefused, TransportError
from .shared_timer import SharedTimer
from .tokens import TokenSource

log = logging.getLogger(__name__)
# Nothing heard for so long, and the peer is gone. It is told half of it and sends something in between.
IDLE_TIMEOUT = 120.0
# How often heart-beats are looked after: well within the idle time-outs of all services.
_TICK = 10.0
# The service allows 255 links a session; each of ours has one that sends and one that receives at most.
LINKS_A_SESSION = 120
# A token is renewed when this part of its life is over, and tried again after so long if that fails.
_RENEW_AFTER = 0.75
_RENEW_AGAIN = 10.0
# The path of the whole namespace.
_WHOLE = ""
_MAX_FRAME = 65536
# A message of Premium has up to 100 MB, and an answer holds all that were asked for by number. More than this
# on its way at once is an error, and no message.
_LIMITS = CodecLimits(max_message_size=UNLIMITED, max_partial_bytes=1 << 30)
# What is read from a socket at once; less came only because there was no more.
_FULL_READ = 256 * 1024


class _ReadBuffer(threading.local):
    """What all lines of a thread read into: what has come is taken out at once. Without it the event loop
    would take so much memory for every read and give it back, which costs as much as a small read itself.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_FULL_READ))


_reading = _ReadBuffer()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a namespace listens; `tls` is None for a plain line; `by_way_of`: where to connect instead."""

    host: str
    port: int
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    by_way_of: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """What a socket is opened to."""
        return self.by_way_of or (self.host, self.port)

    def __str__(self) -> str:
        host, port = self.address
        return f"{host}:{port}"


class LinkListener(Protocol):
    """What stands behind a link."""

    def on_attached(self, event: LinkAttached) -> None: ...
    def on_received(self, event: TransferReceived) -> None: ...
    def on_settled(self, event: Settled) -> None: ...
    def on_accepted(self, delivery_id: int) -> None: ...
    def on_flowed(self, event: LinkFlowed) -> None: ...
    def on_lost(self, error: TransportError) -> None: ...


class _Awaited:
    """An answer that is waited for; rule 3."""

    __slots__ = ("_begun", "_future", "_is_moving", "_line", "_timeout")

    def __init__(
        self,
        line: AmqpLine,
        future: asyncio.Future[Any],
        timeout: float,
        is_moving: Callable[[], bool] | None,
    ) -> None:
        self._line = line
        self._future = future
        self._timeout = timeout
        self._is_moving = is_moving
        self._begun = line.time()

    def lapse(self) -> None:
        line, future, timeout = self._line, self._future, self._timeout
        if future.done():
            return
        if line.is_behind or (self._is_moving is not None and self._is_moving()):
            line.timer.set(self, timeout)
            return
        if line.heard_at < self._begun:
            line.cut(UNANSWERED, f"nothing was heard for {timeout:g} s")
        if not future.done():
            future.set_exception(TransportError(UNANSWERED, f"no answer within {timeout:g} s"))


class AmqpLine(asyncio.BufferedProtocol):
    """One connection. Made by `connect`."""

    def __init__(self, place: Place, tokens: TokenSource, *, container_id: str, user_agent: str) -> None:
        self.place = place
        self.lost: TransportError | None = None
        self._tokens = tokens
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        self.time = LoopTimers(self._loop).now
        self.timer = SharedTimer(self._loop)
        #: What the peer has said of itself.
        self.welcome: dict[Any, Any] = {}
        self._machine = Connection(
            server=False,
            container_id=container_id,
            properties={Symbol("product"): "pairbus", Symbol("user-agent"): user_agent},
            hostname=place.host,
            max_frame_size=_MAX_FRAME,
            limits=_LIMITS,
            idle_timeout=IDLE_TIMEOUT,
            now=self._loop.time(),
        )
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._names = itertools.count()
        self._sessions: list[Session] = []
        self._links: dict[Link, LinkListener] = {}
        self._is_flush_due = False
        self._is_reading = False
        self._buffer = _reading.view
        self._answered: deque[SendAnswer] = deque()  # by what is being read
        self.heard_at = 0.0
        self.is_behind = False  # this turn's read was full: more may be waiting in the socket
        self._ticker: asyncio.TimerHandle | None = None
        self._grants: dict[str, asyncio.Task[None]] = {}
        self._expiries: dict[str, float] = {}  # of tokens that were accepted
        self._is_wide = True  # a token for the whole namespace is of use, as far as is known
        self._renewals: dict[str, asyncio.TimerHandle] = {}
        #: How tokens are put; set by whoever opens the `$cbs` links.
        self.put_token: Callable[[str, str, str], Any] | None = None

    def __repr__(self) -> str:
        return f"<Line {self.place.host}:{self.place.port} {'lost' if self.lost else 'open'}>"

    @classmethod
    async def connect(
        cls,
        place: Place,
        tokens: TokenSource,
        *,
        timeout: float,
        container_id: str,
        user_agent: str,
    ) -> AmqpLine:
        """Open a connection; TransportError if that does not work in time."""
        line = cls(place, tokens, container_id=container_id, user_agent=user_agent)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().create_connection(
                    lambda: line, *place.address, ssl=place.tls
                )
                await line._opened
        except TimeoutError:
            line.cut(UNANSWERED, f"{place} did not answer within {timeout:g} s")
            raise line._error() from None
        except ssl.SSLCertVerificationError as error:
            how = "give the certificate of its CA as ca_file"
            raise TransportError(CONNECTION_LOST, f"cannot reach {place}: {error}; {how}") from error
        except OSError as error:  # refused, unreachable, no such name, TLS
            raise TransportError(CONNECTION_LOST, f"cannot reach {place}: {os_reason(error)}") from error
        except asyncio.CancelledError:
            line.cut(CONNECTION_LOST, "called off")
            raise
        return line

    async def close(self, timeout: float = 2.0) -> None:
        """Close the connection, and wait a little for the answer."""
        if self._transport is None:
            return
        self._machine.close()
        self._flush()
        try:
            await asyncio.wait({self._closed}, timeout=timeout)
        finally:  # also if whoever closes it is called away
            self.cut(CONNECTION_LOST, "closed")

    def cut(self, condition: str, description: str) -> None:
        """Close the connection without the closing handshake."""
        self._end(TransportError(condition, description))
        if self._transport is not None:
            self._transport.abort()

    # -- for links

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def attach(self, endpoint: LinkListener, make: Callable[[Session, str], Link]) -> Link:
        """Ask for a link; `make` is given a session with room and a name of its own."""
        if self.lost is not None:
            raise self._error()
        link = make(self._session(), f"pairbus-{next(self._names)}")
        self._links[link] = endpoint
        self.flush_soon()
        return link

    def forget(self, link: Link) -> None:
        """Ignore further events of this link."""
        self._links.pop(link, None)

    def flush_soon(self) -> None:
        """Write what the machine has to say at the end of this turn."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def flush_alone(self) -> None:
        """Write it at once, where a single message is on its way: nobody could share a write with it, and the
        turn would cost as much as the message. Not if this turn ends with a write already.
        """
        if not self._is_flush_due:
            self._flush()

    def wake_soon(self, answer: SendAnswer) -> None:
        """Let whoever waits for an answer that is there go on in the turn that reads it."""
        if self._is_reading:
            self._answered.append(answer)
        else:
            answer.wake_later()

    async def answer(
        self, future: asyncio.Future[Any], timeout: float, *, is_moving: Callable[[], bool] | None = None
    ) -> Any:
        """Wait for what a peer's answer completes; rule 3. `is_moving` says, since it was last asked, whether
        the peer has come nearer to this answer.
        """
        if future.done():
            return future.result()
        awaited = _Awaited(self, future, timeout, is_moving)
        self.timer.set(awaited, timeout)
        try:
            return await future
        finally:
            self.timer.call_off(awaited)

    # -- tokens

    async def authorize(self, path: str, *, widely: bool = False) -> bool:
        """Have a token for this entity in force; `widely`: try one for all first. Whether it is that one."""
        if widely and self._is_wide:
            try:
                await self._authorize(_WHOLE)
                return True
            except TokenRefused:
                self._is_wide = False
        await self._authorize(path)
        return False

    async def _authorize(self, path: str) -> None:
        if self._is_granted(path):
            return
        task = self._grants.get(path)
        if task is None or task.done():
            task = self._grants[path] = self._loop.create_task(self._put(path))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.lost is None or is_cancelled():
                raise
            raise self._error() from None  # rule 4: it was the line's end that called the token off

    def distrust(self, path: str) -> None:
        """The token for this entity is not in force, whatever our clock says."""
        self._expiries.pop(path, None)
        self._is_wide = False

    @property
    def has_grant(self) -> bool:
        """Whether any token that was accepted on this line is in force."""
        return any(map(self._is_granted, self._expiries))

    def _is_granted(self, path: str) -> bool:
        return self._expiries.get(path, 0.0) > self._clock.now()

    async def _put(self, path: str) -> None:
        assert self.put_token is not None, "the $cbs links are opened first"
        audience = f"sb://{self.place.host}/{path}"
        try:
            token = await self._tokens.token(audience, self._clock.now())
        except Exception as error:  # whatever a credential raises: its service is away, or it is not allowed
            raise TokenMissing(
                conditions.AUTH_FAILED,
                f"{NO_TOKEN}: {type(error).__name__}: {write_no_token(error)}",
            ) from error
        await self.put_token(audience, token.kind, token.value)
        self._expiries[path] = token.expires_at
        left = max(1.0, token.expires_at - self._clock.now())
        self._renew_in(left * _RENEW_AFTER, path)

    def _renew_in(self, seconds: float, path: str) -> None:
        if self.lost is None:
            if path in self._renewals:
                self._renewals[path].cancel()
            self._renewals[path] = self._loop.call_later(seconds, self._renew, path)

    def _renew(self, path: str) -> None:
        if self.lost is None:
            task = self._grants[path] = self._loop.create_task(self._put(path))
            task.add_done_callback(lambda task: self._renewed(path, task))

    def _renewed(self, path: str, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.lost is not None:
            return
        error = task.exception()
        if error is not None:
            log.warning("a token could not be renewed: %s", error)
            self._renew_in(_RENEW_AGAIN, path)

    # -- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.lost is not None:
            transport.abort()
            return
        self._machine.start()
        self._machine.open()
        self._flush()
        self._ticker = self._loop.call_later(_TICK, self._tick)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = buffer = _reading.view
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        now = self.heard_at = self.time()
        if nbytes >= _FULL_READ:
            self.is_behind = True
            self._loop.call_soon(self._catch_up)
        self._is_reading = True
        try:
            data = self._buffer[:nbytes].tobytes()
            accepted = self._machine.take_acceptance(data, now)
            if accepted is None:
                self._handle(self._machine.receive_data(data, now))
            elif (endpoint := self._links.get(accepted[0])) is not None:
                endpoint.on_accepted(accepted[1])
        finally:  # also if the rest cannot be handled: what is there and not told nobody can cancel
            self._is_reading = False
            if self._answered:
                self._wake_answered()
            elif self._machine.has_to_say:
                self.flush_soon()

    def _catch_up(self) -> None:
        """The socket has been looked at again: what it had comes after this, and before any deadline."""
        self.is_behind = False

    def _wake_answered(self) -> None:
        """Let those go on whose answers were read. What they send next leaves with one write."""
        is_due, self._is_flush_due = self._is_flush_due, True
        try:
            wake_all(self._answered, self._loop)
        finally:
            self._is_flush_due = is_due
        if not is_due:
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(TransportError(CONNECTION_LOST, str(exc) if exc else "the peer hung up"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._transport is not None:
            data = self._machine.data_to_send()
            if data:
                self._transport.write(data)

    def _tick(self) -> None:
        self._handle(self._machine.tick(self._loop.time()))
        self._flush()
        if self.lost is None:
            opening = self._machine.remote_open
            idle = opening.idle_time_out if opening is not None else None
            wait = _TICK if not idle else min(_TICK, max(idle, MIN_IDLE_TIMEOUT) / 4000)
            self._ticker = self._loop.call_later(wait, self._tick)

    # -- the machine

    def _handle(self, events: list[ProtocolEvent]) -> None:
        links = self._links
        for event in events:
            kind = type(event)
            endpoint = links.get(getattr(event, "link", None))  # type: ignore[arg-type]
            if endpoint is None:
                self._handle_unlinked(event)
            elif kind is TransferReceived:
                endpoint.on_received(event)  # type: ignore[arg-type]
            elif kind is Settled:
                endpoint.on_settled(event)  # type: ignore[arg-type]
            elif kind is LinkFlowed:
                endpoint.on_flowed(event)  # type: ignore[arg-type]
            elif kind is LinkAttached:
                endpoint.on_attached(event)  # type: ignore[arg-type]
            elif isinstance(event, LinkDetached):
                del links[event.link]
                endpoint.on_lost(_refusal(event.error, "the peer detached the link"))

    def _handle_unlinked(self, event: ProtocolEvent) -> None:
        """What concerns the connection or a session; events of links that nobody minds any more are none."""
        match event:
            case SessionEnded():
                self._lose_session(event)
            case Opened() if not self._opened.done():
                self.welcome = event.open.properties or {}
                self._opened.set_result(None)
            case Closed():
                self._flush()
                self._end(_refusal(event.error, "the peer closed the connection"))
                if self._transport is not None:
                    self._transport.close()

    def _lose_session(self, event: SessionEnded) -> None:
        if event.session in self._sessions:
            self._sessions.remove(event.session)
        error = _refusal(event.error, "the peer ended the session")
        for link in [link for link in self._links if link.session is event.session]:
            self._links.pop(link).on_lost(error)

    def _session(self) -> Session:
        if self._sessions and self._sessions[-1].link_count < LINKS_A_SESSION:
            return self._sessions[-1]
        try:
            session = self._machine.begin()
        except UsageError as error:
            raise TransportError(conditions.NOT_ALLOWED, str(error)) from error
        self._sessions.append(session)
        return session

    # -- the end

    def _end(self, error: TransportError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._ticker is not None:
            self._ticker.cancel()
        for timer in self._renewals.values():
            timer.cancel()
        for task in self._grants.values():
            task.cancel()
        links, self._links = self._links, {}
        for endpoint in links.values():
            endpoint.on_lost(error)
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # looked at: whoever connects may have gone

    def _error(self) -> TransportError:
        assert self.lost is not None
        return TransportError(self.lost.condition, self.lost.description)


def _refusal(error: AmqpError | None, otherwise: str) -> TransportError:
    if error is None:
        return TransportError(CONNECTION_LOST, otherwise)
    return TransportError(error.condition, error.description or otherwise)
