"""A broker to measure, in a process of its own: `python -m bench.serve STATUS_FILE [DATA_DIR]`.

It is what `pairbus broker` runs, with one queue in it. At SIGUSR1 it writes again how many turns its store
has committed, which nobody outside the process could know.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pairbus.broker import Broker
from pairbus.broker.engine.errors import Refused
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.plumbing.collector import CalmCollector

__all__ = ["NAMESPACE", "QUEUE", "main"]

NAMESPACE, QUEUE = "bench", "bench"


async def _serve(status_file: Path, data_dir: Path | None) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    async with Broker({NAMESPACE: 0}, data_dir=data_dir) as broker:
        with contextlib.suppress(Refused):  # it is there already, in a store that was filled before
            broker[NAMESPACE].create_queue(QUEUE)

        def report() -> None:
            host = broker._hosts[NAMESPACE]
            commits = host._store.commits if isinstance(host._store, SqliteStore) else 0
            _write(status_file, {**broker.describe()[NAMESPACE], "commits": commits, "at": loop.time()})

        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, report)
        report()
        with CalmCollector():
            await broker.serve_until(stop)


def _write(path: Path, status: dict[str, Any]) -> None:
    """Whole or not at all, for who reads it meanwhile."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(status), encoding="utf-8")
    os.replace(fresh, path)


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM."""
    asyncio.run(_serve(Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else None))


if __name__ == "__main__":
    main(sys.argv[1:])
