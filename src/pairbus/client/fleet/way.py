"""Opens connections to the fleet, over the secondary, and records what they are billed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pairbus import conditions
from pairbus.client.hosted.transport import open_transport
from pairbus.clock import Clock
from pairbus.ledger.operation_log import OperationLog
from pairbus.pairing.names import lease_queue_name, primary_name
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.sdk.side import SdkSide
from pairbus.wire.errors import TransportError
from pairbus.wire.meter import Meter

from .amqp_fleet_line import AmqpFleetLine
from .line import FleetLine

_ANSWER_LIMIT = 10.0


class FleetWay:
    """Opens lines to the fleet, one after the other."""

    def __init__(self, secondary: SdkSide, *, name: str, records: Path | None, clock: Clock) -> None:
        """What is billed is recorded under `records`, if that is given."""
        self._secondary = secondary
        self._queue = lease_queue_name(name)
        self._meter = Meter()
        self._ledger: OperationLog | None = None
        if records is not None:
            self._ledger = OperationLog(records, role="fleet", pair=name, clock=clock)
            self._meter = Meter(primary_name(secondary.parsed or secondary.endpoint), self._ledger)

    def open(self) -> FleetLine:
        """A new line; TransportError if there can be none. Does no I/O."""
        if self._ledger is not None:
            self._ledger.start()  # not before: a way that nobody takes is not closed either
        transport = open_transport(self._secondary, timeout=_ANSWER_LIMIT)
        if not isinstance(transport, AmqpTransport):
            raise TransportError(
                conditions.NOT_IMPLEMENTED,
                "the secondary is reached by a way that only the SDK knows (WebSocket, proxy, an address or "
                "TLS context of its own)",
            )
        transport.meter = self._meter
        return AmqpFleetLine(transport, self._queue)

    async def close(self) -> None:
        """Write what was recorded."""
        if self._ledger is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._ledger.close)
