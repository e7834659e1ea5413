"""Local transactions: what is sent and settled in one happens when it is discharged, all of it or nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus import conditions
from pairbus.amqp.composites import encode_composite
from pairbus.amqp.events import LinkAttached, LinkDetached, LinkFlowed, Settled, TransferReceived
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.link import Link
from pairbus.amqp.message import VALUE_MARK, encode_annotations, encode_data, encode_value, scan
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    Coordinator,
    Declare,
    Declared,
    DeliveryOutcome,
    DeliveryState,
    Discharge,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Symbol
from pairbus.broker import Broker, NamespaceHandle, OperationKind, QueueSettings
from pairbus.broker.links import transactions
from pairbus.clock import ManualClock
from tests.waiting import wait_until

from .keys import key_of, signature
from .raw import RawClient

DEAD = "orders/$DeadLetterQueue"


def request(asked: Declare | Discharge) -> bytes:
    return VALUE_MARK + encode_composite(asked)


class Client(RawClient):
    """A client with transactions."""

    def coordinate(self, source: Source | None = None) -> Link:
        link = self.machine.begin().attach(
            name="coordinator",
            role_sender=True,
            source=source or Source(),
            target=Coordinator(("amqp:local-transactions",)),
        )
        self.flush()
        self.await_event(LinkAttached)
        return link

    def transfer(
        self, link: Link, payload: bytes, state: DeliveryState | None, *, settled: bool = False
    ) -> None:
        """Send a message that says something of itself."""
        session = link.session
        delivery_id = link.send(payload, tag=b"tag", settled=settled) if state is None else -1
        if delivery_id < 0:
            delivery_id = session.next_delivery_id
            session.next_delivery_id += 1
            if not settled:
                session.unsettled_sent[delivery_id] = link
            frame = Transfer(link.handle, delivery_id, b"tag", 0, settled, state=state)
            session.write(encode_frame(session.channel, frame, payload))
        self.flush()

    def ask(self, coordinator: Link, asked: Declare | Discharge) -> DeliveryState | None:
        if not coordinator.credit:
            self.await_event(LinkFlowed)
        coordinator.send(request(asked), tag=b"tag")
        self.flush()
        return self.await_event(Settled).state

    def declare(self, coordinator: Link) -> bytes:
        declared = self.ask(coordinator, Declare())
        assert isinstance(declared, Declared)
        return declared.txn_id

    def send_in(self, txn: bytes, link: Link, text: str) -> DeliveryState | None:
        self.transfer(link, encode_data(text.encode()), TransactionalState(txn))
        return self.await_event(Settled).state

    def settle_in(self, txn: bytes, delivery: TransferReceived, outcome: DeliveryOutcome) -> object:
        delivery.link.settle(delivery.delivery_id, TransactionalState(txn, outcome), settled=False)
        self.flush()
        return self.await_event(Settled).state


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time())


@pytest.fixture(params=["memory", "disk"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "disk" else None


@pytest.fixture
def broker(clock: ManualClock, data_dir: Path | None, certificate: tuple[Path, Path]) -> Iterator[Broker]:
    with Broker({"contoso": 0}, clock=clock, data_dir=data_dir, certificate=certificate) as broker:
        broker["contoso"].create_queue("orders", QueueSettings(lock_duration=60.0))
        broker["contoso"].create_queue("bills")
        yield broker


@pytest.fixture
def contoso(broker: Broker) -> NamespaceHandle:
    return broker["contoso"]


@pytest.fixture
def client(contoso: NamespaceHandle) -> Iterator[Client]:
    name, key = key_of(contoso)
    with Client.connected(contoso.port, SaslClient.plain(name, key)) as client:
        assert isinstance(client, Client)
        yield client


def counts(contoso: NamespaceHandle) -> tuple[int, int, int]:
    """In the two queues, and in the dead letters of the first, which its own number includes."""
    dead = contoso.message_count(DEAD)
    return contoso.message_count("orders") - dead, contoso.message_count("bills"), dead


def body_of(event: TransferReceived) -> bytes:
    (section,) = scan(event.payload).data_sections()
    return bytes(section)


def condition_of(state: object) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition


def deliveries(client: Client, sender: Link, count: int) -> list[TransferReceived]:
    """Messages that were sent and are locked."""
    for number in range(count):
        client.send(sender, encode_data(b"%d" % number))
    receiver = client.attach("orders", sends=False)
    receiver.flow(count)
    client.flush()
    return [client.await_event(TransferReceived) for _ in range(count)]


def test_what_is_sent_comes_with_the_discharge(client: Client, contoso: NamespaceHandle) -> None:
    orders, bills = client.attach("orders", sends=True), client.attach("bills", sends=True)
    coordinator = client.coordinate()
    txn = client.declare(coordinator)
    assert client.send_in(txn, orders, "one") == TransactionalState(txn, ACCEPTED)
    assert client.send_in(txn, bills, "two") == TransactionalState(txn, ACCEPTED)
    assert counts(contoso) == (0, 0, 0)
    assert client.ask(coordinator, Discharge(txn)) == ACCEPTED
    assert counts(contoso) == (1, 1, 0)
    assert body_of(client.receive(client.attach("bills", sends=False))) == b"two"


def test_what_is_rolled_back_has_not_happened(client: Client, contoso: NamespaceHandle) -> None:
    orders, coordinator = client.attach("orders", sends=True), client.coordinate()
    (delivery,) = deliveries(client, orders, 1)
    txn = client.declare(coordinator)
    client.send_in(txn, orders, "one")
    client.settle_in(txn, delivery, ACCEPTED)
    assert client.ask(coordinator, Discharge(txn, True)) == ACCEPTED
    assert counts(contoso) == (1, 0, 0)
    assert condition_of(client.ask(coordinator, Discharge(txn))) == conditions.TRANSACTION_UNKNOWN


@pytest.mark.parametrize(
    ("outcome", "left", "dead"),
    [
        (ACCEPTED, 0, 0),
        (RELEASED, 1, 0),
        (Modified(True, False, {Symbol("why"): "so"}), 1, 0),
        (Modified(True, True), 1, 0),
        (Rejected(AmqpError(conditions.DEAD_LETTER, "", {Symbol("DeadLetterReason"): "bad"})), 0, 1),
    ],
    ids=["complete", "release", "abandon", "defer", "dead-letter"],
)
def test_every_settlement_waits_for_the_discharge(
    client: Client, contoso: NamespaceHandle, outcome: DeliveryOutcome, left: int, dead: int
) -> None:
    sender, coordinator = client.attach("orders", sends=True), client.coordinate()
    (delivery,) = deliveries(client, sender, 1)
    txn = client.declare(coordinator)
    echo = client.settle_in(txn, delivery, outcome)
    assert isinstance(echo, TransactionalState)
    assert type(echo.outcome) is type(outcome)
    assert counts(contoso) == (1, 0, 0)
    assert client.ask(coordinator, Discharge(txn)) == ACCEPTED
    assert counts(contoso) == (left, 0, dead)


def test_a_lost_lock_rolls_all_back(
    client: Client, broker: Broker, contoso: NamespaceHandle, clock: ManualClock
) -> None:
    sender, bills, coordinator = (
        client.attach("orders", sends=True),
        client.attach("bills", sends=True),
        client.coordinate(),
    )
    first, second = deliveries(client, sender, 2)
    txn = client.declare(coordinator)
    client.send_in(txn, bills, "never")
    client.settle_in(txn, first, ACCEPTED)
    client.settle_in(txn, second, ACCEPTED)
    clock.advance(61.0)
    broker.tick()
    assert condition_of(client.ask(coordinator, Discharge(txn))) == conditions.TRANSACTION_ROLLBACK
    assert counts(contoso) == (2, 0, 0)


def test_messages_without_room_for_all_roll_all_back(client: Client, contoso: NamespaceHandle) -> None:
    contoso.create_queue("small", QueueSettings(max_size_in_megabytes=1024))
    small, bills, coordinator = (
        client.attach("small", sends=True),
        client.attach("bills", sends=True),
        client.coordinate(),
    )
    txn = client.declare(coordinator)
    client.send_in(txn, bills, "never")
    client.send_in(txn, small, "never")
    contoso.delete_queue("small")
    assert condition_of(client.ask(coordinator, Discharge(txn))) == conditions.TRANSACTION_ROLLBACK
    assert counts(contoso) == (0, 0, 0)


@pytest.mark.parametrize("is_in_transaction", [False, True])
@pytest.mark.parametrize(
    "large",
    [
        Modified(True, False, {Symbol("note"): "x" * 20_000}),
        Rejected(AmqpError(conditions.DEAD_LETTER, "", {Symbol("note"): "x" * 20_000})),
        Rejected(AmqpError(conditions.DEAD_LETTER, "", {Symbol("DeadLetterReason"): "x" * 20_000})),
        Rejected(AmqpError(conditions.DEAD_LETTER, "", {Symbol("DeadLetterErrorDescription"): "x" * 20_000})),
    ],
    ids=["abandoned", "dead", "reason", "description"],
)
def test_properties_that_find_no_room_are_refused(
    client: Client,
    broker: Broker,
    contoso: NamespaceHandle,
    large: DeliveryOutcome,
    is_in_transaction: bool,
) -> None:
    """One frame may write tens of kilobytes into each of a hundred thousand messages."""
    first, second = deliveries(client, client.attach("orders", sends=True), 2)
    queue = broker._hosts["contoso"].engine.get_queue("orders")
    broker.call(lambda: setattr(queue.space, "limit", queue.size_bytes + 1000))
    if is_in_transaction:
        coordinator = client.coordinate()
        txn = client.declare(coordinator)
        client.settle_in(txn, first, ACCEPTED)
        client.settle_in(txn, second, large)
        assert condition_of(client.ask(coordinator, Discharge(txn))) == conditions.TRANSACTION_ROLLBACK
    else:
        second.link.settle(second.delivery_id, large, settled=False)
        client.flush()
        assert condition_of(client.await_event(Settled).state) == conditions.RESOURCE_LIMIT
        kind = OperationKind.ABANDON if isinstance(large, Modified) else OperationKind.DEAD_LETTER
        assert contoso.count(kind) == 1  # as asked for
        # A short reason always fits, however full the queue is: else nobody could empty it.
        reason = {Symbol("DeadLetterReason"): "malformed", Symbol("DeadLetterErrorDescription"): "x" * 4096}
        refused = Rejected(AmqpError(conditions.DEAD_LETTER, "", reason))
        first.link.settle(first.delivery_id, refused, settled=False)
        client.flush()
        assert isinstance(client.await_event(Settled).state, Rejected)
        assert counts(contoso) == (1, 0, 1)


@pytest.mark.parametrize("way", ["coordinator", "connection", "time"])
def test_a_transaction_ends_with_what_it_was_declared_on(
    client: Client, broker: Broker, contoso: NamespaceHandle, clock: ManualClock, way: str
) -> None:
    sender, coordinator = client.attach("orders", sends=True), client.coordinate()
    txn = client.declare(coordinator)
    client.send_in(txn, sender, "never")
    host = broker._hosts["contoso"]
    assert len(host.transactions) == 1
    if way == "coordinator":
        coordinator.detach()
        client.flush()
        client.await_event(LinkDetached)
        assert condition_of(client.send_in(txn, sender, "late")) == conditions.TRANSACTION_UNKNOWN
    elif way == "connection":
        client.vanish()
    else:
        clock.advance(transactions.LONGEST + 1)
        broker.tick()
        assert condition_of(client.ask(coordinator, Discharge(txn))) == conditions.TRANSACTION_UNKNOWN
    wait_until(lambda: broker.call(lambda: len(host.transactions)) == 0)
    assert broker.call(lambda: host.burdens.unfinished._total) == 0
    assert counts(contoso) == (0, 0, 0)


def test_only_the_connection_that_declared_it_knows_it(client: Client, contoso: NamespaceHandle) -> None:
    txn = client.declare(client.coordinate())
    name, key = key_of(contoso)
    with Client.connected(contoso.port, SaslClient.plain(name, key)) as other:
        assert isinstance(other, Client)
        sender = other.attach("orders", sends=True)
        assert condition_of(other.send_in(txn, sender, "mine")) == conditions.TRANSACTION_UNKNOWN
        assert condition_of(other.ask(other.coordinate(), Discharge(txn))) == conditions.TRANSACTION_UNKNOWN


def test_limits(client: Client, contoso: NamespaceHandle) -> None:
    sender, coordinator = client.attach("orders", sends=True), client.coordinate()
    txn = client.declare(coordinator)
    for _ in range(transactions.MOST_MESSAGES):
        assert isinstance(client.send_in(txn, sender, "x"), TransactionalState)
    assert condition_of(client.send_in(txn, sender, "x")) == conditions.NOT_ALLOWED
    for _ in range(transactions.MOST_DECLARED - 1):
        client.declare(coordinator)
    assert condition_of(client.ask(coordinator, Declare())) == conditions.RESOURCE_LIMIT
    assert client.ask(coordinator, Discharge(txn)) == ACCEPTED
    assert contoso.message_count("orders") == transactions.MOST_MESSAGES
    client.declare(coordinator)


def test_a_stranger_declares_a_few(broker: Broker, contoso: NamespaceHandle) -> None:
    """As clients do whose first link is the coordinator's; each counts, though nothing is in it."""
    with Client.connected(contoso.port, SaslClient.anonymous()) as stranger:
        assert isinstance(stranger, Client)
        coordinator = stranger.coordinate()
        for _ in range(transactions.MOST_OF_STRANGER):
            stranger.declare(coordinator)
        assert condition_of(stranger.ask(coordinator, Declare())) == conditions.RESOURCE_LIMIT
        held = broker._hosts["contoso"].burdens.unfinished
        assert broker.call(lambda: held._total) == transactions.MOST_OF_STRANGER * transactions.OVERHEAD


