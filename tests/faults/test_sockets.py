"""What the line does below AMQP, seen by a plain socket: on new connections, on open ones, and on those that
have not said a word yet.
"""

import errno
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pairbus.broker import Broker, NamespaceHandle
from tests.waiting import PATIENCE

HEADER = b"AMQP\x03\x01\x00\x00"
HTTP = b"GET /$namespaceinfo HTTP/1.1\r\nHost: contoso\r\n\r\n"
# Long enough for an answer on the same machine, short enough to wait for one that must not come.
MOMENT = 0.15


@contextmanager
def connected(namespace: NamespaceHandle, *, timeout: float = PATIENCE) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=timeout) as sock:
        yield sock


def greet(sock: socket.socket) -> bytes:
    """Say the first words of AMQP and return the answer's."""
    sock.sendall(HEADER)
    return sock.recv(8)


def ask(sock: socket.socket) -> bytes:
    """The whole answer to a request of HTTP that needs a token."""
    answer = b""
    while not answer.endswith(b"</Error>"):
        answer += sock.recv(4096)
    return answer


def is_quiet(sock: socket.socket) -> bool:
    sock.settimeout(MOMENT)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    else:
        return False
    finally:
        sock.settimeout(PATIENCE)


def read_to_the_end(sock: socket.socket) -> None:
    while sock.recv(4096):
        pass


def assert_reset(sock: socket.socket) -> None:
    with pytest.raises(ConnectionResetError):
        read_to_the_end(sock)


def assert_healthy(namespace: NamespaceHandle) -> None:
    with connected(namespace) as sock:
        assert greet(sock) == HEADER


@pytest.fixture(params=["quiet", "amqp", "http"])
def early(request: pytest.FixtureRequest, contoso: NamespaceHandle) -> Iterator[socket.socket]:
    """A connection that was there before the fault: one that has said nothing, one of AMQP, one of HTTP."""
    with connected(contoso) as sock:
        if request.param == "amqp":
            assert greet(sock) == HEADER
            sock.recv(4096)
        elif request.param == "http":
            sock.sendall(HTTP)
            assert ask(sock).startswith(b"HTTP/1.1 401")
        yield sock


def test_refuse_closes_the_port_at_once_and_keeps_it(contoso: NamespaceHandle, early: socket.socket) -> None:
    contoso.faults.set("refuse")
    for _ in range(3):
        with socket.socket() as sock:
            assert sock.connect_ex(("127.0.0.1", contoso.port)) == errno.ECONNREFUSED
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind(("127.0.0.1", contoso.port))
    assert_reset(early)
    contoso.faults.clear()
    assert_healthy(contoso)


def test_reset_accepts_and_hangs_up(contoso: NamespaceHandle, early: socket.socket) -> None:
    contoso.faults.set("reset")
    assert_reset(early)
    for _ in range(3):
        try:
            with connected(contoso) as sock:
                assert_reset(sock)
        except ConnectionResetError:
            pass  # it came before connecting had returned
    contoso.faults.clear()
    assert_healthy(contoso)


def test_silence_takes_bytes_and_answers_none(contoso: NamespaceHandle, early: socket.socket) -> None:
    contoso.faults.set("silence")
    with connected(contoso) as sock:
        sock.sendall(HEADER + bytes(100_000))
        early.sendall(bytes(100_000))
        assert is_quiet(sock)
        assert is_quiet(early)
        contoso.faults.clear()
        assert_reset(sock)
        assert_reset(early)
    assert_healthy(contoso)


def test_blackhole_lets_connecting_hang(contoso: NamespaceHandle) -> None:
    contoso.faults.set("blackhole")
    for _ in range(3):
        with pytest.raises(TimeoutError), connected(contoso, timeout=MOMENT):
            pytest.fail("connected")
    contoso.faults.clear()
    assert_healthy(contoso)


def test_who_waits_in_a_blackhole_gets_through_when_it_ends(contoso: NamespaceHandle) -> None:
    contoso.faults.set("blackhole")
    with socket.socket() as sock:
        sock.setblocking(False)
        assert sock.connect_ex(("127.0.0.1", contoso.port)) == errno.EINPROGRESS
        assert select.select([], [sock], [], MOMENT) == ([], [], [])
        contoso.faults.clear()
        assert select.select([], [sock], [], PATIENCE)[1] == [sock]  # the kernel asks again after a second
        sock.settimeout(PATIENCE)
        assert greet(sock) == HEADER


