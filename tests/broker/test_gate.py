"""Who has shown no token is let go after a while and keeps nobody out, whatever it says or does not say."""

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pairbus import conditions
from pairbus.amqp.events import Closed
from pairbus.amqp.frames import AMQP_HEADER, SASL_HEADER, encode_frame
from pairbus.amqp.performatives import Open
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker, ConnectionLimits
from pairbus.broker.gate import GRACE, SILENT_GRACE, Gate, raise_descriptor_limit
from pairbus.clock import ManualClock
from pairbus.errors import ConfigurationError
from tests.cli.process import COMMAND
from tests.waiting import PATIENCE, wait_until

from .keys import key_of
from .raw import RawClient

pytestmark = pytest.mark.usefixtures("noisy")

# As far as a client may come without a token, and then be silent.
HALVES = {
    "nothing": b"",
    "one byte": b"A",
    "three bytes": b"AMQ",
    "half a header": SASL_HEADER[:5],
    "sasl": SASL_HEADER,
    "half a sasl frame": SASL_HEADER + b"\0\0\0\x20\x02\x01",
    "open": AMQP_HEADER + encode_frame(0, Open("stranger")),
    "a frame that never ends": AMQP_HEADER + encode_frame(0, Open("stranger")) + b"\0\0\x20\0\x02\0\0\0",
    "tls": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    "http": b"GET / HTTP/1.1\r\nHost:",
    "http with half a body": b"PUT /q HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n<entry",
}


def gate_of(broker: Broker) -> Gate:
    listener = broker._hosts["contoso"]._listener
    assert listener is not None
    return listener.gate


def is_over(line: socket.socket) -> bool:
    """Whether the other side has ended the connection; waits for it."""
    line.settimeout(PATIENCE)
    try:
        while line.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def end_of(client: RawClient) -> str | None:
    """The condition with which the broker ends a connection; None if it says nothing."""
    while data := client.socket.recv(65536):
        for event in client.machine.receive_data(data, 0.0):
            if isinstance(event, Closed):
                return None if event.error is None else event.error.condition
        client.flush()
    return None


def connect(port: int, data: bytes = b"") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    line.sendall(data)
    return line


@pytest.fixture
def make_broker(
    clock: ManualClock, certificate: tuple[Path, Path]
) -> Iterator[Callable[[ConnectionLimits], Broker]]:
    with ExitStack() as stack:

        def make(limits: ConnectionLimits) -> Broker:
            broker = Broker({"contoso": 0}, clock=clock, certificate=certificate, connection_limits=limits)
            return stack.enter_context(broker)

        yield make


@pytest.mark.parametrize("address", ["namespace", "control"])
def test_one_deadline_from_accept_to_token(broker: Broker, clock: ManualClock, address: str) -> None:
    namespace = broker["contoso"]
    gate, port = gate_of(broker), namespace.port
    if address == "control":
        assert broker._control is not None
        gate, port = broker._control.gate, broker._control.port
    with RawClient.of_owner(namespace) as member:
        lines = {name: connect(port, data) for name, data in HALVES.items()}
        wait_until(lambda: gate.strangers == len(lines))
        clock.advance(59)
        broker.tick()
        assert gate.strangers == len(lines)
        clock.advance(1)
        broker.tick()
        assert gate.strangers == 0
        still_there = [name for name, line in lines.items() if not is_over(line)]
        for line in lines.values():
            line.close()
        assert still_there == []
        member.attach("$cbs", sends=True)


def test_the_deadline_is_kept_without_being_asked(certificate: tuple[Path, Path]) -> None:
    limits = ConnectionLimits(token_timeout=0.05)
    with (
        Broker({"contoso": 0}, certificate=certificate, connection_limits=limits) as broker,
        connect(broker["contoso"].port) as line,
    ):
        assert is_over(line)


def test_drips_do_not_prolong_it(broker: Broker, clock: ManualClock) -> None:
    line = connect(broker["contoso"].port, SASL_HEADER[:1])
    wait_until(lambda: gate_of(broker).strangers == 1)
    for place in range(1, 7):
        clock.advance(9)
        broker.tick()
        line.sendall(SASL_HEADER[place : place + 1])
    clock.advance(9)
    broker.tick()
    assert is_over(line)
    line.close()


