"""Whatever a peer sends, the machine neither raises nor hangs nor grows: at worst its connection is over."""

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import (
    Closed,
    LinkAttached,
    LinkFlowed,
    ProtocolEvent,
    SaslInitReceived,
    Settled,
    TransferReceived,
)
from pairbus.amqp.frames import AMQP_HEADER, SASL_HEADER
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.performatives import ACCEPTED
from tests.amqp.grammar import CORPUS, Grammar, dice_of, rounds
from tests.amqp.wire import Wire
from tests.examples import examples


class Owner:
    """A server with an owner that answers everything, as a broker would."""

    def __init__(self, *, sasl: bool = True, server: bool = True) -> None:
        self.machine = Connection(server=server, container_id="fuzzed", sasl=sasl, max_frame_size=4096)
        self.closed: list[Closed] = []
        self.output = 0
        if not server:
            self.machine.start()
            self.machine.open()

    def feed(self, data: bytes) -> None:
        self._handle(self.machine.receive_data(data, 0.0))
        self.output += len(self.machine.data_to_send())

    def _handle(self, events: list[ProtocolEvent]) -> None:
        for event in events:
            assert not self.closed, "an event came after Closed"
            match event:
                case SaslInitReceived():
                    self._handle(self.machine.sasl_outcome(True))
                case LinkAttached(link):
                    link.accept(initial_credit=10, max_message_size=10_000)
                case TransferReceived(link, delivery_id):
                    link.settle(delivery_id, ACCEPTED)
                case LinkFlowed(link):
                    for _ in range(min(link.sendable, 3)) if link.is_sender else ():
                        link.send(b"m" * 100, tag=b"t")
                    if event.drain:
                        link.drained()
                case Settled(link, ids, state):
                    for delivery_id in ids:
                        link.settle(delivery_id, state)
                case Closed():
                    self.closed.append(event)


def _record() -> bytes:
    """What a client says in a conversation that uses every frame."""
    wire = Wire(server=Connection(server=True, container_id="server", max_frame_size=4096))
    said = bytearray()
    original = wire.client.data_to_send

    def listen() -> bytes:
        data = original()
        said.extend(data)
        return data

    wire.client.data_to_send = listen  # type: ignore[method-assign]
    wire.open()
    session, _ = wire.begin()
    sender, receiver = wire.attach(session, sender=True, credit=50)
    for number in range(5):
        sender.send(b"payload" * number * 400, tag=b"%d" * 3 % ((number,) * 3))
    wire.pump()
    back, out = wire.attach(session, sender=False, name="back")
    back.flow(5)
    wire.pump()
    for number in range(3):
        out.send(b"answer", tag=b"%d" % number)
    wire.pump()
    for event in wire.client_all(TransferReceived):
        back.settle(event.delivery_id, ACCEPTED, settled=False)
    for event in wire.server_all(TransferReceived):
        receiver.settle(event.delivery_id, ACCEPTED)
    back.flow(5, drain=True, echo=True)
    sender.detach()
    wire.pump()
    session.end()
    wire.client.close()
    wire.pump()
    return bytes(said)


CONVERSATION = _record()


def test_the_recorded_conversation_is_a_good_one() -> None:
    owner = Owner()
    owner.feed(CONVERSATION)
    assert owner.closed == [Closed(None, False)]


@settings(max_examples=examples(150))
@given(
    st.binary(max_size=300), st.sampled_from([b"", SASL_HEADER, AMQP_HEADER]), st.booleans(), st.booleans()
)
def test_arbitrary_bytes(data: bytes, header: bytes, sasl: bool, server: bool) -> None:
    owner = Owner(sasl=sasl, server=server)
    owner.feed(header + data)
    owner.feed(data)
    assert owner.output < 2000


def _mutations(seed: int, count: int) -> Iterator[bytes]:
    """Bytes changed, cut out, doubled and moved, most of them behind the handshake."""
    source = random.Random(seed)
    for _ in range(count):
        data = bytearray(CONVERSATION)
        for _ in range(source.randint(1, 4)):
            place = source.randrange(len(data))
            match source.randrange(4):
                case 0:
                    data[place] = source.randrange(256)
                case 1:
                    del data[place : place + source.randint(1, 20)]
                case 2:
                    data[place:place] = data[place : place + source.randint(1, 60)]
                case _:
                    data[place : place + 4] = source.choice([b"\xff" * 4, b"\0" * 4, b"\x00\x00\x10\x00"])
        yield bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_conversations_that_are_damaged(seed: int) -> None:
    ends = 0
    for data in _mutations(seed, 150):
        owner = Owner()
        cut = len(data) // 2
        owner.feed(data[:cut])
        owner.feed(data[cut:])
        ends += bool(owner.closed)
        assert owner.output < 20 * len(data)
        assert len(owner.closed) <= 1
    assert ends > 100  # most damage is noticed


