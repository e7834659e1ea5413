"""Where a write goes: a namespace over our own AMQP, or a pair through the paired client.

Both take *units*, each sent as a whole, and say what became of each. A pair costs what the SDK costs, since
the paired client is made of it, and does what that does in an outage, to the letter.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from pairbus import conditions
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.errors import MessageTooLargeForBacklog
from pairbus.pump.amqp_transport import AmqpDestination, AmqpTransport
from pairbus.pump.transport import Refusal, Unit
from pairbus.wire.errors import TransportError

from .options import SourceSettings


class Outlet(Protocol):
    """Takes units."""

    async def send(self, entity: str, units: Sequence[Unit]) -> list[Refusal]: ...

    async def close(self) -> None: ...


def open_outlet(settings: SourceSettings) -> Outlet:
    """Where the options say that a write goes. Does no I/O."""
    return NamespaceOutlet(settings) if settings["secondary"] is None else PairOutlet(settings)


class NamespaceOutlet:
    """One namespace."""

    def __init__(self, settings: SourceSettings) -> None:
        resolved = settings.side.resolve()
        self._transport = AmqpTransport(resolved.place(), resolved.tokens(), container_id="pairbus-spark")
        self._destinations: dict[str, AmqpDestination] = {}

    async def send(self, entity: str, units: Sequence[Unit]) -> list[Refusal]:
        destination = self._destinations.get(entity)
        if destination is None:
            destination = self._destinations[entity] = self._transport.destination(entity)
        return await destination.send(units)

    async def close(self) -> None:
        await self._transport.close()


class PairOutlet:
    """A pair: what its primary does not take goes to the backlog."""

    def __init__(self, settings: SourceSettings) -> None:
        from pairbus.client.aio import PairedServiceBusClient  # the SDK is slow to import

        primary, secondary = settings.side.resolve().parsed, settings.secondary_side.resolve().parsed
        assert primary is not None
        assert secondary is not None
        interval = settings["failoverInterval"]
        options = SendAvailabilityOptions()
        if interval is not None:
            options = SendAvailabilityOptions(failover_interval=interval)
        ca_file = settings["caFile"]
        self._client = PairedServiceBusClient.from_connection_strings(
            primary.text,
            secondary.text,
            options=options,
            primary_name=settings["primaryName"],
            sdk_options={} if ca_file is None else {"connection_verify": ca_file},
        )
        self._senders: dict[str, Any] = {}

    async def send(self, entity: str, units: Sequence[Unit]) -> list[Refusal]:
        sender = self._senders.get(entity)
        if sender is None:
            sender = self._senders[entity] = self._client.get_queue_sender(entity)
        # One after the other: the SDK's sender has one batch on the way at a time.
        return [await _send_unit(sender, unit) for unit in units]

    async def close(self) -> None:
        await self._client.close()


async def _send_unit(sender: Any, unit: Unit) -> Refusal:
    from pairbus.pump.sdk_messages import to_annotated
    from pairbus.pump.sdk_transport import as_error

    try:
        await sender.send_messages([to_annotated(payload) for payload in unit.payloads])
    except MessageTooLargeForBacklog as error:
        return TransportError(conditions.MESSAGE_SIZE_EXCEEDED, str(error))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is judged by whoever sends
        return as_error(error)
    return None
