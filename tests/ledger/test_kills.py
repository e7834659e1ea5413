"""A client and a pump that are killed: their ledger lacks the open interval at most, and reports say so."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.broker import Broker
from pairbus.broker.counters import OperationKind
from pairbus.cost.bill import make_bill
from pairbus.cost.page import render_page
from pairbus.cost.report import report_of
from pairbus.cost.sheet import default_sheet
from pairbus.ledger.operations import KIND, Ledger, find_gaps, read_operations
from pairbus.ledger.segment import adopt_segments, closed_segments
from pairbus.pairing.envelope import ALIAS_PATH
from tests.client.scene import BACKLOG
from tests.processes import killed_at_end
from tests.waiting import PATIENCE, wait_until

INTERVAL = 0.3
CLIENT = f"""
INTERVAL = {INTERVAL}
import asyncio, sys
from pathlib import Path
from azure.servicebus import ServiceBusMessage
from pairbus.aio import PairedServiceBusClient
from pairbus.client.observers.ledger import ClientLedger
from pairbus.ledger.operation_log import OperationLog

async def main(primary, secondary, directory):
    log = OperationLog(Path(directory), role="client", pair="contoso", writer="victim", every=INTERVAL)
    ledger = ClientLedger(log, primary="contoso", secondary="contoso-dr")
    make = PairedServiceBusClient.from_connection_strings
    async with make(primary, secondary, observers=[ledger]) as client:
        sender = client.get_queue_sender("orders")
        while True:
            await sender.send_messages(ServiceBusMessage("x"))
            await asyncio.sleep(0.01)

asyncio.run(main(*sys.argv[1:4]))
"""
PUMP = f"""
INTERVAL = {INTERVAL}
import asyncio, sys
from pathlib import Path
from pairbus.ledger.operation_log import OperationLog
from pairbus.pump.pump import Pump
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair

async def main(primary, secondary, directory):
    log = OperationLog(Path(directory), role="pump", pair="contoso", writer="victim", every=INTERVAL)
    pair = PumpPair.from_connection_strings(primary, secondary)
    await Pump(pair, sys.argv[4:], options=PumpOptions(max_rate=50.0), ledger=log).run()

asyncio.run(main(*sys.argv[1:4]))
"""


@pytest.fixture
def pair(broker: Broker) -> Broker:
    """A queue, and more in the backlog for it than a pump moves before it is killed."""
    broker["contoso"].create_queue("orders")
    for name in BACKLOG:
        broker["contoso-dr"].create_queue(name)
    with (
        ServiceBusClient.from_connection_string(broker["contoso-dr"].connection_string) as client,
        client.get_queue_sender(BACKLOG[0]) as sender,
    ):
        for _ in range(20):
            sender.send_messages(
                [ServiceBusMessage(b"x", application_properties={ALIAS_PATH: "orders"}) for _ in range(100)]
            )
    return broker


def sent(ledger: Ledger) -> int:
    """What was sent to the primary, as the ledger has it."""
    return sum(one.count for one in ledger.operations if one.stage == "send")


def written(directory: Path) -> Ledger:
    """What is on the disk so far, in segments that are still open."""
    return read_operations(directory.glob(f".{KIND}-*.open"))


@pytest.mark.parametrize(("role", "script"), [("client", CLIENT), ("pump", PUMP)], ids=["client", "pump"])
def test_a_process_that_is_killed_loses_its_open_interval_at_most(
    pair: Broker, tmp_path: Path, role: str, script: str
) -> None:
    primary, secondary = pair["contoso"], pair["contoso-dr"]
    strings = (primary.connection_string, secondary.connection_string)
    arguments = (*strings, str(tmp_path), *BACKLOG[:1])

    def has_heard(count: int) -> bool:
        """Whether it knows that so many were taken: a pump then completes them, a client sends another."""
        if role == "pump":
            return secondary.count(OperationKind.COMPLETE) >= count
        return primary.count(OperationKind.SEND) > count

    with killed_at_end(subprocess.Popen([sys.executable, "-c", script, *arguments])) as victim:
        wait_until(lambda: sent(written(tmp_path)) > 0)
        before = primary.count(OperationKind.SEND)
        wait_until(lambda: has_heard(before))
        # All that was done before this has been written by a whole interval that came after it.
        marks = len(written(tmp_path).writers)
        wait_until(lambda: len(written(tmp_path).writers) >= marks + 2)
        wait_until(lambda: primary.count(OperationKind.SEND) > before)
        victim.send_signal(signal.SIGKILL)
        victim.wait(PATIENCE)
        killed_at = time.time()
    assert closed_segments(tmp_path, KIND) == []
    adopt_segments(tmp_path, KIND)
    ledger = read_operations(closed_segments(tmp_path, KIND))
    assert before <= sent(ledger) <= primary.count(OperationKind.SEND)
    assert {one.role for one in ledger.operations} == {role}
    (gap,) = find_gaps(ledger.writers, now=killed_at + 4000, patience=1800)
    assert gap.writer == "victim"
    assert gap.begins == max(mark.at for mark in ledger.writers) <= killed_at
    report = report_of(make_bill([], [], default_sheet()), [], [], default_sheet(), gaps=[gap])
    shown = f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(gap.begins))} and "
    page = render_page(report, now=killed_at)
    assert "victim (contoso) ended without a word" in page
    assert shown in page
