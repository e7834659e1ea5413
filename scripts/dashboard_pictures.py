#!/usr/bin/env python3
"""Makes the pictures of docs/dashboard.md: a pair in an outage, as a browser shows it.

Needs node, chromium and the packages of tests/node (`npm ci` there). It takes as long as the outage lasts:

    .venv/bin/python scripts/dashboard_pictures.py [MINUTES] [DIRECTORY]
"""

import asyncio
import json
import secrets
import sys
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from azure.servicebus import ServiceBusMessage

from pairbus import SendAvailabilityOptions
from pairbus.aio import PairedServiceBusClient
from pairbus.backlog.backlog import Backlog
from pairbus.broker import Broker
from pairbus.dashboard.own_drain import OwnDrain
from pairbus.dashboard.server import Serving, serving
from pairbus.dashboard.watched import Watched, WatchedPair
from pairbus.plumbing.tasks import cancel_all
from pairbus.pump.pair import PumpPair

ROOT = Path(__file__).resolve().parents[1]
QUEUES = 3
# Of each path, in seconds; and how long all is well before the outage.
PAUSE, CALM = 0.12, 20.0


async def keep_sending(client: PairedServiceBusClient, path: str) -> None:
    async with client.get_queue_sender(path) as sender:
        while True:
            await sender.send_messages(ServiceBusMessage(f"one of {path}"))
            await asyncio.sleep(PAUSE)


async def leave_dead_letters(client: PairedServiceBusClient, broker: Broker, pair: WatchedPair) -> None:
    """Ten messages for an entity that is gone when they come home."""
    broker["contoso"].create_queue("refunds")
    client.fail_over("refunds", reason="to make dead letters")
    async with client.get_queue_sender("refunds") as sender:
        await sender.send_messages([ServiceBusMessage("one of refunds") for _ in range(10)])
    broker["contoso"].delete_queue("refunds")
    client.mark_path_healthy("refunds")
    drain = OwnDrain(pair)
    drain.start(None)
    while drain.is_active:  # noqa: ASYNC110 - it has no event for this
        await asyncio.sleep(0.2)


async def photograph(address: str, directory: Path) -> None:
    script = ROOT / "tests" / "node" / "pictures.js"
    process = await asyncio.create_subprocess_exec("node", str(script), address, str(directory))
    if await process.wait():
        raise SystemExit(f"node ended with {process.returncode}")


async def play(minutes: float, directory: Path, place: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        sides = [broker[name].connection_string for name in ("contoso", "contoso-dr")]
        for path in ("orders", "payments"):
            broker["contoso"].create_queue(path)
        ready_file = place / "ready.json"
        ready_file.write_text(json.dumps(broker.describe()), encoding="utf-8")
        backlog = Backlog(pair=PumpPair.from_connection_strings(*sides), count=QUEUES, primary_name="contoso")
        pair = WatchedPair(name="shop", state_dir=place / "state", backlog=backlog)
        watched = Watched(pairs=[pair], ready_file=ready_file, budget=Decimal(5))
        options = SendAvailabilityOptions(
            failover_interval=2, ping_primary_interval=5, backlog_queue_count=QUEUES
        )
        how = Serving(control=True, token=secrets.token_urlsafe(24))
        async with (
            PairedServiceBusClient.from_connection_strings(
                *sides, options=options, state_dir=pair.state_dir
            ) as client,
            serving(watched, how) as address,
        ):
            await leave_dead_letters(client, broker, pair)
            sending = [asyncio.create_task(keep_sending(client, path)) for path in ("orders", "payments")]
            await asyncio.sleep(CALM)
            broker["contoso"].faults.set("refuse", entity="payments")
            await asyncio.sleep(60 * minutes)
            await photograph(address, directory)
            await cancel_all(*sending)


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    directory = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs"
    with TemporaryDirectory() as place:
        asyncio.run(play(minutes, directory, Path(place)))


if __name__ == "__main__":
    main()
