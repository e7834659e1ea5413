"""What the official asynchronous client makes of each kind of fault, on links that were open before as on new
ones, for a whole namespace and for one queue; and that it works again once the fault is cleared.

The SDK takes its time to open and close links. So every case has a namespace of its own, all cases run side
by side before the first test, and the tests look at what was seen.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from pairbus.broker import Broker, FaultKind, NamespaceHandle
from pairbus.clock import ManualClock

from .links import HASTE, SOON, Client, outcomes_of

SENT = None  # what the SDK's send returns
NOTHING = 0  # no message came
SEEN = "seen"  # a peek has worked


class Seen(NamedTuple):
    """What came of a send, a receive and a peek on links that were open, and of the first two on new ones."""

    open_send: Any
    open_receive: Any
    open_peek: Any
    new_send: Any
    new_receive: Any


@dataclass
class Report:
    """What was seen while the fault was set, on another queue of the namespace, and after it was cleared."""

    during: Seen | None = None
    elsewhere: list[Any] = field(default_factory=list)
    healed_open: list[Any] = field(default_factory=list)
    healed_new: list[Any] = field(default_factory=list)


LOST = Seen(*[ServiceBusConnectionError] * 5)
# Of a management link that is detached the SDK says no more than that.
DETACHED = LOST._replace(open_peek=ServiceBusError)
BROKEN = Seen(*[ServiceBusError] * 5)
MUTE = Seen(*[OperationTimeoutError] * 5)._replace(open_receive=NOTHING)
BUSY = Seen(*[ServiceBusServerBusyError] * 5)._replace(open_receive=NOTHING)
DISABLED = Seen(*[MessagingEntityDisabledError] * 5)._replace(open_peek=SEEN)
NO_TOKEN = Seen(*[ServiceBusAuthorizationError] * 3, *[ServiceBusAuthenticationError] * 2)
FULL = Seen(ServiceBusQuotaExceededError, NOTHING, SEEN, ServiceBusQuotaExceededError, NOTHING)
EXPECTED = {
    FaultKind.REFUSE: (LOST, DETACHED),
    FaultKind.RESET: (LOST, DETACHED),
    FaultKind.FLAP: (LOST, DETACHED),
    FaultKind.SILENCE: (MUTE, MUTE),
    FaultKind.BLACKHOLE: (MUTE, MUTE),
    FaultKind.ERROR: (BROKEN, BROKEN),
    FaultKind.BUSY: (BUSY, BUSY),
    FaultKind.TOKEN: (NO_TOKEN, NO_TOKEN),
    FaultKind.DISABLED: (DISABLED, DISABLED),
    FaultKind.FULL: (FULL, FULL),
    # These two take the message; the answer comes too late or never. They have tests of their own.
    FaultKind.DELAY: (Seen(OperationTimeoutError, 1, SEEN, OperationTimeoutError, 1),) * 2,
    FaultKind.DROP: (Seen(ServiceBusConnectionError, 1, SEEN, ServiceBusConnectionError, 1),) * 2,
}
# Most of a case is waiting, but all at once would open so many links that some come late on a busy machine.
AT_ONCE = 8
ARGUMENTS: dict[FaultKind, dict[str, Any]] = {FaultKind.DROP: {"every": 1}}
CASES = [(kind, entity) for kind in FaultKind for entity in (None, "orders")]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1] or 'namespace'}")
Case = tuple[FaultKind, str | None]


async def observe(case: Case, namespace: NamespaceHandle, certificate: Path) -> Report:
    kind, entity = case
    report, expected = Report(), EXPECTED[kind][entity is not None]
    # Only who is never answered gives up: on a busy machine an answer may take its time.
    patience = HASTE if OperationTimeoutError in expected else SOON
    client, other = Client(namespace, certificate), Client(namespace, certificate, patience=patience)
    calm = Client(namespace, certificate)  # for new links where all is well, or is well again
    async with client, other, calm:
        send, send_elsewhere = client.sender(), client.sender("other")
        receive, peek = client.receiver(), client.peeker()
        await asyncio.gather(send(), send_elsewhere(), peek())
        assert await receive() == 1

        namespace.faults.set(kind, entity=entity, **ARGUMENTS.get(kind, {}))
        new_receive = other.receiver()
        seen = await outcomes_of(
            lambda: send(patience),
            lambda: receive(0.5 if expected.open_receive is NOTHING else SOON),
            lambda: peek(patience),
            other.sender(),
            lambda: new_receive(1.5 * HASTE if expected.new_receive is NOTHING else 1.5 * patience),
        )
        report.during = Seen(*seen)
        if entity is not None:
            report.elsewhere = await outcomes_of(send_elsewhere, calm.sender("other"))

        namespace.faults.clear()
        report.healed_open = [(await outcomes_of(send))[0] for _ in range(2)]
        report.healed_new = await outcomes_of(calm.sender(), calm.receiver(), calm.peeker())
    return report


@pytest.fixture(scope="module")
def reports(certificate: tuple[Path, Path]) -> dict[Case, Report]:
    names = {case: f"{case[0]}-{case[1] or 'namespace'}" for case in CASES}
    ports = dict.fromkeys(names.values(), 0)

    async def observe_all(broker: Broker) -> list[Report]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def take_turn(case: Case, name: str) -> Report:
            async with turns:
                return await observe(case, broker[name], certificate[0])

        return await asyncio.gather(*(take_turn(case, name) for case, name in names.items()))

    with Broker(ports, clock=ManualClock(time.time()), certificate=certificate) as broker:
        for name in ports:
            broker[name].create_queue("orders")
            broker[name].create_queue("other")
        return dict(zip(CASES, asyncio.run(observe_all(broker)), strict=True))


@cases
def test_the_sdk_raises(case: Case, reports: dict[Case, Report]) -> None:
    kind, entity = case
    assert reports[case].during == EXPECTED[kind][entity is not None]


@cases
def test_a_fault_of_one_entity_is_no_other_entitys(case: Case, reports: dict[Case, Report]) -> None:
    expected = [] if case[1] is None else [SENT, SENT]
    assert reports[case].elsewhere == expected


@cases
def test_cleared_all_is_well(case: Case, reports: dict[Case, Report]) -> None:
    first, second = reports[case].healed_open
    # A link that was cut behind the SDK's back tells so at its next use; then the SDK opens it anew.
    was_swallowed = case[0] is FaultKind.SILENCE or case == (FaultKind.BLACKHOLE, "orders")
    assert first is (ServiceBusConnectionError if was_swallowed else SENT)
    assert second is SENT
    assert reports[case].healed_new == [SENT, 1, SEEN]
