"""HTTP/1.1 for the administration API: an asyncio protocol around h11.

1. One request at a time. While one is being answered the transport is not read, so that a client that
   pipelines costs one buffer and no more.
2. The handler gives a response, or something to await. A response that is awaited holds the connection, and
   no deadline of ours runs meanwhile: whoever holds it decides (a commit, a fault that delays). Cancelling it
   drops the connection without an answer.
3. A client has `request_timeout` for a whole request from its first byte, and `idle_timeout` between
   requests; the first is answered with 408, the second closes in silence.
4. In one turn of the event loop a connection has one request answered, however many have come: the others are
   put off behind everybody else. All strangers share an allowance of time, and wait when it is spent.
5. After an error nobody knows where the next request begins. The answer is sent, the input is read and thrown
   away for `linger` seconds (a reset on unread bytes could overtake the answer), then it closes.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from inspect import isawaitable
from typing import cast

import h11

from pairbus.broker.links.pace import Allowance

from .atom import error_response
from .errors import AdminRefused
from .exchange import HttpRequest, Response

Handler = Callable[[HttpRequest], Response | Awaitable[Response]]
# Takes a request to upgrade, and what came behind it; or raises `AdminRefused`.
Upgrade = Callable[[h11.Request, bytes], None]
# The time that this connection shares with others, if it does.
TimeShare = Callable[[], Allowance | None]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """What a client may ask of one connection."""

    # Read before a token is looked at: more than any description of an entity, or plan of faults, has.
    body_size: int = 64 * 1024
    header_size: int = 64 * 1024
    # Each takes some microseconds, however little is in it.
    chunks: int = 1024
    request_timeout: float = 30.0
    idle_timeout: float = 120.0
    linger: float = 2.0


class AdminHttp(asyncio.Protocol):
    """Serves one connection. Bytes that were read before it took over go to `data_received`."""

    def __init__(
        self,
        handler: Handler,
        *,
        limits: HttpLimits | None = None,
        upgrade: Upgrade | None = None,
        share: TimeShare = lambda: None,
    ) -> None:
        """`upgrade` takes over lines that change their protocol; `share` tells whose time is spent."""
        self._handler = handler
        self._upgrade = upgrade
        self._share = share
        self._limits = limits or HttpLimits()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.header_size)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._chunks = 0
        self._receiving = False
        self._answering = False
        self._has_answered = False
        self._is_put_off = False
        self._closing = False
        self._writable = True

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._set_timer(self._limits.idle_timeout)

    def data_received(self, data: bytes) -> None:
        if self._closing or self._transport is None:
            return
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        if self._closing or self._transport is None:
            return False
        self._http.receive_data(b"")
        self._advance()
        # A client that shut its half down still waits for the answer; TLS has no half.
        return (self._answering or self._is_put_off) and self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._cancel_timer()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if not self._answering and not self._closing:
            self._advance()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- from bytes to a request

    def _advance(self) -> None:
        if self._is_put_off:
            return
        share, begun = self._share(), time.monotonic()
        if share is not None and (wait := share.wait(begun)):
            self._put_off(wait)
            return
        self._has_answered = False
        self._take_request()
        if self._has_answered and not self._closing:
            self._put_off(0.0)
        if share is not None:
            share.spend(time.monotonic() - begun)

    def _put_off(self, wait: float) -> None:
        """Go on later, and read nothing meanwhile."""
        if self._transport is not None:
            self._is_put_off = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(wait, self._go_on)

    def _go_on(self) -> None:
        self._is_put_off = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._advance()

    def _take_request(self) -> None:
        """Take what has come, up to the end of a request that is answered at once."""
        try:
            while not (self._answering or self._has_answered or self._closing) and self._writable:
                if not self._take_event():
                    return
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, f"The request is not HTTP/1.1 as it should be: {error}.")
        except AdminRefused as error:
            self._refuse(error.status, error.detail)

    def _take_event(self) -> bool:
        """One step of the request; false when there is nothing more to do with what has arrived."""
        event = self._http.next_event()
        if event is h11.NEED_DATA:
            self._await_more()
            return False
        if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            self._close()
            return False
        if isinstance(event, h11.Request):
            self._begin(event)
        elif isinstance(event, h11.Data):
            self._collect(event)
        elif isinstance(event, h11.EndOfMessage):
            if self._upgrade is None or not self._wants_upgrade():
                self._answer()
            else:
                self._give_away(self._upgrade)
        return True

    def _wants_upgrade(self) -> bool:
        assert self._head is not None
        return any(name == b"upgrade" and value.lower() == b"websocket" for name, value in self._head.headers)

    def _give_away(self, upgrade: Upgrade) -> None:
        assert self._head is not None
        upgrade(self._head, self._http.trailing_data[0])
        self._closing, self._transport = True, None
        self._cancel_timer()

    def _await_more(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        buffered, _ = self._http.trailing_data
        if not self._receiving and (self._head is not None or buffered):
            self._receiving = True
            self._set_timer(self._limits.request_timeout)

    def _begin(self, head: h11.Request) -> None:
        self._head = head
        self._body.clear()
        self._chunks = 0
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in head.headers}:
            raise AdminRefused(400, "A request has a Content-Length or a Transfer-Encoding, not both.")
        length = next((value for name, value in head.headers if name == b"content-length"), b"0")
        self._check_size(int(length))

    def _collect(self, event: h11.Data) -> None:
        self._chunks += event.chunk_start
        if self._chunks > self._limits.chunks:
            raise AdminRefused(413, f"A request body has at most {self._limits.chunks} chunks.")
        self._check_size(len(self._body) + len(event.data))
        self._body += event.data

    def _check_size(self, size: int) -> None:
        if size > self._limits.body_size:
            raise AdminRefused(413, f"A request body has at most {self._limits.body_size} bytes.")

    # -- from the answer to bytes

    def _answer(self) -> None:
        assert self._head is not None
        assert self._transport is not None
        self._answering, self._receiving = True, False
        self._cancel_timer()
        request = _request_of(self._head, bytes(self._body))
        try:
            outcome = self._handler(request)
        except Exception:
            logger.exception("the handler failed on %r", request)
            outcome = _failure()
        if isawaitable(outcome):
            self._transport.pause_reading()
            asyncio.ensure_future(outcome).add_done_callback(self._release)
        else:
            self._respond(outcome)

    def _release(self, outcome: asyncio.Future[Response]) -> None:
        if outcome.cancelled():
            self.abort()
            return
        error = outcome.exception()
        if error is not None:
            logger.error("the answer to %r failed", self._head and self._head.target, exc_info=error)
        self._respond(_failure() if error is not None else outcome.result())
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._advance()

    def _respond(self, response: Response) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._write_response(response)
        self._answering, self._has_answered, self._head = False, True, None
        if self._http.our_state is h11.MUST_CLOSE:
            self._close()
            return
        self._http.start_next_cycle()
        self._set_timer(self._limits.idle_timeout)

    def _write_response(self, response: Response) -> None:
        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()
        ]
        headers += [
            (b"Content-Length", str(len(response.body)).encode()),
            (b"Date", formatdate(usegmt=True).encode()),
            (b"Server", b"pairbus"),
        ]
        self._send(
            h11.Response(status_code=response.status, headers=headers, reason=_reason(response.status))
        )
        if self._head is None or self._head.method != b"HEAD":
            self._send(h11.Data(data=response.body))
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._transport is not None:
            self._transport.write(data)

    # -- ends

    def _refuse(self, status: int, detail: str) -> None:
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            response = error_response(status, detail)
            self._write_response(
                Response(status, headers={**response.headers, "Connection": "close"}, body=response.body)
            )
        self._linger()

    def _linger(self) -> None:
        self._closing = True
        if self._transport is None:
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._set_timer(self._limits.linger)

    def _close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def _set_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if not self._writable:
            self.abort()
        elif self._receiving and not self._closing:
            self._refuse(408, f"The request did not arrive within {self._limits.request_timeout:g} seconds.")
        else:
            self._close()


def _request_of(head: h11.Request, body: bytes) -> HttpRequest:
    headers: dict[str, str] = {}
    for name, value in head.headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return HttpRequest(
        head.method.decode("latin-1"), head.target.decode("latin-1"), headers=headers, body=body
    )


def _failure() -> Response:
    return error_response(500, "The broker failed on this request; its log says why.")


def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
