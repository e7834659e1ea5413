"""The HTTP shell, over real sockets, with handlers that say what they were given."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.admin.exchange import HttpRequest, Response
from pairbus.broker.admin.http import AdminHttp, HttpLimits
from pairbus.broker.links.pace import Allowance
from tests.examples import examples
from tests.hurry import HurriedLoop
from tests.waiting import eventually

Answer = Response | Awaitable[Response]


def echo(request: HttpRequest) -> Response:
    return Response(
        200, headers={"Content-Type": "text/plain"}, body=request.method.encode() + b" " + request.body
    )


@asynccontextmanager
async def serving(
    handler: Callable[[HttpRequest], Answer], *, limits: HttpLimits | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    server = await asyncio.get_running_loop().create_server(
        lambda: AdminHttp(handler, limits=limits), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        await server.wait_closed()


async def read_response(
    reader: asyncio.StreamReader, client: h11.Connection | None = None
) -> tuple[h11.Response, bytes]:
    """The next response; a connection of one's own is needed to read several."""
    if client is None:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
    head, body = None, b""
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            client.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return head, body


async def test_keep_alive_answers_one_request_after_another() -> None:
    seen: list[HttpRequest] = []

    def handler(request: HttpRequest) -> Response:
        seen.append(request)
        return echo(request)

    async with serving(handler) as (reader, writer):
        for body in (b"one", b"two"):
            writer.write(
                b"PUT /q?a=%20b HTTP/1.1\r\nHost: h:1\r\nIf-Match: *\r\nContent-Length: 3\r\n\r\n" + body
            )
            head, answer = await read_response(reader)
            assert (head.status_code, answer) == (200, b"PUT " + body)
            assert dict(head.headers)[b"server"] == b"pairbus"
    assert [request.target for request in seen] == ["/q?a=%20b"] * 2
    assert seen[0].headers["if-match"] == "*"
    assert seen[0].path == "q"


async def test_a_request_split_at_every_byte_arrives_whole() -> None:
    async with serving(echo) as (reader, writer):
        for byte in b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi":
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await read_response(reader))[1] == b"PUT hi"


async def test_chunked_bodies_are_put_together() -> None:
    async with serving(echo) as (reader, writer):
        writer.write(
            b"PUT /q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
        )
        assert (await read_response(reader))[1] == b"PUT abcd"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(echo) as (reader, writer):
        writer.write(
            b"".join(b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(9))
        )
        writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        everything = await reader.read()
    assert [everything.count(b"PUT %d" % n) for n in range(9)] == [1] * 9
    assert everything.index(b"PUT 0") < everything.index(b"PUT 8") < everything.index(b"GET ")


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    async with serving(echo) as (reader, writer):
        writer.write(b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert (await read_response(reader))[1] == b"PUT ok"


async def test_a_head_request_has_no_body_in_its_answer() -> None:
    async with serving(echo) as (reader, writer):
        writer.write(b"HEAD /q HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"Content-Length: 5" in head
    assert body == b""


# On the clock of such a loop: a third of a second of ours.
TIMES_OUT = 10.0


def in_a_hurry(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play it on a loop whose time-outs do not come early because the machine is late."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(scenario())


def test_a_response_is_held_until_it_is_released() -> None:
    in_a_hurry(hold_a_response)


async def hold_a_response() -> None:
    release: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    def handler(request: HttpRequest) -> Awaitable[Response]:
        asked.set()
        return release

    # An idle time-out that has long passed must not end a connection whose answer is held.
    limits = HttpLimits(idle_timeout=TIMES_OUT, request_timeout=TIMES_OUT)
    async with serving(handler, limits=limits) as (reader, writer):
        writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\n\r\n")
        await asked.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), TIMES_OUT + 2)
        release.set_result(Response(200, body=b"at last"))
        assert (await read_response(reader))[1] == b"at last"


async def test_cancelling_a_held_response_drops_the_connection_without_an_answer() -> None:
    release: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    def handler(request: HttpRequest) -> Awaitable[Response]:
        asked.set()
        return release

    async with serving(handler) as (reader, writer):
        writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\n\r\n")
        await asked.wait()
        release.cancel()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_a_client_that_is_gone_when_its_answer_comes_harms_nobody() -> None:
    release: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    def handler(request: HttpRequest) -> Answer:
        asked.set()
        return release if request.method == "GET" else echo(request)

    async with serving(handler) as (_, writer):
        writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\n\r\n")
        await asked.wait()
        writer.transport.abort()
        release.set_result(Response(200, body=b"x" * 100_000))
    async with serving(handler) as (reader, writer):
        writer.write(b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
        assert (await read_response(reader))[0].status_code == 200


async def test_a_coroutine_may_answer_and_its_failure_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> Response:
        raise LookupError("inside")

    async with serving(lambda request: fail()) as (reader, writer):
        with caplog.at_level(logging.CRITICAL, logger="pairbus"):
            writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\n\r\n")
            head, body = await read_response(reader)
    assert head.status_code == 500
    assert b"<Code>500</Code>" in body
    assert b"inside" not in body


async def test_a_handler_that_raises_is_a_500_and_the_connection_lives_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler(request: HttpRequest) -> Response:
        if request.method == "GET":
            raise LookupError("inside")
        return echo(request)

    async with serving(handler) as (reader, writer):
        writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\nAuthorization: sesame\r\n\r\n")
        assert (await read_response(reader))[0].status_code == 500
        writer.write(b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
        assert (await read_response(reader))[0].status_code == 200
    assert "LookupError" in caplog.text
    assert "sesame" not in caplog.text


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 33\r\n\r\n" + b"x" * 33, 413),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n21\r\n" + b"x" * 33, 413),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (
            b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 9, 413),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 9000, 431),
    ],
)
async def test_bad_requests_are_answered_and_the_connection_ends(sent: bytes, status: int) -> None:
    limits = HttpLimits(body_size=32, header_size=8192, chunks=8, linger=0.05)
    async with serving(echo, limits=limits) as (reader, writer):
        writer.write(sent)
        everything = await reader.read()
    assert everything.startswith(b"HTTP/1.1 %d " % status)
    assert b"<Code>%d</Code><Detail>" % status in everything


