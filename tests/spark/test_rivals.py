"""Two drivers, each a process with a state of its own: one works at a time, whatever becomes of either."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.counters import OperationKind
from pairbus.errors import UnreachableError
from pairbus.spark.leash.tether import ControlFile, ask_leash
from tests.cli.process import COMMAND, call
from tests.processes import killed_at_end
from tests.tcp_proxy import TcpProxy, proxied

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter, until

PAIR = ["--primary-env", PRIMARY_ENV, "--secondary-env", SECONDARY_ENV]
SESSIONS = ("a", "b", "c")
HOST = socket.gethostname()
HALF = 150
# The shortest that a lease may last, and one of which the last quarter is long enough for any machine.
SHORT_LEASE = 5.0
LONG_LEASE = 20.0


@dataclass(frozen=True)
class Driver:
    """A syphon on its own, seen as an operator of its host sees it."""

    process: subprocess.Popen[bytes]
    state: Path

    def told(self) -> dict[str, Any]:
        """What it says of itself. To ask who has the lease would be to have a free one for a moment."""
        try:
            return ask_leash(ControlFile(self.state).read())
        except UnreachableError:  # it begins
            return {}

    def is_told(self, words: str) -> bool:
        return words in (self.told().get("trouble") or "")

    def waits_for(self, other: Driver) -> bool:
        return self.is_told(f"is held by a syphon (local) on {HOST}, process {other.process.pid}, since ")

    def has_lease(self) -> bool:
        return bool(self.told().get("leases") == {"contoso": "held"})

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


@pytest.fixture
def shop(bare_bus: Bus) -> Bus:
    """A backlog of sessions, whose order shows whether two have worked on it at once."""
    bare_bus.create_entities(queues=[], sessions=["bills"], topics=[])
    bare_bus.shorten_locks(SHORT_LEASE)
    put_half(bare_bus, 0)
    return bare_bus


def put_half(bus: Bus, which: int) -> None:
    numbers = range(which * HALF, (which + 1) * HALF)
    bus.put([Letter(path="bills", id=f"{n:04}", session=SESSIONS[n % len(SESSIONS)]) for n in numbers])


Start = Callable[..., Driver]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as started:

        def begin(name: str, *, secondary: str | None = None) -> Driver:
            variables = dict(os.environ) | ({} if secondary is None else {SECONDARY_ENV: secondary})
            state = tmp_path / name
            flags = ["--engine", "local", "--state", str(state), "--max-rate", "20"]
            with (tmp_path / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*COMMAND, "syphon", "run", *PAIR, *flags], stdout=log, stderr=log, env=variables
                )
            started.enter_context(killed_at_end(process))
            return Driver(process, state)

        yield begin


@contextmanager
def line_to_secondary() -> Iterator[tuple[TcpProxy, str]]:
    """A line that can be cut, and the connection string that leads through it."""
    given = os.environ[SECONDARY_ENV]
    address = given.split("sb://")[1].split("/")[0].split(";")[0]
    with proxied(address) as proxy:
        yield proxy, given.replace(address, proxy.address, 1)


def begin_two(shop: Bus, start: Start, *, secondary: str | None = None) -> tuple[Driver, Driver]:
    """The first one works; the second one waits, and says for whom."""
    first = start("first", secondary=secondary)
    until(lambda: len(shop.found("bills")) > 5)
    second = start("second")
    until(lambda: second.waits_for(first))
    assert lease_line() == f"held by a syphon (local) on {HOST}, process {first.process.pid}"
    return first, second


def lease_line() -> str:
    """What anybody is shown of the lease, up to the time."""
    (line, *_) = call("syphon", "status", *PAIR).stdout.splitlines()
    return line.removeprefix("lease").strip().partition(", since ")[0]


def assert_all_came_in_order(shop: Bus) -> None:
    """What comes a second time is no harm: it comes after the first."""
    until(lambda: shop.left() == 0)
    for place, session in enumerate(SESSIONS):
        arrived = [one.message_id for one in shop.found("bills") if one.session_id == session]
        assert list(dict.fromkeys(arrived)) == [f"{n:04}" for n in range(place, 2 * HALF, len(SESSIONS))]


def sends_by_connection(shop: Bus) -> dict[object, int]:
    tallies = [one for one in shop.primary.counters() if one.kind is OperationKind.SEND]
    return {one.connection: one.count for one in tallies}


@pytest.mark.long
def test_one_that_stood_still_finds_another_at_work_and_follows_it_when_that_is_killed(
    shop: Bus, start: Start
) -> None:
    shop.make_lease(lock=SHORT_LEASE)
    first, second = begin_two(shop, start)
    first.process.send_signal(signal.SIGSTOP)
    until(second.has_lease)
    first.process.send_signal(signal.SIGCONT)
    until(lambda: first.waits_for(second))
    until(lambda: shop.left() == 0)
    put_half(shop, 1)
    until(lambda: len(shop.found("bills")) > HALF + 5)
    second.process.kill()
    until(first.has_lease)
    assert_all_came_in_order(shop)
    assert lease_line() == f"held by a syphon (local) on {HOST}, process {first.process.pid}"
    assert first.end() == 0
    assert lease_line() == "held by nobody"


@pytest.mark.long
def test_one_that_is_cut_off_has_stopped_before_another_begins(shop: Bus, start: Start) -> None:
    shop.make_lease(lock=LONG_LEASE)
    put_half(shop, 1)
    with line_to_secondary() as (line, through_it):
        first, second = begin_two(shop, start, secondary=through_it)
        connections = sends_by_connection(shop).keys()
        line.hangs = True
        until(lambda: first.is_told("the lease of contoso could not be renewed in time"))
        assert shop.left() > 0
        assert not second.has_lease()
        assert lease_line() == f"held by a syphon (local) on {HOST}, process {first.process.pid}"
        until(second.has_lease)
        sent = sends_by_connection(shop)
        line.hangs = False
        until(lambda: first.waits_for(second))
        assert_all_came_in_order(shop)
        after = sends_by_connection(shop)
        assert {one: after[one] for one in connections} == {one: sent[one] for one in connections}
        assert second.end() == 0
        until(first.has_lease)
        assert first.end() == 0