def test_open_connections_are_not_read_in_a_blackhole_and_go_on_after_it(
    contoso: NamespaceHandle, early: socket.socket
) -> None:
    contoso.faults.set("blackhole")
    early.settimeout(MOMENT)
    with pytest.raises(TimeoutError):  # nobody reads: the buffers of the kernel fill up
        early.sendall(bytes(64_000_000))
    contoso.faults.clear()
    early.settimeout(PATIENCE)
    # Now it is read and found to be nonsense.
    with suppress(ConnectionResetError):
        early.recv(4096)


def test_what_was_said_into_a_blackhole_is_heard_after_it(contoso: NamespaceHandle) -> None:
    with connected(contoso) as amqp, connected(contoso) as http:
        contoso.faults.set("blackhole")
        amqp.sendall(HEADER)
        http.sendall(HTTP)
        assert is_quiet(amqp)
        assert is_quiet(http)
        contoso.faults.clear()
        assert amqp.recv(8) == HEADER
        assert ask(http).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("kind", ["silence", "blackhole"])
def test_a_handshake_stays_unanswered(
    kind: str, contoso: NamespaceHandle, certificate: tuple[Path, Path]
) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    with connected(contoso) as sock:
        contoso.faults.set(kind)
        sock.settimeout(MOMENT)
        with pytest.raises(TimeoutError):
            context.wrap_socket(sock, server_hostname="localhost")
    contoso.faults.clear()
    with connected(contoso) as sock, context.wrap_socket(sock, server_hostname="localhost") as tls:
        assert greet(tls) == HEADER


@pytest.mark.parametrize(
    ("kind", "is_cut"), [("refuse", True), ("reset", True), ("silence", False), ("blackhole", False)]
)
def test_tls_is_no_shelter(
    kind: str, contoso: NamespaceHandle, certificate: tuple[Path, Path], *, is_cut: bool
) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    with connected(contoso) as sock, context.wrap_socket(sock, server_hostname="localhost") as tls:
        contoso.faults.set(kind)
        if is_cut:
            received = b""  # which is what TLS makes of a reset up to Python 3.12
            with suppress(ConnectionResetError):
                received = tls.recv(1)
            assert received == b""
        else:
            tls.sendall(HEADER)
            assert is_quiet(tls)


def test_one_kind_follows_another(contoso: NamespaceHandle) -> None:
    for kind in ("blackhole", "silence", "refuse", "blackhole", "reset", "silence", "blackhole", "refuse"):
        contoso.faults.set(kind)
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", contoso.port)) == errno.ECONNREFUSED
    contoso.faults.clear()
    assert_healthy(contoso)


def test_a_silent_connection_may_fall_into_a_blackhole_and_is_cut_after_it(contoso: NamespaceHandle) -> None:
    with connected(contoso) as sock:
        assert greet(sock) == HEADER
        sock.recv(4096)
        contoso.faults.set("silence")
        sock.sendall(b"lost")
        contoso.faults.set("blackhole")
        assert is_quiet(sock)
        contoso.faults.clear()
        assert_reset(sock)


def test_the_other_namespace_does_not_notice(broker: Broker, contoso: NamespaceHandle) -> None:
    for kind in ("refuse", "reset", "silence", "blackhole"):
        contoso.faults.set(kind)
        assert_healthy(broker["contoso-dr"])


@pytest.mark.parametrize("kind", ["refuse", "reset", "silence", "blackhole"])
def test_a_broker_stops_in_the_middle_of_a_fault(kind: str, certificate: tuple[Path, Path]) -> None:
    with Broker({"contoso": 0}, certificate=certificate) as broker:
        with connected(broker["contoso"]) as sock:
            assert greet(sock) == HEADER
            sock.recv(4096)
            broker["contoso"].faults.set(kind)
            broker.__exit__(None, None, None)
            assert_reset(sock)
        with socket.socket() as sock:
            assert sock.connect_ex(("127.0.0.1", broker["contoso"].port)) == errno.ECONNREFUSED
