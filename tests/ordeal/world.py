"""Two brokers, an application and a pump, each a process, and what can be done to them from outside."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from signal import Signals
from typing import Any

from pairbus.broker import Broker, QueueSettings
from pairbus.broker.engine.message import StoredMessage
from pairbus.broker.engine.namespace import Namespace
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.segment import closed_segments, read_segment
from tests.waiting import PATIENCE, wait_until

from .journal import BACKLOG, body_of
from .lines import Lines
from .signals import CLOCK_FILE, HOUR

__all__ = ["ACTORS", "SIDES", "World", "until"]

ROOT = Path(__file__).resolve().parents[2]
SIDES = {"primary": "contoso", "secondary": "contoso-dr"}
ACTORS = (*SIDES, "application", "pump")
# A broker starts in a second; on a machine with other things to do, in a multiple.
START = 120.0
# Slow enough to be in the middle of the backlog when something happens.
PUMP_RATE = "60"


def until(is_so: Callable[[], object], *, what: str, within: float = 2 * PATIENCE) -> None:
    """With the patience that several processes need."""
    wait_until(is_so, what=what, within=within)


class World:
    """All that runs. Directories of actors may be put on a disk of their own before the start."""

    def __init__(self, directory: Path, lines: Lines | None = None) -> None:
        self.directory = directory
        self.lines = lines
        self.journal = directory / "journal"
        self.journal.touch()
        self._strings: dict[str, str] = {}
        self._ports = dict.fromkeys(SIDES, 0)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self._has_died = False

    def __enter__(self) -> World:
        return self

    def __exit__(self, *details: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._stack.close()

    def place(self, actor: str) -> Path:
        """Where an actor keeps its files: messages, the state of an application, the records of a pump."""
        return self.directory / actor

    # -- what runs

    def create_queues(self) -> None:
        for side, name in SIDES.items():
            with Broker({name: 0}, data_dir=self.place(side)) as broker:
                for queue in ["orders"] if side == "primary" else BACKLOG:
                    broker[name].create_queue(queue, QueueSettings(max_delivery_count=1000))

    def start(self, actor: str, *, rate: str = PUMP_RATE) -> None:
        self._processes[actor] = subprocess.Popen(
            [*self._prefix(actor), sys.executable, "-m", *self._arguments(actor, rate)],
            cwd=ROOT,
            env={**os.environ, CLOCK_FILE: str(self._clock(actor))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stack.enter_context((self.directory / f"{actor}.log").open("ab")),
        )

    def start_all(self) -> None:
        for side in SIDES:
            self.start(side)
        for side in SIDES:
            self.await_start(side)
        for actor in ("application", "pump"):
            self.start(actor)

    def _prefix(self, actor: str) -> list[str]:
        return [] if self.lines is None else self.lines.inside(actor)

    def _arguments(self, actor: str, rate: str) -> list[str]:
        if actor in SIDES:
            self._ready(actor).unlink(missing_ok=True)
            host = "127.0.0.1" if self.lines is None else self.lines.address(actor)
            arguments = ["--namespace", f"{SIDES[actor]}={self._ports[actor]}", "--host", host]
            arguments += ["--data", str(self.place(actor)), "--ready-file", str(self._ready(actor))]
            return ["tests.ordeal.broker", *arguments, "--log-level", "error"]
        self.place(actor).mkdir(exist_ok=True)
        options = [rate] if actor == "pump" else []
        given = [str(self.journal), str(self.place(actor)), *options, *self._strings.values()]
        return [f"tests.ordeal.{actor}", *given]

    def _ready(self, side: str) -> Path:
        return self.directory / f"{side}.json"

    def _clock(self, actor: str) -> Path:
        return self.directory / f"{actor}.clock"

    def await_start(self, side: str) -> None:
        """Wait until a broker can be reached, and learn where."""
        started = f"{side} starts"
        until(lambda: self._ready(side).exists() or not self.runs(side), what=started, within=START)
        assert self.runs(side), self.log_of(side)
        described: dict[str, Any] = json.loads(self._ready(side).read_text(encoding="utf-8"))[SIDES[side]]
        self._ports[side] = described["port"]
        self._strings[side] = described["connection_string"]

    def runs(self, actor: str) -> bool:
        return actor in self._processes and self._processes[actor].poll() is None

    def log_of(self, actor: str) -> str:
        return f"{actor}: " + (self.directory / f"{actor}.log").read_text(encoding="utf-8")[-3000:]

    def stop(self, actor: str) -> None:
        """Let it end by itself."""
        process = self._processes.pop(actor)
        process.terminate()
        code = process.wait(2 * PATIENCE)
        # A command that has only begun to start says so by its exit code.
        assert code in (0, -signal.SIGTERM, 128 + signal.SIGTERM), self.log_of(actor)

    def revive(self) -> None:
        """Start again what has died, as whoever minds processes would."""
        for actor in ACTORS:
            if not self.runs(actor):
                self._start_anew(actor)

    def _start_anew(self, actor: str) -> None:
        self._has_died |= actor == "application"
        self.start(actor)
        if actor in SIDES:
            self.await_start(actor)

    # -- what is done to it

    def signal(self, actor: str, number: signal.Signals) -> None:
        self._processes[actor].send_signal(number)

    @contextmanager
    def killed(self, actor: str) -> Iterator[None]:
        self.signal(actor, signal.SIGKILL)
        self._processes.pop(actor).wait()
        yield
        self._start_anew(actor)

    @contextmanager
    def stopped(self, actor: str) -> Iterator[None]:
        self.signal(actor, signal.SIGSTOP)
        stat = Path(f"/proc/{self._processes[actor].pid}/stat")
        until(
            lambda: stat.read_text(encoding="utf-8").rpartition(") ")[2][0] == "T",
            what=f"{actor} stands still",
        )
        yield
        self.signal(actor, signal.SIGCONT)

    @contextmanager
    def an_hour_ahead(self, actor: str) -> Iterator[None]:
        self._set_clock(actor, signal.SIGUSR1, HOUR)
        yield
        self._set_clock(actor, signal.SIGUSR2, 0.0)

    @contextmanager
    def an_hour_behind(self, actor: str) -> Iterator[None]:
        self._set_clock(actor, signal.SIGUSR2, -HOUR)
        yield
        self._set_clock(actor, signal.SIGUSR1, 0.0)

    def _set_clock(self, actor: str, number: Signals, ahead: float) -> None:
        """Have a process set its clock, and tell by it what time it is there."""
        told = self._clock(actor)
        told.unlink(missing_ok=True)
        self.signal(actor, number)
        until(told.exists, what=f"the clock of {actor} jumps")
        there = float(told.read_text(encoding="ascii"))
        assert abs(there - time.time() - ahead) < PATIENCE, f"{actor} is at {there}"

    @contextmanager
    def cut_off(self, side: str) -> Iterator[None]:
        with self._unreachable(side, self._laid.cut):
            yield

    @contextmanager
    def not_answering(self, side: str) -> Iterator[None]:
        with self._unreachable(side, self._laid.one_way):
            yield

    @contextmanager
    def _unreachable(
        self, side: str, trouble: Callable[[str], AbstractContextManager[None]]
    ) -> Iterator[None]:
        lines, port = self._laid, self._ports[side]
        assert lines.reaches(side, port)
        with trouble(side):
            assert not lines.reaches(side, port), f"the line of {side} is whole"
            yield

    @contextmanager
    def behind_a_slow_line(self, side: str) -> Iterator[None]:
        lines = self._laid
        with lines.slow(side):
            until(lambda: lines.holds_back(side), what=f"the line of {side} is slow")
            yield

    @property
    def _laid(self) -> Lines:
        assert self.lines is not None, "this world has no lines"
        return self.lines

    @contextmanager
    def without_descriptors(self, actor: str) -> Iterator[None]:
        pid = self._processes[actor].pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        opened = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened, before[1]))
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] == opened
        yield
        if self.runs(actor):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    @contextmanager
    def on_a_full_disk(self, actor: str) -> Iterator[None]:
        filler = self.place(actor) / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue
        assert os.statvfs(self.place(actor)).f_bavail == 0, "there is room left"
        yield
        filler.unlink()

    # -- what was told

    def told(self, word: str) -> list[str]:
        lines = self.journal.read_text(encoding="utf-8").splitlines()
        return [line.split()[1] for line in lines if line.startswith(f"{word} ")]

    def sends_on(self, more: int = 20) -> None:
        """Wait until so many more sends have returned."""
        wanted = len(self.told("done")) + more
        until(lambda: len(self.told("done")) >= wanted, what=f"{more} more sends")

    def backlog_moves(self) -> None:
        """Wait until the pump has written receipts."""
        records = self.place("pump")
        until(
            lambda: any(path.stat().st_size for path in records.glob(".receipts-*")),
            what="the pump moves something",
        )

    # -- the verdict

    def settle(self) -> None:
        """All is well again: let the application empty its spool, and a pump the backlog."""
        self.stop("application")
        if self._has_died:  # what it left in its spool was taken over, or is now
            self.start("application")
            self.sends_on(1)
            self.stop("application")
        self.stop("pump")
        self.start("pump", rate="all")
        code = self._processes.pop("pump").wait(2 * PATIENCE)
        assert code == 0, self.log_of("pump")
        for side in SIDES:
            self.stop(side)

    def judge(self) -> list[str]:
        """What is wrong with what came of all sends; nothing, if all is well."""
        begun, done = set(self.told("begun")), set(self.told("done"))
        open_ends = begun - done - set(self.told("failed"))
        found = self._messages("primary", "orders")
        copies = Counter(message.message_id for message in found)
        unknown = sum(map(int, self.told("unknown"))) + len(open_ends) + self._doubted()
        extra = sum(copies.values()) - len(copies)
        buried = self._messages("primary", "orders/$DeadLetterQueue")
        left = [one for queue in BACKLOG for one in self._messages("secondary", queue)]
        buried += [
            one for queue in BACKLOG for one in self._messages("secondary", f"{queue}/$DeadLetterQueue")
        ]
        wrong = [f"lost: {name}" for name in sorted(done - copies.keys())]
        wrong += [f"unexpected: {name}" for name in sorted(copies.keys() - begun)]
        wrong += [f"altered: {one.message_id}" for one in found if not _is_whole(one)]
        wrong += [f"left in the backlog: {one.message_id}" for one in left]
        wrong += [f"buried: {one.message_id}" for one in buried]
        if extra > unknown:
            wrong.append(f"duplicated: {extra} messages, where {unknown} had no known outcome")
        return wrong

    def _doubted(self) -> int:
        """How many messages pumps have sent of which they knew that another one might have before."""
        files = closed_segments(self.place("pump"), RECEIPTS)
        rows = [row for file in files for row in read_segment(file).rows]
        return sum(row["unsure"] for row in rows)

    def _messages(self, side: str, queue: str) -> list[StoredMessage]:
        with Broker({SIDES[side]: 0}, data_dir=self.place(side)) as broker:

            def peek(engine: Namespace, now: float) -> list[StoredMessage]:
                node: Any = engine.node(queue)
                # Copies have their contents with them, wherever these were.
                return [each.copy(each.sequence_number) for each in node.peek(0, 1_000_000, now)]

            return broker[SIDES[side]]._run(peek)


def _is_whole(message: StoredMessage) -> bool:
    return body_of(message.message_id).encode() in message.body_bytes