def test_damaged_frames_in_a_good_stream() -> None:
    """Only bytes inside frames are changed, so that the stream stays in step and each frame is looked at."""
    source = random.Random(7)
    spans = _frame_spans()
    for _ in range(400):
        data = bytearray(CONVERSATION)
        start, end = source.choice(spans)
        for _ in range(source.randint(1, 3)):
            data[source.randrange(start, min(end, start + 80))] = source.choice(
                [
                    0x00,
                    0x40,
                    0x41,
                    0x43,
                    0x45,
                    0x52,
                    0x53,
                    0x70,
                    0xA0,
                    0xC0,
                    0xD0,
                    0xF0,
                    0xFF,
                    source.randrange(256),
                ]
            )
        owner = Owner()
        owner.feed(bytes(data))
        assert owner.output < 20 * len(data)


def _frame_spans() -> list[tuple[int, int]]:
    at = len(SASL_HEADER)
    spans = []
    while at < len(CONVERSATION):
        if CONVERSATION.startswith(AMQP_HEADER, at):
            at += len(AMQP_HEADER)
            continue
        size = int.from_bytes(CONVERSATION[at : at + 4], "big")
        spans.append((at + 8, at + size))
        at += size
    return [span for span in spans if span[0] < span[1]]


def test_memory_stays_bounded() -> None:
    """A peer that never ends its frames or messages holds what one frame and the limits allow."""
    tracemalloc.start()
    owner = Owner()
    owner.feed(CONVERSATION[: len(CONVERSATION) * 3 // 4])
    base = tracemalloc.get_traced_memory()[0]
    for data in _mutations(99, 100):
        Owner().feed(data)
    owner.feed(b"\x00\x00\x0f\xff\x02\x00\x00\x00" + b"\x00" * 2000)
    for _ in range(1000):
        owner.feed(b"")
    grown = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    assert grown < 1_000_000


def test_a_frame_in_a_thousand_pieces_is_put_together_in_one_go() -> None:
    owner = Owner()
    for place in range(len(CONVERSATION)):
        owner.feed(CONVERSATION[place : place + 1])
    assert owner.closed == [Closed(None, False)]


# Structure-aware: frames that are nearly right


LIMITS = CodecLimits(max_read_effort=256)


class Stranger(Owner):
    """A server that trusts nobody, or everybody, and does no more than its share at a time."""

    def __init__(self, *, trusted: bool) -> None:
        super().__init__()
        self.machine = Connection(
            server=True,
            container_id="fuzzed",
            sasl=False,
            max_frame_size=65536,
            limits=LIMITS,
            trusted=trusted,
        )

    def feed_all(self, data: bytes) -> None:
        """Bytes in pieces, each followed by whatever is left of it."""
        for place in range(0, len(data), 4096):
            self.feed(data[place : place + 4096])
            for _ in range(len(data)):
                if not self.machine.has_more:
                    break
                self.feed(b"")
            assert not self.machine.has_more
            assert self.machine.trusted or self.machine.held_bytes <= 2 * LIMITS.stranger.max_bytes + 4096


def test_frames_that_are_nearly_right() -> None:
    dice = dice_of("machine")
    lived = 0
    for _ in range(rounds(60)):
        data = Grammar(dice).conversation(dice.randint(1, 25))
        for trusted in (False, True):
            owner = Stranger(trusted=trusted)
            owner.feed_all(AMQP_HEADER + data)
            assert len(owner.closed) <= 1
            assert owner.output < 100 * len(data) + 10_000
            lived += not owner.closed
    assert lived  # some come through: not all end at the first check


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("trusted", [False, True])
def test_what_once_broke_something(name: str, trusted: bool) -> None:
    owner = Stranger(trusted=trusted)
    tracemalloc.start()
    owner.feed_all(CORPUS[name])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2_000_000
    assert len(owner.closed) <= 1