def test_the_oldest_stranger_makes_room(
    make_broker: Callable[[ConnectionLimits], Broker], clock: ManualClock
) -> None:
    broker = make_broker(ConnectionLimits(strangers=3))
    namespace, gate = broker["contoso"], gate_of(broker)
    lines: list[socket.socket] = []
    for _ in range(3):
        lines.append(connect(namespace.port))
        wait_until(lambda: gate.strangers == len(lines))
        clock.advance(1)
    clock.advance(GRACE)
    key = SaslClient.plain(*key_of(namespace))
    with RawClient.connected(namespace.port, key), RawClient.connected(namespace.port, key):
        assert is_over(lines[0])
        assert (gate.strangers, gate.members) == (2, 2)
        lines[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            lines[1].recv(1)
    wait_until(lambda: gate.members == 0)
    for line in lines:
        line.close()
    wait_until(lambda: gate.strangers == 0)


def test_who_has_just_come_is_not_pushed_out(
    make_broker: Callable[[ConnectionLimits], Broker], clock: ManualClock
) -> None:
    broker = make_broker(ConnectionLimits(strangers=1))
    first = connect(broker["contoso"].port)
    wait_until(lambda: gate_of(broker).strangers == 1)
    second = connect(broker["contoso"].port, b"GET / HTTP/1.1\r\n\r\n")
    assert gate_of(broker).make_room() is False
    clock.advance(GRACE)
    assert is_over(first)
    wait_until(lambda: second.recv(8).startswith(b"HTTP/1.1"))
    first.close()
    second.close()


def test_who_says_nothing_goes_before_who_speaks(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent sockets are let go so quickly that a thousand of them keep nobody out for long."""
    cut: list[int] = []
    gate = Gate(ConnectionLimits(strangers=4), monotonic=clock.monotonic, is_held=lambda: True)
    monkeypatch.setattr(gate, "_arm", lambda: None)  # there is no event loop
    visitors = [gate.enter(lambda _, number=number: cut.append(number)) for number in range(4)]  # type: ignore[misc]
    visitors[0].speak()
    assert not gate.make_room()
    clock.advance(SILENT_GRACE)
    for number in range(4, 7):
        assert gate.make_room()
        gate.enter(lambda _, number=number: cut.append(number)).speak()  # type: ignore[misc]
    assert cut == [1, 2, 3]
    assert not gate.make_room()
    clock.advance(GRACE - SILENT_GRACE)
    assert gate.make_room()
    assert cut == [1, 2, 3, 0], "and then the oldest"


@pytest.mark.parametrize(
    ("address", "is_limited"), [("192.0.2.7", True), ("127.0.0.1", False), ("::1", False)]
)
def test_strangers_of_one_address_leave_room_for_others(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, address: str, is_limited: bool
) -> None:
    cut: list[str] = []
    gate = Gate(ConnectionLimits(strangers=8), monotonic=clock.monotonic, is_held=lambda: True)
    monkeypatch.setattr(gate, "_arm", lambda: None)  # there is no event loop
    visitors = [gate.enter(cut.append, address) for _ in range(6)]
    assert gate.takes(address) is not is_limited
    assert gate.takes("192.0.2.8")
    gate.enter(cut.append, "192.0.2.8").leave()
    visitors[0].admit()
    assert gate.takes(address), "who has shown a token counts no longer"
    visitors.append(gate.enter(cut.append, address))
    visitors[1].leave()
    visitors.append(gate.enter(cut.append, address))
    assert gate.takes(address) is not is_limited
    clock.advance(GRACE)
    assert gate.takes(address)
    assert len(cut) == is_limited, "the oldest has had its moment"
    for visitor in visitors:
        visitor.leave()
    assert not gate._by_address


def test_one_member_too_many_is_refused(make_broker: Callable[[ConnectionLimits], Broker]) -> None:
    broker = make_broker(ConnectionLimits(connections=1))
    namespace = broker["contoso"]
    key = SaslClient.plain(*key_of(namespace))
    with RawClient.connected(namespace.port, key):
        second = RawClient(namespace.port, key)
        assert end_of(second) == conditions.RESOURCE_LIMIT
        second.socket.close()
    wait_until(lambda: gate_of(broker).members == 0)
    with RawClient.connected(namespace.port, key):
        assert gate_of(broker).members == 1


def test_a_stranger_is_told_why(broker: Broker, clock: ManualClock) -> None:
    with RawClient.connected(broker["contoso"].port, SaslClient.anonymous()) as stranger:
        clock.advance(60)
        broker.tick()
        assert end_of(stranger) == conditions.UNAUTHORIZED


@pytest.mark.parametrize("wrong", [{"connections": 0}, {"strangers": 0}, {"token_timeout": 0.0}])
def test_limits_that_let_nobody_in_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        ConnectionLimits(**wrong)


def test_the_soft_limit_of_descriptors_is_raised() -> None:
    code = (
        "import resource; from pairbus.broker.gate import raise_descriptor_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 2000))\n"
        "raise_descriptor_limit(500); print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "raise_descriptor_limit(5000); print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "raise_descriptor_limit(1); print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[:3] == ["(756, 2000)", "(2000, 2000)", "(2000, 2000)"]
    raise_descriptor_limit(0)


def test_at_the_limit_of_descriptors_somebody_gets_in(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    arguments = ["broker", "--namespace", "contoso=0", "--ready-file", str(ready), "--max-strangers", "5000"]

    def limit_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))

    with ExitStack() as stack:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=limit_descriptors,
        )
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        wait_until(ready.exists)
        described = json.loads(ready.read_text())["contoso"]
        parts = dict(part.split("=", 1) for part in described["connection_string"].rstrip(";").split(";"))
        key = SaslClient.plain(parts["SharedAccessKeyName"], parts["SharedAccessKey"])
        for _ in range(100):
            stack.enter_context(connect(described["port"]))
        with RawClient.connected(described["port"], key) as member:
            member.attach("$cbs", sends=True)
