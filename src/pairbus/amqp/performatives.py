"""What frames carry (parts 2.7, 3.4 and 3.5 of the standard), field by field in wire order."""

from dataclasses import field, replace
from typing import Any

from .composites import (
    ADDRESS,
    ANY,
    BINARY,
    BOOLEAN,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
    composite,
    nested,
)
from .types import Described

Symbols = tuple[str, ...]

# Values of snd-settle-mode and rcv-settle-mode.
SENDER_UNSETTLED, SENDER_SETTLED, SENDER_MIXED = 0, 1, 2
RECEIVER_FIRST, RECEIVER_SECOND = 0, 1

UINT_MAX = 0xFFFFFFFF


@composite(0x1D, "amqp:error:list", SYMBOL, STRING, MAP, frozen=True)
class AmqpError(Composite):
    """Why something ended. All three fields are always written: the Python SDK indexes into the list."""

    condition: str
    description: str = ""
    info: dict[Any, Any] = field(default_factory=dict)


_ERROR = nested("AmqpError")
_OUTCOME = nested("Accepted", "Rejected", "Released", "Modified")
_STATE = nested("Received", "Accepted", "Rejected", "Released", "Modified", "Declared", "TransactionalState")


@composite(0x23, "amqp:received:list", UINT, ULONG, frozen=True)
class Received(Composite):
    """How much of a delivery has arrived."""

    section_number: int
    section_offset: int


@composite(0x24, "amqp:accepted:list", frozen=True)
class Accepted(Composite):
    """The receiver has taken the message over."""


@composite(0x25, "amqp:rejected:list", _ERROR, frozen=True)
class Rejected(Composite):
    """The message is invalid, or (in Service Bus) dead-lettered."""

    error: AmqpError | None = None


@composite(0x26, "amqp:released:list", frozen=True)
class Released(Composite):
    """Given back untouched."""


@composite(0x27, "amqp:modified:list", BOOLEAN, BOOLEAN, MAP, frozen=True)
class Modified(Composite):
    """Given back with a note."""

    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: dict[Any, Any] | None = None


DeliveryOutcome = Accepted | Rejected | Released | Modified


@composite(0x31, "amqp:declare:list", ANY, frozen=True)
class Declare(Composite):
    """To a coordinator: begin a transaction."""

    global_id: Any = None


@composite(0x32, "amqp:discharge:list", BINARY, BOOLEAN, frozen=True)
class Discharge(Composite):
    """To a coordinator: end a transaction, in vain with `fail`."""

    txn_id: bytes
    fail: bool = False


@composite(0x33, "amqp:declared:list", BINARY, frozen=True)
class Declared(Composite):
    """A coordinator's answer: the transaction that it has begun."""

    txn_id: bytes


@composite(0x34, "amqp:transactional-state:list", BINARY, _OUTCOME, frozen=True)
class TransactionalState(Composite):
    """What is to hold if the transaction is discharged."""

    txn_id: bytes
    outcome: DeliveryOutcome | Described | None = None


DeliveryState = DeliveryOutcome | Received | Declared | TransactionalState | Described

# Outcomes without fields never differ, so one of each is enough.
ACCEPTED = Accepted()
RELEASED = Released()


@composite(
    0x28, "amqp:source:list", ADDRESS, UINT, SYMBOL, UINT, BOOLEAN, MAP, SYMBOL, MAP, _STATE, SYMBOLS, SYMBOLS
)
class Source(Composite):
    """Where messages come from."""

    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    distribution_mode: str | None = None
    filter: dict[Any, Any] | None = None
    default_outcome: DeliveryState | None = None
    outcomes: Symbols | None = None
    capabilities: Symbols | None = None


@composite(0x29, "amqp:target:list", ADDRESS, UINT, SYMBOL, UINT, BOOLEAN, MAP, SYMBOLS)
class Target(Composite):
    """Where messages go to."""

    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Any, Any] | None = None
    capabilities: Symbols | None = None


@composite(0x30, "amqp:coordinator:list", SYMBOLS)
class Coordinator(Composite):
    """The target of a link that controls transactions."""

    capabilities: Symbols | None = None


