"""Whatever comes over a socket, as AMQP, TLS or HTTP, to a namespace or the control address, ends at worst
its own connection: no error that nobody foresaw, and a client beside it does not notice.
"""

import logging
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pairbus.amqp.frames import AMQP_HEADER, encode_frame
from pairbus.amqp.message import encode_data
from pairbus.amqp.performatives import Attach, Source, Target, Transfer
from pairbus.broker import Broker, FaultPlan, Policy
from pairbus.cli.config import read_config
from pairbus.errors import PairbusError
from tests.amqp.grammar import BEGUN, CORPUS, Grammar, dice_of, rounds

from .keys import signature
from .raw import RawClient

pytestmark = pytest.mark.usefixtures("noisy")
# Long enough for any answer; who is not answered has been heard out all the same.
MOMENT = 0.2


@pytest.fixture
def beside(broker: Broker, caplog: pytest.LogCaptureFixture) -> Iterator[RawClient]:
    """A client that sends before and after, and looks into the log for errors that nobody foresaw."""
    namespace = broker["contoso"]
    namespace.create_queue("orders")
    with RawClient.of_owner(namespace) as client:
        sender = client.attach("orders", sends=True)
        client.send(sender, encode_data(b"before"))
        yield client
        client.send(sender, encode_data(b"after"))
    unforeseen = [record for record in caplog.get_records("call") if record.exc_info]
    assert [logging.Formatter().format(record) for record in unforeseen] == []


def say(port: int, data: bytes) -> bytes:
    """Say something and hear what is answered until the end, or for a moment."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=MOMENT) as line:
        try:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            while more := line.recv(65536):
                heard += more
        except OSError:
            return heard
    return heard


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The same with bytes changed, cut out or doubled."""
    changed = bytearray(data)
    for _ in range(dice.randint(0, 3)):
        place = dice.randrange(len(changed))
        match dice.randrange(3):
            case 0:
                changed[place] = dice.randrange(256)
            case 1:
                del changed[place : place + dice.randint(1, 10)]
            case _:
                changed[place:place] = changed[place : place + dice.randint(1, 40)]
        changed = changed or bytearray(b"x")
    return bytes(changed)


def test_frames_of_strangers(broker: Broker, beside: RawClient) -> None:
    dice = dice_of("strangers")
    for _ in range(rounds(25)):
        say(broker["contoso"].port, AMQP_HEADER + Grammar(dice).conversation(dice.randint(1, 25)))


@pytest.mark.parametrize("name", CORPUS)
def test_what_once_broke_something(broker: Broker, beside: RawClient, name: str) -> None:
    say(broker["contoso"].port, CORPUS[name])


def test_frames_of_members(broker: Broker, beside: RawClient) -> None:
    """With the key of a policy, behind links that are good."""
    dice = dice_of("members")
    namespace = broker["contoso"]
    for _ in range(rounds(25)):
        with RawClient.of_owner(namespace) as client:
            grammar = Grammar(dice)
            attaches = b"".join(
                encode_frame(
                    0,
                    Attach(
                        f"good-{handle}",
                        handle,
                        handle == 1,
                        source=Source("orders/$management"),
                        target=Target("orders/$management"),
                        initial_delivery_count=0,
                    ),
                )
                for handle in range(2)
            )
            requests = b"".join(
                encode_frame(0, Transfer(0, number, b"t", 0, dice.random() < 0.5), grammar.message())
                for number in range(20)
            )
            frames = b"".join(grammar.frame() for _ in range(10))
            begin = BEGUN[int.from_bytes(BEGUN[:4], "big") :]
            client.socket.settimeout(MOMENT)
            try:
                client.socket.sendall(begin + attaches + requests + frames)
                client.socket.shutdown(socket.SHUT_WR)
                while client.socket.recv(65536):
                    pass
            except OSError:
                continue


def test_requests_over_http(broker: Broker, beside: RawClient) -> None:
    dice = dice_of("http")
    namespace = broker["contoso"]
    token = signature(namespace, expires_at=time.time() + 3600)
    entry = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
        "<LockDuration>PT1M</LockDuration><MaxDeliveryCount>10</MaxDeliveryCount>"
        "</QueueDescription></content></entry>"
    )
    for _ in range(rounds(40)):
        method = dice.choice(["GET", "PUT", "DELETE", "POST", "HEAD", "QUIT"])
        path = dice.choice(
            ["/other", "/another", "/$Resources/queues?$skip=0&$top=9", "/a/Subscriptions/b/rules/c"]
        )
        request = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {token}\r\n"
            f"Content-Length: {len(entry)}\r\nConnection: close\r\n\r\n{entry}"
        ).encode()
        heard = say(namespace.port, damaged(request, dice))
        assert not heard.startswith(b"HTTP/1.1 500"), heard


def test_requests_to_the_control_address(broker: Broker, beside: RawClient) -> None:
    dice = dice_of("control")
    control = broker.describe()["control"]
    port = int(control["url"].rpartition(":")[2])
    bodies = [
        '{"namespace": "contoso-dr", "kind": "delay", "seconds": 1e999}',
        '{"namespace": "contoso-dr", "kind": "throttle", "entity": 5}',
        '{"namespace": ["contoso-dr"], "kind": {}}',
        "[" * 3000,
        '"\\ud800"',
    ]
    for _ in range(rounds(40)):
        method = dice.choice(["GET", "POST", "DELETE"])
        path = dice.choice(
            ["/faults?namespace=contoso-dr", "/faults", "/counters", "/connections", "/status", "//"]
        )
        body = dice.choice(bodies)
        request = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {control['token']}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        ).encode()
        heard = say(port, damaged(request, dice))
        assert not heard.startswith(b"HTTP/1.1 500"), heard


def test_tls_that_is_none(broker: Broker, beside: RawClient) -> None:
    dice = dice_of("tls")
    hello = bytes.fromhex("16030100310100002d0303") + bytes(32) + bytes.fromhex("00000213010100")
    for _ in range(rounds(15)):
        say(broker["contoso"].port, b"\x16" + damaged(hello, dice)[1:])


CONFIGURATION = """
[options]
failover_interval = 30
ttl_policies = { news = "deduct" }
[pairs.shop]
primary_env = "SHOP_PRIMARY"
secondary_host = "contoso-dr.servicebus.windows.net"
[pairs.shop.entities.orders]
kind = "queue"
"""
PLAN = """
seed = 7
[[fault]]
at = [2.0, 4.0]
namespace = "contoso"
kind = "delay"
seconds = 2
for = [5.0, 10.0]
"""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (CONFIGURATION, lambda path: read_config(path)),
        (PLAN, lambda path: FaultPlan.load(path)),
        (
            "app=c2VjcmV0:send,listen",
            lambda path: Policy.parse_all(path.read_text("utf-8", "replace"), source="f"),
        ),
    ],
    ids=["pairbus.toml", "plan", "policies"],
)
def test_files_that_are_nearly_right(text: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    """They are read, or refused in words."""
    dice, refused = dice_of("files"), 0
    path = tmp_path / "file"
    count = rounds(150)
    for _ in range(count):
        path.write_bytes(damaged(text.encode(), dice))
        try:
            read(path)
        except PairbusError:
            refused += 1
    assert 0 < refused < count
