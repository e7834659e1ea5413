"""What a peer might send: conversations that are nearly right, from a seed, and what once broke something.

Frames are made of performatives whose fields are at times something else. So they reach far behind the first
check, where random bytes never come.
"""

import os
import random
import uuid
from typing import Any

from pairbus.amqp.composites import Composite, encode_composite
from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.frames import AMQP_HEADER, encode_frame, pack_header
from pairbus.amqp.message import (
    Header,
    Properties,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
    encode_value,
)
from pairbus.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from pairbus.amqp.types import Array, Described, Int, Symbol, Timestamp, UInt, ULong

__all__ = ["BEGUN", "CORPUS", "Grammar", "dice_of", "rounds"]

ADDRESSES = ["orders", "$cbs", "orders/$management", "amqps://127.0.0.1:1/orders", "orders/$DeadLetterQueue"]
OPERATIONS = [
    "peek-message",
    "schedule-message",
    "cancel-scheduled-message",
    "receive-by-sequence-number",
    "renew-lock",
    "update-disposition",
    "renew-session-lock",
    "get-session-state",
    "set-session-state",
    "get-message-sessions",
    "add-rule",
    "remove-rule",
    "enumerate-rules",
]
KEYS = [
    "message-count",
    "from-sequence-number",
    "sequence-numbers",
    "lock-tokens",
    "messages",
    "message",
    "session-id",
    "session-state",
    "skip",
    "top",
    "disposition-status",
    "receiver-settle-mode",
    "rule-name",
    "rule-description",
    "sql-filter",
    "expression",
    "properties-to-modify",
    "last-updated-time",
]
_NUMBERS = [0, 1, 2, 255, 256, 65535, (1 << 31) - 1, (1 << 32) - 1]

BEGUN = encode_frame(0, Open("fuzz")) + encode_frame(
    0, Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)
)


def rounds(short: int) -> int:
    """How many cases a test tries: few, and as many more as `PAIRBUS_FUZZ_ROUNDS` says in the long form."""
    return short * int(os.environ.get("PAIRBUS_FUZZ_ROUNDS", "1"))


def dice_of(name: str) -> random.Random:
    """Dice for a test, the same at each run; `PAIRBUS_FUZZ_SEED` gives others."""
    seed = os.environ.get("PAIRBUS_FUZZ_SEED", "0")
    return random.Random(f"{name}:{seed}")


