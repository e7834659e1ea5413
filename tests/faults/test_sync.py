"""What the official synchronous client makes of the faults.

It is not shown silence, nor a black hole on a connection that is open: it reads with a blocking socket,
without a limit that it keeps, and hangs for minutes. A black hole that it connects into is no trouble: it
gives that one second.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
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
from tests.waiting import PATIENCE

# kind -> what a send on an open link raises, and one on a new link; None where it is not tried.
EXPECTED: dict[FaultKind, tuple[type[Exception] | None, type[Exception]]] = {
    FaultKind.REFUSE: (ServiceBusConnectionError, ServiceBusConnectionError),
    FaultKind.RESET: (ServiceBusConnectionError, ServiceBusConnectionError),
    FaultKind.FLAP: (ServiceBusConnectionError, ServiceBusConnectionError),
    FaultKind.BLACKHOLE: (None, ServiceBusConnectionError),
    FaultKind.DELAY: (OperationTimeoutError, OperationTimeoutError),
    FaultKind.ERROR: (ServiceBusError, ServiceBusError),
    FaultKind.BUSY: (ServiceBusServerBusyError, ServiceBusServerBusyError),
    FaultKind.TOKEN: (ServiceBusAuthorizationError, ServiceBusAuthenticationError),
    FaultKind.DISABLED: (MessagingEntityDisabledError, MessagingEntityDisabledError),
    FaultKind.FULL: (ServiceBusQuotaExceededError, ServiceBusQuotaExceededError),
    FaultKind.DROP: (ServiceBusConnectionError, ServiceBusConnectionError),
}
ARGUMENTS: dict[FaultKind, dict[str, Any]] = {FaultKind.DROP: {"every": 1}}
# How long a send may take whose answer never comes; a new link has to open in that time.
HASTE = 4.0

Report = tuple[Any, Any, Any]


def outcome_of(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except ServiceBusError as error:
        return type(error)


def observe(kind: FaultKind, namespace: NamespaceHandle, trusted: Path) -> Report:
    """What came of a send on an open link, of one on a new link, and of one after the fault."""
    text = namespace.connection_string
    with ServiceBusClient.from_connection_string(
        text, retry_total=0, connection_verify=str(trusted)
    ) as client:
        early, late = client.get_queue_sender("orders"), client.get_queue_sender("orders")
        early.send_messages(ServiceBusMessage("before"))
        namespace.faults.set(kind, **ARGUMENTS.get(kind, {}))

        patience = HASTE if OperationTimeoutError in EXPECTED[kind] else PATIENCE

        def send(sender: Any) -> Any:
            return outcome_of(lambda: sender.send_messages(ServiceBusMessage("during"), timeout=patience))

        open_send = None if kind is FaultKind.BLACKHOLE else send(early)
        new_send = send(late)
        namespace.faults.clear()
        patience = PATIENCE
        return open_send, new_send, send(late)


@pytest.fixture(scope="module")
def reports(certificate: tuple[Path, Path]) -> dict[FaultKind, Report]:
    """All at once, because the SDK takes its time."""
    ports = {kind.value: 0 for kind in EXPECTED}
    with (
        Broker(ports, clock=ManualClock(time.time()), certificate=certificate) as broker,
        ThreadPoolExecutor(len(ports)) as pool,
    ):
        for name in ports:
            broker[name].create_queue("orders")
        seen = {kind: pool.submit(observe, kind, broker[kind.value], certificate[0]) for kind in EXPECTED}
        return {kind: report.result() for kind, report in seen.items()}


@pytest.mark.parametrize("kind", EXPECTED)
def test_the_sdk_raises(kind: FaultKind, reports: dict[FaultKind, Report]) -> None:
    assert reports[kind][:2] == EXPECTED[kind]


@pytest.mark.parametrize("kind", EXPECTED)
def test_cleared_all_is_well(kind: FaultKind, reports: dict[FaultKind, Report]) -> None:
    assert reports[kind][2] is None
