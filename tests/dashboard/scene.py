"""A pair that is watched: embedded namespaces, their ready file, a state directory and a dashboard."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
from azure.servicebus import ServiceBusMessage

from pairbus import SendAvailabilityOptions
from pairbus.aio import PairedServiceBusClient
from pairbus.backlog.backlog import Backlog
from pairbus.broker import Broker
from pairbus.dashboard.server import Serving, serving
from pairbus.dashboard.watched import LookPace, Watched, WatchedPair
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from tests.waiting import PATIENCE

__all__ = ["QUEUES", "STAYS", "TOKEN", "Visitor", "open_client", "served", "watch"]

QUEUES = 2
TOKEN = "a-token-for-tests-0123456789"
PAIR = "shop"
# As fast as a test wants to see it.
PACE = LookPace(glance=0.1, count=0.2, peek=0.3)


def watch(broker: Broker, place: Path, *, max_rate: float | None = None) -> Watched:
    """The pair of a broker, with its ready file."""
    primary, secondary = broker["contoso"], broker["contoso-dr"]
    ready_file = place / "ready.json"
    ready_file.write_text(json.dumps(broker.describe()), encoding="utf-8")
    pair = PumpPair.from_connection_strings(primary.connection_string, secondary.connection_string)
    backlog = Backlog(pair=pair, count=QUEUES, primary_name="contoso")
    return Watched(
        pairs=[
            WatchedPair(
                name=PAIR,
                state_dir=place / "state",
                backlog=backlog,
                options=PumpOptions(max_rate=max_rate),
            )
        ],
        ready_file=ready_file,
        budget=Decimal(100),
        pace=PACE,
    )


# Of a client that stays with the backlog when told to: no ping brings it back to the primary meanwhile.
STAYS = {"ping_primary_interval": 1800}


def open_client(broker: Broker, watched: Watched | None, **options: Any) -> PairedServiceBusClient:
    """A client that fails over at once, but not because the machine is slow; one that is not watched leaves
    no trace.
    """
    usual = {"failover_interval": 0, "ping_primary_interval": 1, "send_timeout": PATIENCE}
    return PairedServiceBusClient.from_connection_strings(
        broker["contoso"].connection_string,
        broker["contoso-dr"].connection_string,
        options=SendAvailabilityOptions(**{**usual, "backlog_queue_count": QUEUES, **options}),
        state_dir=None if watched is None else watched.pairs[0].state_dir,
    )


async def send(client: PairedServiceBusClient, path: str, ids: Sequence[str]) -> None:
    async with client.get_queue_sender(path) as sender:
        for message_id in ids:
            await sender.send_messages(ServiceBusMessage(f"body of {message_id}", message_id=message_id))


async def send_many(client: PairedServiceBusClient, path: str, lists: int) -> None:
    """Hundreds of messages, so that a drain with a limit takes a while."""
    async with client.get_queue_sender(path) as sender:
        for _ in range(lists):
            await sender.send_messages([ServiceBusMessage("one of many") for _ in range(200)])


@dataclass
class Visitor:
    """A program that asks a dashboard."""

    address: str
    session: aiohttp.ClientSession
    token: str | None = TOKEN

    @property
    def _headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    async def ask(self, path: str, **headers: str) -> tuple[int, Any]:
        url = self.address.partition("#")[0] + path
        async with self.session.get(url, headers={**self._headers, **headers}) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()

    async def state(self) -> dict[str, Any]:
        status, found = await self.ask("api/state")
        assert status == 200, found
        return dict(found)

    async def do(self, **what: Any) -> tuple[int, dict[str, Any]]:
        url = self.address.partition("#")[0] + "api/do"
        async with self.session.post(url, json=what, headers=self._headers) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def served(
    watched: Watched, *, control: bool = True, token: str | None = TOKEN, history: Path | None = None
) -> AsyncIterator[Visitor]:
    """A dashboard, and somebody who asks it."""
    how = Serving(control=control, token=token, history=history, version="test")
    async with serving(watched, how) as address, aiohttp.ClientSession() as session:
        yield Visitor(address, session, token)