@composite(
    0x10, "amqp:open:list", STRING, STRING, UINT, USHORT, UINT, SYMBOLS, SYMBOLS, SYMBOLS, SYMBOLS, MAP
)
class Open(Composite):
    """First frame of each side; idle_time_out is in milliseconds."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 65535
    idle_time_out: int | None = None
    outgoing_locales: Symbols | None = None
    incoming_locales: Symbols | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: dict[Any, Any] | None = None


@composite(0x11, "amqp:begin:list", USHORT, UINT, UINT, UINT, UINT, SYMBOLS, SYMBOLS, MAP, kw_only=True)
class Begin(Composite):
    """Begins a session; remote_channel is given by the side that answers."""

    remote_channel: int | None = None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = UINT_MAX
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: dict[Any, Any] | None = None


@composite(
    0x12,
    "amqp:attach:list",
    *(
        STRING,
        UINT,
        BOOLEAN,
        UBYTE,
        UBYTE,
        nested("Source"),
        nested("Target", "Coordinator"),
        MAP,
        BOOLEAN,
        UINT,
    ),
    *(ULONG, SYMBOLS, SYMBOLS, MAP),
)
class Attach(Composite):
    """Attaches a link; role is false for its sender, true for its receiver."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = SENDER_MIXED
    rcv_settle_mode: int = RECEIVER_FIRST
    source: Source | Described | None = None
    target: Target | Coordinator | Described | None = None
    unsettled: dict[Any, Any] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Symbols | None = None
    desired_capabilities: Symbols | None = None
    properties: dict[Any, Any] | None = None


@composite(
    0x13,
    "amqp:flow:list",
    UINT,
    UINT,
    UINT,
    UINT,
    UINT,
    UINT,
    UINT,
    UINT,
    BOOLEAN,
    BOOLEAN,
    MAP,
    kw_only=True,
)
class Flow(Composite):
    """State of a session's windows and, with a handle, of a link's credit."""

    next_incoming_id: int | None = None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: dict[Any, Any] | None = None


@composite(
    0x14,
    "amqp:transfer:list",
    *(UINT, UINT, BINARY, UINT, BOOLEAN, BOOLEAN, UBYTE, _STATE, BOOLEAN, BOOLEAN, BOOLEAN),
)
class Transfer(Composite):
    """A message or a part of one; the payload follows the performative in its frame."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@composite(0x15, "amqp:disposition:list", BOOLEAN, UINT, UINT, BOOLEAN, _STATE, BOOLEAN)
class Disposition(Composite):
    """State and settlement of deliveries first to last."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False


@composite(0x16, "amqp:detach:list", UINT, BOOLEAN, _ERROR)
class Detach(Composite):
    """Detaches a link, for good if closed."""

    handle: int
    closed: bool = False
    error: AmqpError | None = None


@composite(0x17, "amqp:end:list", _ERROR)
class End(Composite):
    """Ends a session."""

    error: AmqpError | None = None


@composite(0x18, "amqp:close:list", _ERROR)
class Close(Composite):
    """Last frame of each side."""

    error: AmqpError | None = None


def with_shorter_error(performative: Composite, excess: int) -> Composite:
    """The same, with so many bytes less in the description of its error, if it has one."""
    if isinstance(performative, Detach | End | Close) and performative.error is not None:
        return replace(performative, error=_shortened(performative.error, excess))
    if isinstance(performative, Disposition) and isinstance(performative.state, Rejected):
        error = performative.state.error
        return replace(performative, state=Rejected(error and _shortened(error, excess)))
    return performative


def _shortened(error: AmqpError, excess: int) -> AmqpError:
    text = error.description.encode()
    return replace(error, description=text[: max(0, len(text) - excess)].decode(errors="ignore"))


@composite(0x40, "amqp:sasl-mechanisms:list", SYMBOLS)
class SaslMechanisms(Composite):
    """What the server offers."""

    sasl_server_mechanisms: Symbols = ()


@composite(0x41, "amqp:sasl-init:list", SYMBOL, BINARY, STRING)
class SaslInit(Composite):
    """The client's choice. The response may hold a password and stays out of repr."""

    mechanism: str
    initial_response: bytes | None = field(default=None, repr=False)
    hostname: str | None = None


@composite(0x42, "amqp:sasl-challenge:list", BINARY)
class SaslChallenge(Composite):
    """A question of the server; none of our mechanisms asks one."""

    challenge: bytes = field(repr=False)


@composite(0x43, "amqp:sasl-response:list", BINARY)
class SaslResponse(Composite):
    """The answer to a challenge."""

    response: bytes = field(repr=False)


@composite(0x44, "amqp:sasl-outcome:list", UBYTE, BINARY)
class SaslOutcome(Composite):
    """0 ok, 1 authentication failed, 2 to 4 the system failed."""

    code: int
    additional_data: bytes | None = None