async def test_a_slow_request_is_answered_with_408() -> None:
    async with serving(echo, limits=HttpLimits(request_timeout=0.03, linger=0.03)) as (reader, writer):
        writer.write(b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
        everything = await reader.read()
    assert everything.startswith(b"HTTP/1.1 408 ")


async def test_dripping_bytes_do_not_move_the_deadline() -> None:
    async with serving(echo, limits=HttpLimits(request_timeout=0.05, linger=0.01)) as (reader, writer):
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            if not writer.is_closing():
                writer.write(b"G")
            await asyncio.wait([answer], timeout=0.005)
    assert answer.result().startswith(b"HTTP/1.1 4")


async def test_an_idle_connection_is_closed_in_silence() -> None:
    async with serving(echo, limits=HttpLimits(idle_timeout=0.02)) as (reader, _):
        assert await reader.read() == b""


async def test_a_client_that_shuts_its_half_down_is_still_answered() -> None:
    async with serving(echo) as (reader, writer):
        writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\n\r\n")
        writer.write_eof()
        assert (await reader.read()).endswith(b"\r\n\r\nGET ")


def test_a_client_that_never_reads_is_not_served_without_end() -> None:
    in_a_hurry(never_read)


async def never_read() -> None:
    served = 0
    lost = asyncio.Event()

    class Watched(AdminHttp):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    def handler(request: HttpRequest) -> Response:
        nonlocal served
        served += 1
        return Response(200, body=b"x" * 1_000_000)

    server = await asyncio.get_running_loop().create_server(
        lambda: Watched(handler, limits=HttpLimits(idle_timeout=TIMES_OUT)), "127.0.0.1", 0
    )
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=1)
        writer.write(b"GET /q HTTP/1.1\r\nHost: h\r\n\r\n" * 1000)
        await lost.wait()
        writer.close()
    assert 0 < served < 100


class Pipe(asyncio.Transport):
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        assert not self.closed

    def resume_reading(self) -> None:
        assert not self.closed


async def test_one_request_of_a_connection_is_answered_in_a_turn() -> None:
    """However many have come in one piece: others come first."""
    answered = 0

    def count(request: HttpRequest) -> Response:
        nonlocal answered
        answered += 1
        return echo(request)

    pipe, protocol = Pipe(), AdminHttp(count)
    protocol.connection_made(pipe)
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" * 20)
    turns = 0
    while answered < 20:
        assert answered <= turns + 1
        await asyncio.sleep(0)
        turns += 1
    assert pipe.written.count(b"HTTP/1.1 200") == 20
    protocol.connection_lost(None)


async def test_who_shares_its_time_waits_when_that_is_spent() -> None:
    class Stingy(Allowance):
        def __init__(self) -> None:
            super().__init__()
            self.waits, self.spent = [0.001], 0.0

        def wait(self, now: float) -> float:
            return self.waits.pop() if self.waits else 0.0

        def spend(self, seconds: float) -> None:
            self.spent += seconds

    allowance = Stingy()
    pipe, protocol = Pipe(), AdminHttp(echo, share=lambda: allowance)
    protocol.connection_made(pipe)
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert pipe.written == b""
    assert protocol.eof_received() is pipe.can_write_eof(), "it is answered all the same"
    await eventually(lambda: b"HTTP/1.1 200" in pipe.written)
    assert allowance.spent > 0
    protocol.connection_lost(None)


@settings(max_examples=examples(150))
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from(
                [
                    b"GET / HTTP/1.1\r\n",
                    b"PUT /q HTTP/1.1\r\nHost: h\r\n",
                    b"Content-Length: 4\r\n",
                    b"Transfer-Encoding: chunked\r\n",
                    b"\r\n",
                    b"4\r\nabcd\r\n0\r\n\r\n",
                ]
            ),
        ),
        max_size=8,
    )
)
def test_arbitrary_bytes_are_answered_or_waited_for(pieces: list[bytes]) -> None:
    async def run() -> bytes:
        pipe, protocol = Pipe(), AdminHttp(echo)
        protocol.connection_made(pipe)
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(0)
        protocol.eof_received()
        protocol.connection_lost(None)
        return pipe.written

    assert asyncio.run(run()) == b"" or asyncio.run(run()).startswith(b"HTTP/1.1 ")