class Grammar:
    """Makes frames and messages from dice."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def conversation(self, frames: int) -> bytes:
        """Frames behind a handshake, at times with a few bytes that are damaged."""
        data = bytearray(BEGUN + b"".join(self.frame() for _ in range(frames)))
        if self.dice.random() < 0.2:
            for _ in range(self.dice.randint(1, 3)):
                data[self.dice.randrange(len(data))] = self.dice.randrange(256)
        return bytes(data)

    def frame(self) -> bytes:
        """A frame whose fields are at times something else."""
        dice = self.dice
        performative, payload = self._performative()
        described, _ = decode(encode_composite(performative))
        fields = described.value
        for place in range(len(fields)):
            if dice.random() < 0.08:
                fields[place] = self.value()
        if dice.random() < 0.05:
            fields += [self.value() for _ in range(dice.randint(1, 12))]
        body = encode(Described(described.descriptor, fields))
        channel = 0 if dice.random() < 0.9 else dice.choice([1, 7, 65535])
        return pack_header(8 + len(body) + len(payload), 2, 0, channel) + body + payload

    def _performative(self) -> tuple[Composite, bytes]:
        dice = self.dice
        handle, number = dice.choice([0, 0, 1, 2, 255]), dice.choice(_NUMBERS)
        made: list[tuple[Composite, bytes]] = [
            (Begin(next_outgoing_id=number, incoming_window=number, outgoing_window=number), b""),
            (self._attach(handle), b""),
            (self._attach(handle), b""),
            (Transfer(handle, dice.randrange(50), dice.randbytes(4), 0, dice.random() < 0.5), self.message()),
            (Transfer(handle, dice.randrange(50), b"t", 0, more=True), self.message()),
            (Transfer(handle, dice.randrange(50), b"t", 0, state=self._state()), self.message()),
            (
                Flow(
                    next_incoming_id=number,
                    incoming_window=dice.choice(_NUMBERS),
                    next_outgoing_id=number,
                    outgoing_window=1,
                    handle=dice.choice([None, handle]),
                    delivery_count=dice.choice([None, 0, number]),
                    link_credit=dice.choice(_NUMBERS),
                    drain=dice.random() < 0.3,
                    echo=dice.random() < 0.3,
                ),
                b"",
            ),
            (Disposition(dice.random() < 0.8, number, dice.choice(_NUMBERS), True, self._state()), b""),
            (Detach(handle, dice.random() < 0.5), b""),
            (End(), b"") if dice.random() < 0.2 else (Detach(handle), b""),
            (Close(), b"") if dice.random() < 0.05 else (Detach(handle), b""),
        ]
        return dice.choice(made)

    def _attach(self, handle: int) -> Attach:
        dice = self.dice
        address, receives = dice.choice(ADDRESSES), dice.random() < 0.5
        filters = {Symbol("com.microsoft:session-filter"): dice.choice([None, "s", self.value()])}
        return Attach(
            f"link-{dice.randrange(5)}",
            handle,
            receives,
            source=Source(address, filter=filters if dice.random() < 0.2 else None),
            target=Target(address) if dice.random() < 0.9 else Coordinator(),
            initial_delivery_count=None if receives else 0,
            properties={Symbol("com.microsoft:timeout"): self.value()} if dice.random() < 0.2 else None,
        )

    def _state(self) -> Any:
        modified = Modified(True, False, {"k": self.value()})
        in_transaction = TransactionalState(b"txn", self.dice.choice([None, ACCEPTED, modified]))
        return self.dice.choice([None, ACCEPTED, Rejected(None), modified, in_transaction, Declared(b"txn")])

    def message(self) -> bytes:
        """A message, a request, a batch, or something like them."""
        dice = self.dice
        parts = [
            encode_header(Header(ttl=dice.choice([None, 0, 1000]))),
            b"\x00\x53\x72" + encode({Symbol("x-opt-partition-key"): self.value()}),
            encode_properties(Properties(message_id=dice.choice(["id", ULong(1), uuid.UUID(int=3), b"x"]))),
            encode_application_properties(self.request_properties()),
            encode_value(self.request()) if dice.random() < 0.6 else encode_data(dice.randbytes(20)),
        ]
        kept = [part for part in parts if dice.random() < 0.85]
        if dice.random() < 0.1:
            dice.shuffle(kept)
        data = b"".join(kept)
        return data if dice.random() < 0.9 else data[: dice.randrange(len(data) + 1)]

    def request_properties(self) -> dict[Any, Any]:
        name = f"com.microsoft:{self.dice.choice(OPERATIONS)}"
        wanted: list[Any] = [name, name, name, "put-token", self.value()]
        return {"operation": self.dice.choice(wanted), "name": self.dice.choice(ADDRESSES), "type": "jwt"}

    def request(self) -> Any:
        """The body of a request: the right keys, and all kinds of things below them."""
        if self.dice.random() < 0.1:
            return self.value()
        if self.dice.random() < 0.1:  # to a coordinator: declare, discharge
            return Described(ULong(self.dice.choice([0x31, 0x32])), self.dice.choice([[], [b"txn", True], 1]))
        return {key: self.value() for key in self.dice.sample(KEYS, self.dice.randint(0, 6))}

    def value(self, depth: int = 0) -> Any:
        """Any AMQP value."""
        dice = self.dice
        flat: list[Any] = [
            None,
            True,
            dice.choice(_NUMBERS),
            -(1 << 63),
            UInt(dice.choice(_NUMBERS)),
            ULong((1 << 64) - 1),
            Int(-1),
            Timestamp(dice.choice([0, -1, 1 << 62])),
            float("nan"),
            float("inf"),
            "",
            "text\u0000\U0001f600",
            Symbol("symbol"),
            b"",
            dice.randbytes(16),
            uuid.UUID(int=dice.getrandbits(128)),
            "completed",
            "x" * dice.choice([1, 300, 5000]),
        ]
        if depth < 3 and dice.random() < 0.3:
            size = dice.choice([0, 1, 2, 5])
            return dice.choice(
                [
                    [self.value(depth + 1) for _ in range(size)],
                    {dice.choice(KEYS): self.value(depth + 1) for _ in range(size)},
                    Array([dice.choice(_NUMBERS) for _ in range(size)], int),
                    Array([uuid.UUID(int=number) for number in range(size)], uuid.UUID),
                    Described(ULong(0x000001370000006), [self.value(depth + 1)]),
                ]
            )
        return dice.choice(flat)


def _colliding_keys(count: int) -> bytes:
    """A map of uuids whose hashes are all the same, which no codec of ours writes any more."""
    pairs = b"".join(
        b"\x98" + (number * ((1 << 61) - 1)).to_bytes(16, "big") + b"\x40" for number in range(count)
    )
    return b"\xd1" + (len(pairs) + 4).to_bytes(4, "big") + (2 * count).to_bytes(4, "big") + pairs


def _open_with(properties: bytes) -> bytes:
    fields = encode("fuzz") + b"\x40" * 8 + properties
    body = b"\x00\x53\x10\xd0" + (len(fields) + 4).to_bytes(4, "big") + (10).to_bytes(4, "big") + fields
    return pack_header(8 + len(body), 2, 0, 0) + body


def _attaches(count: int) -> bytes:
    many: dict[object, object] = {Symbol(str(number)): [] for number in range(60)}
    return b"".join(
        encode_frame(
            0, Attach(f"{number}", number, False, source=Source("q", filter=many), initial_delivery_count=0)
        )
        for number in range(count)
    )


_FLOW = encode_frame(0, Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True))

CORPUS: dict[str, bytes] = {
    "colliding keys": _open_with(_colliding_keys(150)),
    "many colliding keys": _open_with(_colliding_keys(3000)),
    "an array of nothing": _open_with(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"),
    "a map that claims too much": _open_with(b"\xd1\x00\x00\x00\x04\xff\xff\xff\xfe"),
    "many links": BEGUN + _attaches(150),
    "links that are never answered": BEGUN + _attaches(10) * 6,
    "echoes": BEGUN + _FLOW * 1000,
    "an idle time-out of a millisecond": encode_frame(0, Open("fuzz", idle_time_out=1)),
    "a frame that never ends": BEGUN + b"\x00\x00\xff\xff\x02\x00\x00\x00" + bytes(30_000),
    "a message that never ends": BEGUN
    + _attaches(1)
    + encode_frame(0, Transfer(0, 0, b"t", more=True), bytes(8000)) * 20,
    "settlements of what nobody knows": BEGUN
    + encode_frame(0, Disposition(True, 1_000_000, 2_000_000_000, True, ACCEPTED)) * 1000,
}
"""What once stopped or filled a broker, without a token; behind the header of AMQP."""

CORPUS = {name: AMQP_HEADER + data for name, data in CORPUS.items()}
