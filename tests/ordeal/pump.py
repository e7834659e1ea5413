"""A pump that moves the backlog: JOURNAL RECORDS RATE PRIMARY SECONDARY. With the rate `all` to the end."""

import asyncio
import sys
from pathlib import Path

from pairbus.ledger.receipts import ReceiptLog
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump

from .journal import BACKLOG, Journal
from .signals import set_clock_by_signals, stop_at_sigterm


async def run(path: str, records: str, rate: str, primary: str, secondary: str) -> None:
    stop, journal, is_drain = stop_at_sigterm(), Journal(path), rate == "all"
    pair = PumpPair.from_connection_strings(primary, secondary, name="contoso")
    options = (
        PumpOptions(drain=True, send_timeout=10.0)
        if is_drain
        else PumpOptions(poll=1.0, send_timeout=5.0, max_rate=float(rate))
    )
    pump = Pump(pair, BACKLOG, options=options, receipts=ReceiptLog(Path(records)))

    async def obey() -> None:
        await stop.wait()
        pump.stop()

    obeying = asyncio.create_task(obey())
    summary = await pump.run()
    obeying.cancel()
    journal.note("unknown", summary.unknown)
    if is_drain and (summary.waiting or summary.queue_errors):
        raise SystemExit(f"not drained: {summary}")


if __name__ == "__main__":
    set_clock_by_signals()
    asyncio.run(run(*sys.argv[1:]))
