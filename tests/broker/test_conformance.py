"""Rules of AMQP 1.0 (OASIS, parts 1 to 3 and 5), tried frame by frame over a socket against a namespace.

A row says where it begins (`AT`), what is written then, and what is answered, in order: flows are passed over
where none is expected. Expected is a kind of performative with its error's condition, or `END`, the socket's.
"""

import itertools
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from pairbus.amqp.composites import Composite
from pairbus.amqp.frames import (
    AMQP_HEADER,
    HEARTBEAT,
    SASL_FRAME,
    SASL_HEADER,
    decode_performative,
    encode_frame,
    pack_header,
    unpack_header,
)
from pairbus.amqp.message import encode_data, encode_value
from pairbus.amqp.performatives import (
    UINT_MAX,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Symbol
from pairbus.broker import Broker
from pairbus.broker.handle import NamespaceHandle
from pairbus.conditions import (
    DECODE_ERROR,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    LINK_STOLEN,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    UNATTACHED_HANDLE,
)
from tests.waiting import PATIENCE

from .keys import key_of

pytestmark = pytest.mark.usefixtures("noisy")
NULL: Any = None
END = "the end of the socket"
BEGIN = Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)
MESSAGE = encode_data(b"m")
PLAIN = Symbol("PLAIN")
_NUMBERS = itertools.count()