def test_what_a_transaction_makes_us_hold_counts(client: Client, broker: Broker) -> None:
    """What is said of a message that is settled too, and of it all nothing is held decoded."""
    sender, coordinator = client.attach("orders", sends=True), client.coordinate()
    held = broker._hosts["contoso"].burdens.unfinished
    many = {Symbol(f"{number:04}"): number for number in range(200)}
    (delivery,) = deliveries(client, sender, 1)
    txn = client.declare(coordinator)
    client.settle_in(txn, delivery, Modified(True, False, many))
    assert broker.call(lambda: held._total) > 1500
    payload = encode_annotations(many) + encode_data(b"x")
    client.transfer(sender, payload, TransactionalState(txn))
    client.await_event(Settled)
    assert broker.call(lambda: held._total) > 1500 + len(payload)
    ((transaction, _),) = broker._hosts["contoso"].transactions._declared.values()
    (message,) = transaction.steps[1].messages  # type: ignore[union-attr]
    assert (message._sections, message._annotations) == (None, None)
    assert client.ask(coordinator, Discharge(txn)) == ACCEPTED
    assert broker.call(lambda: held._total) == 0
    receiver = client.attach("orders", sends=False)
    changed = scan(client.receive(receiver).payload)
    assert changed.application_properties == {str(key): value for key, value in many.items()}
    assert many.items() <= scan(client.receive(receiver).payload).annotations.items()


