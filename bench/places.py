"""`python -m bench.places`: a drain with its records in an object store, against records on the disk.

How it is measured
1. The broker, with both namespaces in memory, runs in a process of its own, and so does Azurite, Microsoft's
   emulator of Blob Storage, which keeps all in memory (`npm ci` in tests/azurite comes first).
2. In turns, the same queues are filled and drained by one pump: with receipts on the disk, each write with an
   fsync, and with receipts in the store.
3. All share the processors of the machine: what Azurite uses, a store in the cloud would use elsewhere. It is
   told apart.
4. A ratio is that of two values of the same round; its median is over the rounds.
"""

import argparse
import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.pump import Strings, load, running_broker, used_by
from bench.report import Report
from pairbus.ledger.receipts import ReceiptLog
from pairbus.ledger.store_files import holds_rows
from pairbus.pairing.names import backlog_queue_names
from pairbus.plumbing.collector import IN_A_PUMP, CalmCollector
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from pairbus.stores.places import RecordPlace, StoreUri, parse_place
from pairbus.stores.store import open_store

__all__ = ["main"]

_OUTPUT = Path("build/bench-places.json")
_LEAST = 0.8
_AZURITE = Path("tests/azurite/node_modules/azurite/dist/src/blob/main.js")
# Without it `pyarrow` waits for seconds where Azurite refuses something, as at the end of a delete.
_CONTINUE = Path("tests/azurite/continue.js")
_ACCOUNT = "devstoreaccount1"
_KEY_ENV = "BENCH_RECORDS_KEY"
# The one that every Azurite has, and its documentation tells.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_START_LIMIT = 60.0
_DISK, _STORE = "records on the disk", "records in Azurite"


class _Drained(NamedTuple):
    """One drain; CPU in microseconds a message; objects that were put for 100,000 messages."""

    rate: float
    cpu: float
    azurite_cpu: float
    puts: float


class _Azurite(NamedTuple):
    process: int
    address: str


@contextmanager
def _running_azurite() -> Iterator[_Azurite]:
    node = shutil.which("node")
    if node is None or not _AZURITE.exists():
        raise SystemExit("this needs Node, and `npm ci` in tests/azurite")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ["--require", str(_CONTINUE.resolve()), str(_AZURITE.resolve())]
    options = ["--loose", "--skipApiVersionCheck", "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(
            [node, *server, "--blobPort", str(port), *options],
            cwd=directory,
            stdout=subprocess.DEVNULL,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + _START_LIMIT
            while time.monotonic() < deadline:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield _Azurite(process.pid, f"127.0.0.1:{port}")
        finally:
            process.kill()


def _make_place(address: str) -> StoreUri:
    from pyarrow.fs import AzureFileSystem

    name = f"bench-{secrets.token_hex(8)}"
    authorities = {f"{service}_storage_authority": address for service in ("blob", "dfs")}
    schemes = {f"{service}_storage_scheme": "http" for service in ("blob", "dfs")}
    AzureFileSystem(_ACCOUNT, account_key=_KEY, **authorities, **schemes).create_dir(name)
    host = f"{_ACCOUNT}.dfs.core.windows.net"
    place = parse_place(f"abfss://{name}@{host}/x?key_env={_KEY_ENV}&endpoint=http://{address}")
    assert isinstance(place, StoreUri)
    return place


async def _drain(strings: Strings, queues: list[str], place: RecordPlace) -> int:
    pair = PumpPair.from_connection_strings(strings.primary, strings.secondary)
    options = PumpOptions(drain=True, drain_wait=0.02)
    with CalmCollector(IN_A_PUMP):
        return (await Pump(pair, queues, options=options, receipts=ReceiptLog(place)).run()).moved


def _measure(
    strings: Strings, queues: list[str], options: argparse.Namespace, azurite: _Azurite, place: RecordPlace
) -> _Drained:
    asyncio.run(load(strings, queues, count=options.messages, body=options.body))
    begun, cpu, store_cpu = time.perf_counter(), time.process_time(), used_by(azurite.process)
    moved = asyncio.run(_drain(strings, queues, place))
    taken, used = time.perf_counter() - begun, time.process_time() - cpu
    if moved != options.messages // len(queues) * len(queues):
        raise SystemExit(f"{moved} of {options.messages} messages were moved")
    stored = used_by(azurite.process) - store_cpu
    names = open_store(place).list("receipts") if isinstance(place, StoreUri) else {}
    puts = sum(map(holds_rows, names))
    return _Drained(moved / taken, used / moved * 1e6, stored / moved * 1e6, puts / moved * 1e5)


def _compare(strings: Strings, queues: list[str], options: argparse.Namespace, azurite: _Azurite) -> Report:
    """All rounds; the first one warms everything up and does not count."""
    found: dict[str, list[_Drained]] = {_DISK: [], _STORE: []}
    for number in range(options.rounds + 1):
        for name, drained in found.items():
            with tempfile.TemporaryDirectory() as directory:
                place = Path(directory) if name == _DISK else _make_place(azurite.address)
                one = _measure(strings, queues, options, azurite, place)
            if number:
                drained.append(one)
    report = Report.of(options)
    for name, drained in found.items():
        report.figures.append(Figure(name, "messages/s", tuple(one.rate for one in drained)))
        report.figures.append(Figure(f"{name}, CPU", "µs/message", tuple(one.cpu for one in drained)))
    stored = found[_STORE]
    report.figures.append(Figure("CPU of Azurite", "µs/message", tuple(one.azurite_cpu for one in stored)))
    report.figures.append(Figure("puts for 100,000 messages", "", tuple(one.puts for one in stored)))
    share = ratio(
        f"{_STORE} against {_DISK}", [one.rate for one in stored], [one.rate for one in found[_DISK]]
    )
    report.targets.append(Target(share, _LEAST, at_least=True))
    return report


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.places", "Measure records in a store.", output=_OUTPUT, rounds=3)
    parser.add_argument("--messages", type=int, default=100_000, help="messages of a drain")
    parser.add_argument("--queues", type=int, default=10, help="backlog queues")
    options = parser.parse_args()
    os.environ[_KEY_ENV] = _KEY
    queues = backlog_queue_names("contoso", options.queues)
    with running_broker(queues) as strings, _running_azurite() as azurite:
        report = _compare(strings, queues, options, azurite)
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())
