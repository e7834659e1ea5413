"""The short way for the word that a message was accepted means what the long way means."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.events import LinkAttached, Settled
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.performatives import ACCEPTED, AmqpError, End, Rejected
from tests.amqp.peer import Peer
from tests.examples import examples

SENT = 12
_ACCEPTED, _REJECTED = b"\x00\x53\x24\x45", b"\x00\x53\x25\x45"
TAILS = {
    "settled": b"\x41" + _ACCEPTED,
    "with all fields": b"\x41" + _ACCEPTED + b"\x42",
    "not settled": b"\x42" + _ACCEPTED,
    "rejected": b"\x41" + _REJECTED,
    "no outcome": b"\x41\x40",
}
_FIELDS = {"settled": 5, "with all fields": 6, "not settled": 5, "rejected": 5, "no outcome": 5}


def long_id(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def disposition(
    first: int, last: int | None, tail: str = "settled", *, role: bool = True, channel: int = 0
) -> bytes:
    """A frame with its ids in their long form."""
    fields = (b"\x41" if role else b"\x42") + long_id(first)
    fields += (b"\x40" if last is None else long_id(last)) + TAILS[tail]
    listed = b"\x00\x53\x15\xc0" + bytes([len(fields) + 1, _FIELDS[tail]]) + fields
    return (8 + len(listed)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + listed


class Listener:
    """A machine that has sent some messages, and what it was told of them; with `is_short` by the short way
    where that is open.
    """

    def __init__(self, *, is_short: bool) -> None:
        self.peer = Peer().open()
        self.is_short = is_short
        self.told: list[object] = []
        self.shortcuts = 0
        self.begin()

    def begin(self) -> None:
        """A session with messages on their way."""
        self.peer.begin(window=100).attach(receiver=True, handle=0, name="out")
        self.link = self.peer.event(LinkAttached).link
        for number in range(SENT):
            self.link.send(b"m", b"%d" % number)
        self.peer.collect()

    def hear(self, data: bytes) -> None:
        machine = self.peer.machine
        accepted = machine.take_acceptance(data, 1.0) if self.is_short else None
        if accepted is not None:
            self.shortcuts += 1
            self.told.append((accepted[0].name, [accepted[1]], ACCEPTED, True))
            return
        for event in machine.receive_data(data, 1.0):
            match event:
                case Settled(link, ids, state, settled):
                    self.told.append((link.name, ids, state, settled))
                case _:
                    self.told.append(type(event))

    @property
    def unsettled(self) -> list[int]:
        return list(self.link.session.unsettled_sent)


FRAMES = st.builds(
    disposition,
    st.integers(0, SENT),
    st.none() | st.integers(0, SENT),
    st.sampled_from(sorted(TAILS)),
    role=st.sampled_from([True, True, True, False]),
    channel=st.sampled_from([0, 0, 0, 0, 7]),
)
USUAL = st.integers(0, SENT).flatmap(
    lambda number: st.sampled_from(
        [
            disposition(number, number),
            disposition(number, None),
            disposition(number, number, "with all fields"),
        ]
    )
)
READS = st.lists(FRAMES | USUAL, min_size=1, max_size=3).map(b"".join) | USUAL


@settings(max_examples=examples(120))
@given(st.lists(READS, max_size=15), st.none() | st.integers(1, 40))
def test_both_ways_tell_the_same(reads: list[bytes], cut: int | None) -> None:
    if cut is not None:  # frames in pieces, as a socket may give them
        whole = b"".join(reads)
        reads = [whole[at : at + cut] for at in range(0, len(whole), cut)]
    short, long = Listener(is_short=True), Listener(is_short=False)
    for read in reads:
        short.hear(read)
        long.hear(read)
    assert short.told == long.told
    assert short.unsettled == long.unsettled


def test_what_is_said_over_and_over_takes_the_short_way() -> None:
    for last in (True, False):
        listener = Listener(is_short=True)
        for number in range(SENT):
            listener.hear(disposition(number, number if last else None))
        assert listener.shortcuts >= SENT - 2, "the first tells what it means, the second what it looks like"
        assert listener.unsettled == []


def test_an_answer_that_refuses_is_never_taken_for_one_that_accepts() -> None:
    listener = Listener(is_short=True)
    for number in range(3):
        listener.hear(disposition(number, number))
    listener.hear(disposition(3, 3, "rejected"))
    listener.hear(disposition(4, 5))
    assert listener.told[-2:] == [("out", [3], Rejected(), True), ("out", [4, 5], ACCEPTED, True)]


def test_an_id_that_is_settled_already_is_passed_over() -> None:
    listener = Listener(is_short=True)
    for number in (0, 1, 2, 2, 2):
        listener.hear(disposition(number, number))
    assert [told[1] for told in listener.told if isinstance(told, tuple)] == [[0], [1], [2]]


def test_bytes_within_another_frame_are_no_answer() -> None:
    listener = Listener(is_short=True)
    for number in range(3):
        listener.hear(disposition(number, number))
    inner = disposition(3, 3)
    # A heart-beat, whose extended header nobody has to understand.
    header = b"\x00\x00" + inner
    listener.hear((8 + len(header)).to_bytes(4, "big") + bytes([2 + len(header) // 4, 0, 0, 0]) + header[:2])
    listener.hear(inner)
    assert listener.unsettled == list(range(3, SENT))
    listener.hear(inner)
    assert listener.unsettled == list(range(4, SENT))


def test_a_session_that_is_over_is_told_nothing() -> None:
    listener = Listener(is_short=True)
    for number in range(3):
        listener.hear(disposition(number, number))
    machine = listener.peer.machine
    listener.hear(encode_frame(0, End(AmqpError("c", "d"))))
    assert machine.take_acceptance(disposition(3, 3), 2.0) is None


def test_a_session_that_follows_on_the_same_channel_takes_the_short_way_too() -> None:
    listener = Listener(is_short=True)
    for number in range(3):
        listener.hear(disposition(number, number))
    listener.hear(encode_frame(0, End()))
    listener.begin()
    before = listener.shortcuts
    for number in range(SENT):
        listener.hear(disposition(number, number))
    assert listener.shortcuts >= before + SENT - 2
    assert listener.unsettled == []


def test_it_counts_as_a_sign_of_life() -> None:
    listener = Listener(is_short=True)
    machine = listener.peer.machine
    machine.idle_timeout = 10.0
    for number in range(3):
        listener.hear(disposition(number, number))
    before = machine.next_deadline
    assert machine.take_acceptance(disposition(3, 3), 5.0) is not None
    assert before is not None
    assert machine.next_deadline == before + 4.0