def test_one_that_is_refused_unseen_dooms_the_rest(client: Client, contoso: NamespaceHandle) -> None:
    """A message that is settled as it is sent cannot be refused by itself."""
    orders, bills = client.attach("orders", sends=True), client.attach("bills", sends=True)
    coordinator = client.coordinate()
    txn = client.declare(coordinator)
    client.send_in(txn, bills, "never")
    client.transfer(orders, b"\xff", TransactionalState(txn), settled=True)
    client.await_event(LinkDetached)
    assert condition_of(client.ask(coordinator, Discharge(txn))) == conditions.TRANSACTION_ROLLBACK
    assert counts(contoso) == (0, 0, 0)


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (encode_value("begin"), conditions.NOT_IMPLEMENTED),
        (request(Declare("global")), conditions.NOT_IMPLEMENTED),
        (b"\xff\xff", conditions.DECODE_ERROR),
    ],
    ids=["neither", "distributed", "garbage"],
)
def test_what_a_coordinator_does_not_take(client: Client, payload: bytes, condition: str) -> None:
    coordinator = client.coordinate()
    answer = client.send(coordinator, payload)
    assert condition_of(answer.state) == condition
    client.declare(coordinator)  # the link lives on


def test_a_client_that_knows_no_rejection_loses_the_link(client: Client) -> None:
    coordinator = client.coordinate(Source(outcomes=("amqp:accepted:list",)))
    client.await_event(LinkFlowed)
    coordinator.send(request(Discharge(b"nobody's")), tag=b"tag")
    client.flush()
    detached = client.await_event(LinkDetached)
    assert detached.error is not None
    assert detached.error.condition == conditions.TRANSACTION_UNKNOWN


