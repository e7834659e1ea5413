"""`python -m bench.beside`: what an application notices of a drain, where namespaces have credits.

Two embedded namespaces with 1,000 credits a second each, a backlog, and an application of the official SDK
that sends and receives so many messages a second at the primary, or at both: first alone, then beside a
drain, which runs in a process of its own. Told are the application's p99, its throttled answers of all sides
together, and what the drain took of what is left.

The application never sends faster than that: one that is late, on a busy machine, does not make up for it, as
it would take the credits of others then. What it leaves is reckoned from what it did send and receive.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import time
from dataclasses import dataclass, field

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusServerBusyError

from pairbus.broker import Broker
from pairbus.broker.engine.settings import QueueSettings
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from tests.pump.bench import Bench, envelope

__all__ = ["main"]

# Senders of the application: one of them sends one message at a time.
_LANES = 4
# To settle each message would take more time than a busy machine has; credits are the same.
_AT_ONCE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
_QUEUE, _BACKLOG = "shop", "contoso/x-servicebus-transfer/0"


@dataclass(slots=True)
class _Felt:
    """What the application noticed, and for how long it ran."""

    sends: list[float] = field(default_factory=list)
    received: int = 0
    throttled: int = 0
    seconds: float = 0.0

    @property
    def p99(self) -> float:
        return 1000 * statistics.quantiles(self.sends, n=100)[98]


async def _send(sender: ServiceBusSender, felt: _Felt) -> None:
    began = time.perf_counter()
    try:
        await sender.send_messages(ServiceBusMessage(b"x" * 200))
    except ServiceBusServerBusyError:
        felt.throttled += 1
    felt.sends.append(time.perf_counter() - began)


async def _send_all(
    client: ServiceBusClient, felt: _Felt, rate: float, lane: int, ended: asyncio.Event
) -> None:
    """What one of the senders does."""
    async with client.get_queue_sender(_QUEUE) as sender:
        due = time.perf_counter() + lane / rate
        while not ended.is_set():
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await _send(sender, felt)
            due = max(due, time.perf_counter() - _LANES / rate) + _LANES / rate


async def _receive_all(receiver: ServiceBusReceiver, felt: _Felt, ended: asyncio.Event) -> None:
    async with receiver:
        while not ended.is_set():
            found = await receiver.receive_messages(max_message_count=50, max_wait_time=1)
            felt.received += len(found)  # after the wait: those of both sides count in one place


async def _live(text: str, felt: _Felt, rate: float, ended: asyncio.Event) -> None:
    client = ServiceBusClient.from_connection_string(text, retry_total=0)
    async with client:
        senders = (_send_all(client, felt, rate, lane, ended) for lane in range(_LANES))
        await asyncio.gather(
            *senders, _receive_all(client.get_queue_receiver(_QUEUE, receive_mode=_AT_ONCE), felt, ended)
        )


def _drain(primary: str, secondary: str) -> None:
    pair = PumpPair.from_connection_strings(primary, secondary)
    asyncio.run(Pump(pair, [_BACKLOG], options=PumpOptions(drain=True)).run())


async def _live_at(texts: list[str], felt: _Felt, rate: float, ended: asyncio.Event) -> None:
    began = time.perf_counter()
    await asyncio.gather(*(_live(text, felt, rate, ended) for text in texts))
    felt.seconds = time.perf_counter() - began


async def _measure(options: argparse.Namespace, primary: str, secondary: str) -> tuple[_Felt, _Felt, float]:
    quiet, beside, ended = _Felt(), _Felt(), asyncio.Event()
    where = [primary, secondary] if options.both else [primary]
    asyncio.get_running_loop().call_later(options.quiet, ended.set)
    await _live_at(where, quiet, options.rate, ended)
    ended.clear()
    process = multiprocessing.get_context("spawn").Process(target=_drain, args=(primary, secondary))
    living = asyncio.create_task(_live_at(where, beside, options.rate, ended))
    await asyncio.sleep(2.0)
    began = time.perf_counter()
    process.start()
    await asyncio.get_running_loop().run_in_executor(None, process.join)
    seconds = time.perf_counter() - began
    ended.set()
    await living
    return quiet, beside, seconds


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="in the backlog")
    parser.add_argument("--rate", type=float, default=200.0, help="of the application, sent and received")
    parser.add_argument("--credits", type=int, default=1000, help="of each namespace a second")
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds without the drain")
    parser.add_argument("--both", action="store_true", help="let the application be at the secondary too")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    options = parser.parse_args()
    with Broker({"contoso": 0, "contoso-dr": 0}, credits=options.credits) as broker:
        bench = Bench(broker)
        for name in (_QUEUE, "orders"):
            bench.primary.create_queue(name)
        bench.secondary.create_queue(_QUEUE)
        large = QueueSettings(max_size_in_megabytes=5120, max_delivery_count=2_147_483_647)
        bench.secondary.create_queue(_BACKLOG, large)
        bench.load(_BACKLOG, [envelope("orders", f"m{number}") for number in range(options.messages)])
        quiet, beside, seconds = asyncio.run(
            _measure(options, bench.primary.connection_string, bench.secondary.connection_string)
        )
        moved = bench.primary.message_count("orders")
    sides = 2 if options.both else 1
    left = options.credits - (len(beside.sends) + beside.received) / beside.seconds / sides
    figures = {
        "the application at a side, sends a second": len(beside.sends) / beside.seconds / sides,
        "throttled answers of it alone": quiet.throttled,
        "p99 of a send alone, ms": quiet.p99,
        "p99 of a send beside the drain, ms": beside.p99,
        "their ratio (at most 2)": beside.p99 / quiet.p99,
        "throttled answers a minute (at most 1)": 60 * beside.throttled / seconds,
        "received of what was sent": beside.received / len(beside.sends),
        "drain, messages a second": moved / seconds,
        "of what the application leaves (at least 0.8)": moved / seconds / left,
    }
    for name, value in figures.items():
        sys.stdout.write(f"{name:50} {value:10.2f}\n")
    is_met = (
        beside.p99 <= 2 * quiet.p99
        and 60 * beside.throttled <= seconds
        and moved == options.messages
        and moved / seconds >= 0.8 * left
    )
    return int(options.check and not is_met)


if __name__ == "__main__":
    sys.exit(main())