class Line:
    """A socket, and the frames that are read from it."""

    def __init__(self, namespace: NamespaceHandle, queue: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", namespace.port), timeout=PATIENCE)
        self.queue = queue
        self._key = SaslClient.plain(*key_of(namespace))
        self._bytes = b""

    # -- where a row begins

    def connected(self) -> None:
        """Nothing has been said."""

    def sasl(self) -> None:
        self.write(SASL_HEADER)
        assert self.read_bytes(8) == SASL_HEADER
        assert isinstance(self.read(), SaslMechanisms)

    def trusted(self) -> None:
        self.sasl()
        self.write((SASL_FRAME, SaslInit(PLAIN, self._key.initial_response)))
        assert self.read() == SaslOutcome(0)
        self.write(AMQP_HEADER)
        assert self.read_bytes(8) == AMQP_HEADER

    def opened(self) -> None:
        self.trusted()
        self.write(Open("peer", max_frame_size=512))
        assert isinstance(self.read(), Open)

    def begun(self) -> None:
        self.opened()
        self.write(BEGIN)
        assert isinstance(self.read(), Begin)

    def sending(self) -> None:
        self.begun()
        self.write(self.attach(receives=False))
        assert isinstance(self.read(), Attach)
        assert isinstance(self.read(), Flow)

    def receiving(self) -> None:
        """Two messages are in the queue, and the link has no credit."""
        self.sending()
        for number in range(2):
            self.send(transfer(number))
        self.write(Detach(0, True))
        self.expect([Detach])
        self.write(self.attach(receives=True))
        assert isinstance(self.read(), Attach)

    def send(self, *frames: tuple[Transfer, bytes]) -> Disposition:
        """Send a message, in one or more frames, and wait for its outcome."""
        self.write(*frames)
        (settled,) = self.expect([Disposition])
        assert (settled.settled, settled.state) == (True, Accepted())
        assert isinstance(settled, Disposition)
        return settled

    def attach(self, name: str = "link", handle: int = 0, *, receives: bool, **fields: Any) -> Attach:
        count = None if receives else 0
        ends = {"source": Source(self.queue), "target": Target(self.queue)}
        return Attach(name, handle, receives, **({"initial_delivery_count": count} | ends | fields))

    # -- bytes

    def write(self, *steps: Any) -> None:
        """Bytes, performatives, or pairs of a performative with its channel before it or payload behind."""
        self.socket.sendall(b"".join(map(_encoded, steps)))

    def read_bytes(self, count: int) -> bytes:
        while len(self._bytes) < count:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError
            self._bytes += more
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken

    def read(self) -> Any:
        """The next performative; empty frames are passed over."""
        while True:
            head = self.read_bytes(8)
            size, doff, _, self.channel = unpack_header(head)
            frame = head + self.read_bytes(size - 8)
            assert size <= 512
            if size > doff * 4:
                performative, start = decode_performative(frame, doff * 4, size)
                self.payload = frame[start:]
                return performative

    def expect(self, wanted: list[Any]) -> list[Any]:
        found: list[Any] = []
        for each in wanted:
            kind, condition = each if isinstance(each, tuple) else (each, None)
            if kind is END:
                if found and getattr(found[-1], "error", None):
                    self.write(Close())  # for which a second is given
                with pytest.raises((EOFError, ConnectionResetError)):
                    found.append(self.read())
                continue
            if isinstance(kind, bytes):
                assert self.read_bytes(len(kind)) == kind
                continue
            answer = self.read()
            while isinstance(answer, Flow) and kind is not Flow:
                answer = self.read()
            assert isinstance(answer, kind), answer
            error = getattr(answer, "error", None)
            assert (error.condition if error else None) == condition, answer
            found.append(answer)
        return found


def _encoded(step: Any) -> bytes:
    if isinstance(step, bytes):
        return step
    if isinstance(step, Composite):
        return encode_frame(0, step)
    first, second = step
    if isinstance(second, bytes):
        return encode_frame(0, first, second)
    kind = SASL_FRAME if isinstance(second, SaslInit | SaslMechanisms | SaslOutcome | SaslChallenge) else 0
    return encode_frame(0 if kind else first, second, kind=kind)


def transfer(
    number: int | None = 0, payload: bytes = MESSAGE, tag: bytes | None = b"tag", **fields: Any
) -> tuple[Transfer, bytes]:
    return Transfer(fields.pop("handle", 0), number, tag, fields.pop("message_format", 0), **fields), payload


def flow(**fields: Any) -> Flow:
    counts = {"next_incoming_id": 0, "incoming_window": 1000, "next_outgoing_id": 0, "outgoing_window": 1000}
    return Flow(**(counts | fields))


def described(code: int, *, frame_size: int = 0) -> bytes:
    """A frame with an empty list of an unknown or a known kind."""
    body = b"\x00\x53" + bytes((code,)) + b"\x45"
    return pack_header(frame_size or 8 + len(body), 2, 0, 0) + body


@pytest.fixture(scope="module")
def namespace(certificate: tuple[Any, Any]) -> Iterator[NamespaceHandle]:
    with Broker({"contoso": 0}, certificate=certificate) as broker:
        yield broker["contoso"]


@pytest.fixture
def line(namespace: NamespaceHandle) -> Iterator[Line]:
    name = f"orders{next(_NUMBERS)}"
    namespace.create_queue(name)
    line = Line(namespace, name)
    yield line
    line.socket.close()


class Rule(NamedTuple):
    section: str
    says: str
    begins: str
    writes: list[Any]
    answers: list[Any]


def closes(condition: str) -> list[Any]:
    return [(Close, condition), END]


ENDS_SASL: list[Any] = [END]
RULES = [
    # -- part 2.2: headers
    Rule("2.2", "an older AMQP", "connected", [b"AMQP\x00\x00\x09\x01"], [SASL_HEADER, END]),
    Rule("2.2", "another revision", "connected", [b"AMQP\x00\x01\x00\x01"], [SASL_HEADER, END]),
    Rule("2.2", "TLS by its header", "connected", [b"AMQP\x02\x01\x00\x00"], [SASL_HEADER, END]),
    Rule("2.2", "without SASL", "connected", [AMQP_HEADER], [AMQP_HEADER]),
    # -- part 5.3: SASL
    Rule("5.3.1", "an empty frame", "sasl", [pack_header(8, 2, 1, 0)], ENDS_SASL),
    Rule("5.3.2", "a frame of AMQP", "sasl", [Open("peer")], ENDS_SASL),
    Rule("5.3.2", "mechanisms of a client", "sasl", [(0, SaslMechanisms((PLAIN,)))], ENDS_SASL),
    Rule("5.3.2", "an outcome of a client", "sasl", [(0, SaslOutcome(0))], ENDS_SASL),
    Rule("5.3.2", "a challenge of a client", "sasl", [(0, SaslChallenge(b""))], ENDS_SASL),
    Rule("5.3.2", "unknown", "sasl", [(0, SaslInit(Symbol("NO-SUCH")))], [SaslOutcome, END]),
    Rule("5.3.2", "bad key", "sasl", [(0, SaslInit(PLAIN, b"\0root\0bad"))], [SaslOutcome, END]),
    # -- part 2.3: frames
    Rule("2.3.1", "a data offset of 1", "opened", [pack_header(8, 1, 0, 0)], closes(FRAMING_ERROR)),
    Rule("2.3.1", "a size of 4", "opened", [pack_header(4, 2, 0, 0)], closes(FRAMING_ERROR)),
    Rule("2.3.1", "beyond the frame", "opened", [pack_header(8, 3, 0, 0)], closes(FRAMING_ERROR)),
    Rule("2.3.1", "too large", "opened", [pack_header(1 << 30, 2, 0, 0)], closes(FRAMING_ERROR)),
    Rule(
        "2.3.1", "an extended header", "opened", [pack_header(12, 3, 0, 0) + b"abcd", Close()], [Close, END]
    ),
    Rule("2.3.2", "another type", "opened", [pack_header(8, 2, 7, 0)], closes(FRAMING_ERROR)),
    Rule("2.3.2", "no performative", "opened", [pack_header(9, 2, 0, 0) + b"\x40"], closes(DECODE_ERROR)),
    Rule("2.3.2", "an unknown one", "opened", [described(0x7F)], closes(NOT_IMPLEMENTED)),
    Rule("2.3.2", "behind it", "opened", [described(0x18, frame_size=13) + b"\0"], closes(DECODE_ERROR)),
    # -- part 2.4: connections
    Rule("2.4.1", "on channel 1", "trusted", [(1, Open("peer"))], [Open, *closes(FRAMING_ERROR)]),
    Rule("2.4.1", "begin before open", "trusted", [BEGIN], [Open, *closes(ILLEGAL_STATE)]),
    Rule("2.4.1", "open twice", "opened", [Open("peer")], closes(ILLEGAL_STATE)),
    Rule(
        "2.4.2", "pipelined", "trusted", [Open("peer"), BEGIN, End(), Close()], [Open, Begin, End, Close, END]
    ),
    Rule("2.4.3", "close", "opened", [Close()], [Close, END]),
    Rule("2.4.3", "close at once", "trusted", [Close()], [Open, Close, END]),
    Rule("2.4.5", "empty frames", "opened", [HEARTBEAT, pack_header(8, 2, 0, 9), Close()], [Close, END]),
    Rule("2.7.1", "no container", "trusted", [Open(NULL)], [Open, *closes(INVALID_FIELD)]),
    Rule("2.7.1", "511", "trusted", [Open("peer", max_frame_size=511)], [Open, *closes(FRAMING_ERROR)]),
    Rule("2.7.1", "beyond channel-max", "opened", [(65535, BEGIN)], closes(FRAMING_ERROR)),
    # -- part 2.5: sessions
    Rule("2.5.1", "on any channel", "opened", [(37, BEGIN), (37, End())], [Begin, End]),
    Rule("2.5.1", "twice", "begun", [BEGIN], closes(ILLEGAL_STATE)),
    Rule(
        "2.5.1",
        "an answer to nothing",
        "opened",
        [Begin(remote_channel=7, next_outgoing_id=0, incoming_window=1, outgoing_window=1)],
        closes(ILLEGAL_STATE),
    ),
    Rule("2.5.1", "no session", "opened", [(3, flow())], closes(ILLEGAL_STATE)),
    Rule("2.5.2", "again after its end", "begun", [End(), BEGIN, End()], [End, Begin, End]),
    Rule(
        "2.7.2",
        "no window",
        "opened",
        [Begin(next_outgoing_id=0, incoming_window=NULL, outgoing_window=1)],
        closes(INVALID_FIELD),
    ),
    Rule(
        "2.7.4",
        "no windows",
        "begun",
        [Flow(next_incoming_id=NULL, incoming_window=NULL, next_outgoing_id=NULL, outgoing_window=NULL)],
        closes(INVALID_FIELD),
    ),
    Rule("2.7.4", "echo", "begun", [flow(echo=True)], [Flow]),
    Rule("2.7.4", "unattached", "begun", [flow(handle=4)], [(End, UNATTACHED_HANDLE)]),
    Rule("2.7.5", "unattached", "begun", [transfer(handle=999)], [(End, UNATTACHED_HANDLE)]),
    Rule("2.7.7", "unattached", "begun", [Detach(4, True)], [(End, UNATTACHED_HANDLE)]),
    Rule(
        "2.5.4",
        "passed over after our end",
        "begun",
        [Detach(4), Detach(5), End(), Close()],
        [(End, UNATTACHED_HANDLE), Close, END],
    ),
    # -- part 2.6: links
    Rule("2.7.3", "no name", "begun", [Attach(NULL, 0, False)], closes(INVALID_FIELD)),
    Rule("2.7.3", "beyond handle-max", "begun", [Attach("l", UINT_MAX, False)], closes(FRAMING_ERROR)),
    Rule("2.7.3", "in use", "sending", [Attach("other", 0, False)], [(End, HANDLE_IN_USE)]),
    Rule(
        "2.6.3",
        "no such node",
        "begun",
        [Attach("l", 0, True, source=Source("nowhere"))],
        [Attach, (Detach, NOT_FOUND)],
    ),
    Rule("2.6.3", "no terminus", "begun", [Attach("l", 0, True)], [Attach, (Detach, INVALID_FIELD)]),
    Rule(
        "4.1",
        "a coordinator is sent to",
        "begun",
        [Attach("l", 0, True, target=Coordinator())],
        [Attach, (Detach, INVALID_FIELD)],
    ),
    Rule("4.1", "a coordinator", "begun", [Attach("l", 0, False, target=Coordinator())], [Attach, Flow]),
    Rule(
        "3.5.9",
        "a lifetime that is none",
        "begun",
        [
            Attach(
                "l",
                0,
                True,
                source=Source(dynamic=True, dynamic_node_properties={Symbol("lifetime-policy"): 7}),
            )
        ],
        [Attach, (Detach, INVALID_FIELD)],
    ),
    Rule(
        "3.5.3",
        "dynamic",
        "begun",
        [Attach("l", 0, True, source=Source(dynamic=True))],
        [Attach, (Detach, NOT_IMPLEMENTED)],
    ),
    Rule("2.6.4", "detached", "sending", [Detach(0)], [Detach]),
    Rule(
        "2.6.4",
        "a handle again",
        "sending",
        [Detach(0, True), Attach("l", 0, True, source=Source("nowhere"))],
        [Detach, Attach, (Detach, NOT_FOUND)],
    ),
    Rule("2.7.4", "echo of a link", "sending", [flow(handle=0, echo=True)], [Flow]),
    # -- part 2.6.12: messages that come
    Rule("2.6.12", "unsettled", "sending", [transfer()], [Disposition]),
    Rule("2.6.12", "settled", "sending", [transfer(settled=True), transfer(1)], [Disposition]),
    Rule("2.7.5", "no handle", "sending", [transfer(handle=NULL)], closes(INVALID_FIELD)),
    Rule("2.7.5", "no id", "sending", [transfer(NULL)], closes(INVALID_FIELD)),
    Rule("2.7.5", "no tag", "sending", [transfer(tag=NULL)], closes(INVALID_FIELD)),
    Rule("2.8.7", "a tag of 33 bytes", "sending", [transfer(tag=b"t" * 33)], closes(INVALID_FIELD)),
    Rule("2.8.7", "a tag of 32 bytes", "sending", [transfer(tag=b"t" * 32)], [Disposition]),
    Rule(
        "2.6.14",
        "in two frames",
        "sending",
        [transfer(more=True, payload=MESSAGE[:3]), transfer(NULL, MESSAGE[3:], NULL)],
        [Disposition],
    ),
    Rule(
        "2.6.14",
        "aborted",
        "sending",
        [transfer(more=True), transfer(NULL, b"", aborted=True), transfer(1)],
        [Disposition],
    ),
    Rule(
        "2.6.14",
        "interleaved",
        "sending",
        [transfer(more=True), transfer(1, more=True)],
        closes(INVALID_FIELD),
    ),
    Rule(
        "2.7.5",
        "another format",
        "sending",
        [transfer(more=True), transfer(NULL, message_format=1)],
        [(Detach, INVALID_FIELD)],
    ),
    Rule("2.7.5", "second on first", "sending", [transfer(rcv_settle_mode=1)], [(Detach, INVALID_FIELD)]),
    Rule("2.7.6", "of nothing", "sending", [Disposition(False, 7, 9, True), transfer()], [Disposition]),
    Rule("3.2", "no sections", "sending", [transfer(payload=b"")], [(Detach, NOT_IMPLEMENTED)]),
    # -- part 2.6.7: messages that go
    Rule(
        "2.6.8",
        "drained",
        "receiving",
        [flow(handle=0, link_credit=9, drain=True)],
        [Transfer, Transfer, Flow],
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=[f"{rule.section} {rule.says}" for rule in RULES])
def test_rule(line: Line, rule: Rule) -> None:
    getattr(line, rule.begins)()
    line.write(*rule.writes)
    line.expect(rule.answers)


def test_what_a_namespace_says_of_itself(line: Line) -> None:
    line.trusted()
    line.write(Open("peer", max_frame_size=512, channel_max=5, idle_time_out=1000), (5, BEGIN))
    opened, begun = line.expect([Open, Begin])
    assert opened.container_id
    assert opened.max_frame_size >= 512
    assert (begun.remote_channel, line.channel <= 5) == (5, True)
    line.write((5, line.attach(receives=True)))
    (attached,) = line.expect([Attach])
    assert (attached.name, attached.role, attached.initial_delivery_count) == ("link", False, 0)
    assert line.read_bytes(8) == HEARTBEAT  # within the peer's idle time-out (part 2.4.5)


def test_a_pipelined_handshake(line: Line) -> None:
    """Part 2.4.2: frames may be sent before the answers to those before them have come."""
    first = (SASL_FRAME, SaslInit(PLAIN, line._key.initial_response))
    line.write(SASL_HEADER, first, AMQP_HEADER, Open("peer"), BEGIN, Close())
    line.expect([SASL_HEADER, SaslMechanisms, SaslOutcome, AMQP_HEADER, Open, Begin, Close, END])


def test_numbers_of_frames_and_deliveries_begin_anew_after_the_last(line: Line) -> None:
    """Part 2.8.8 to 2.8.10: they are serial numbers of 32 bits."""
    line.opened()
    line.write(Begin(next_outgoing_id=UINT_MAX, incoming_window=9, outgoing_window=9))
    line.expect([Begin])
    line.write(line.attach(receives=False, initial_delivery_count=UINT_MAX))
    line.expect([Attach, Flow])
    for number in (UINT_MAX, 0, 1):
        assert line.send(transfer(number)).first == number
    line.write(flow(handle=0, echo=True))
    (state,) = line.expect([Flow])
    assert (state.next_incoming_id, state.delivery_count) == (2, 2)


def test_no_more_frames_are_written_than_the_window_takes(line: Line) -> None:
    """Part 2.5.6. The message takes three frames of 512 bytes."""
    line.sending()
    body = encode_value("v" * 1200)
    parts = [body[at : at + 400] for at in range(0, len(body), 400)]
    line.send(*(transfer(0, part, more=part is not parts[-1]) for part in parts))
    line.write(Detach(0, True))
    line.expect([Detach])
    line.write(line.attach(receives=True), flow(handle=0, link_credit=1, incoming_window=2))
    line.expect([Attach, Transfer])
    begins = line.payload
    (second,) = line.expect([Transfer])
    assert (second.more, second.delivery_id) == (True, 0)
    begins += line.payload
    line.write(flow(handle=0, next_incoming_id=2, incoming_window=0, link_credit=1, echo=True))
    line.expect([Flow])  # and no transfer before it
    line.write(flow(handle=0, next_incoming_id=2, incoming_window=9, link_credit=0, delivery_count=1))
    more = True
    while more:
        (frame,) = line.expect([Transfer])
        begins, more = begins + line.payload, frame.more
    assert begins.endswith(body)


@pytest.mark.parametrize("state", [Accepted(), Released(), Modified(True), Rejected(None)])
def test_an_outcome_that_is_not_settled_is_answered_with_a_settled_one(line: Line, state: Any) -> None:
    """Part 2.6.12."""
    line.receiving()
    line.write(flow(handle=0, link_credit=1))
    (got,) = line.expect([Transfer])
    line.write(Disposition(True, got.delivery_id, None, False, state))
    (answer,) = line.expect([Disposition])
    assert (answer.role, answer.first, answer.settled) == (False, got.delivery_id, True)
    assert type(answer.state) is type(state)


def test_a_link_of_the_same_name_takes_the_place_of_the_first(line: Line) -> None:
    """Part 2.6.1: the second attach succeeds, and the first is closed with a link error of stolen."""
    line.sending()
    line.write((1, BEGIN), (1, line.attach(receives=False)))
    line.expect([Begin])
    found = [line.read(), line.read()]
    while not any(isinstance(each, Detach) for each in found):
        found.append(line.read())
    (detach,) = [each for each in found if isinstance(each, Detach)]
    assert detach.error is not None
    assert (detach.handle, detach.closed, detach.error.condition) == (0, True, LINK_STOLEN)


def test_no_more_messages_come_than_there_is_credit_for(line: Line) -> None:
    """Part 2.6.7, 2.6.10."""
    line.receiving()
    line.write(flow(handle=0, link_credit=1))
    line.expect([Transfer])
    line.write(flow(handle=0, next_incoming_id=1, delivery_count=1, link_credit=0, echo=True))
    (state,) = line.expect([Flow])
    assert (state.delivery_count, state.link_credit) == (1, 0)