def test_a_request_cannot_belong_to_one(client: Client) -> None:
    """It would be done at once, whatever became of the transaction."""
    requests = client.attach("orders/$management", sends=True)
    client.transfer(requests, encode_value({}), TransactionalState(b"t"))
    assert condition_of(client.await_event(Settled).state) == conditions.NOT_IMPLEMENTED


def test_a_link_may_send_elsewhere_than_it_is_attached(client: Client, contoso: NamespaceHandle) -> None:
    """Clients whose transactions are over several entities attach all links to the first of them."""
    link = client.machine.begin().attach(
        name="via",
        role_sender=True,
        source=Source("orders"),
        target=Target("orders"),
        properties={Symbol("com.microsoft:transfer-destination-address"): "bills"},
    )
    client.flush()
    client.await_event(LinkAttached)
    coordinator = client.coordinate()
    txn = client.declare(coordinator)
    client.send_in(txn, link, "there")
    assert client.ask(coordinator, Discharge(txn)) == ACCEPTED
    assert counts(contoso) == (0, 1, 0)


@pytest.mark.parametrize("weaker", ["send", "listen"])
def test_a_right_that_is_lost_rolls_all_back(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, weaker: str
) -> None:
    """Its link ends with it, and what came by that link comes to nothing."""
    ends = clock.now() + 600
    with Client.connected(contoso.port, SaslClient.anonymous()) as client:
        assert isinstance(client, Client)
        cbs = client.attach("$cbs", sends=True), client.attach("$cbs", sends=False)
        assert client.put_token(*cbs, "orders", signature(contoso, expires_at=ends)) == 202
        sender, coordinator = client.attach("orders", sends=True), client.coordinate()
        (delivery,) = deliveries(client, sender, 1)
        txn = client.declare(coordinator)
        if weaker == "send":
            client.settle_in(txn, delivery, ACCEPTED)
        else:
            client.send_in(txn, sender, "never")
        token = signature(contoso, expires_at=ends, policy=weaker)
        assert client.put_token(*cbs, "orders", token) == 202
        assert condition_of(client.ask(coordinator, Discharge(txn))) == conditions.TRANSACTION_ROLLBACK
    assert counts(contoso) == (1, 0, 0)


def test_the_basic_tier_has_none(certificate: tuple[Path, Path]) -> None:
    with Broker({"contoso": 0}, tier="basic", certificate=certificate) as broker:
        name, key = key_of(broker["contoso"])
        with Client.connected(broker["contoso"].port, SaslClient.plain(name, key)) as client:
            assert isinstance(client, Client)
            client.coordinate()
            refused = client.refusal()
            assert refused.error is not None
            assert refused.error.condition == conditions.NOT_IMPLEMENTED


@pytest.mark.parametrize("is_discharged", [True, False], ids=["discharged", "open"])
def test_what_is_discharged_outlives_a_kill(
    is_discharged: bool, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with Broker({"contoso": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        contoso = broker["contoso"]
        contoso.create_queue("orders")
        contoso.create_queue("bills")
        with Client.connected(contoso.port, SaslClient.plain(*key_of(contoso))) as client:
            assert isinstance(client, Client)
            bills, coordinator = client.attach("bills", sends=True), client.coordinate()
            (delivery,) = deliveries(client, client.attach("orders", sends=True), 1)
            txn = client.declare(coordinator)
            client.settle_in(txn, delivery, ACCEPTED)
            client.send_in(txn, bills, "bill")
            if is_discharged:
                assert client.ask(coordinator, Discharge(txn)) == ACCEPTED
            broker.kill()
    with Broker({"contoso": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        assert counts(broker["contoso"]) == ((0, 1, 0) if is_discharged else (1, 0, 0))


OUTCOMES: dict[str, DeliveryOutcome] = {
    "complete": ACCEPTED,
    "abandon": Modified(True, False),
    "bury": Rejected(AmqpError(conditions.DEAD_LETTER)),
}
STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "bill", *OUTCOMES]), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


@given(steps=STEPS, fails=st.booleans(), loses=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
def test_all_of_it_or_nothing(
    client: Client,
    broker: Broker,
    contoso: NamespaceHandle,
    clock: ManualClock,
    steps: list[tuple[str, int]],
    fails: bool,
    loses: bool,
) -> None:
    """Whatever belongs to a transaction, in whatever order: with its end all of it is so, or nothing is."""
    for queue in ("orders", "bills"):
        contoso.delete_queue(queue)
        contoso.create_queue(queue, QueueSettings(lock_duration=60.0))
    orders, bills = client.attach("orders", sends=True), client.attach("bills", sends=True)
    locked = deliveries(client, orders, 4)
    coordinator = client.coordinate()
    txn = client.declare(coordinator)
    sent, billed, gone, dead = 0, 0, 0, 0
    settled: set[int] = set()
    for what, number in steps:
        if what in ("send", "bill"):
            assert isinstance(
                client.send_in(txn, orders if what == "send" else bills, "new"), TransactionalState
            )
            sent, billed = sent + (what == "send"), billed + (what == "bill")
        elif number not in settled:
            settled.add(number)
            outcome = OUTCOMES[what]
            client.settle_in(txn, locked[number], outcome)
            gone, dead = gone + (what != "abandon"), dead + (what == "bury")
    if loses:
        clock.advance(61.0)
        broker.tick()
    answer = client.ask(coordinator, Discharge(txn, fails))
    coordinator.detach()
    client.flush()
    client.await_event(LinkDetached)
    if fails or (loses and settled):
        assert isinstance(answer, Accepted if fails else Rejected)
        assert counts(contoso) == (4, 0, 0)
    else:
        assert answer == ACCEPTED
        assert counts(contoso) == (4 + sent - gone, billed, dead)
