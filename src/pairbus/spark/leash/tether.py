"""The other ends of a leash of sockets: of a pump, the planner, and a command to a running syphon."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from pairbus.backlog.served_queue import ServedQueue
from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.files import SECRET, hold_alone, make_directory, publish, read_file
from pairbus.plumbing.hosts import os_reason
from pairbus.plumbing.json_text import parse_json
from pairbus.stores.places import RecordPlace
from pairbus.stores.store import open_store

from .leash import LINE_LIMIT, LeashAddress, Order, PumpNews, PumpSeen, read_line, write_line

log = logging.getLogger(__name__)
#: A driver that leaves news unanswered for so long is taken for dead.
STALE = 15.0
# The driver is near; a connection takes milliseconds.
_DEADLINE = 15.0


class Tether(ABC):
    """A pump's end. `order` is what the driver wants now; `changed` is set whenever that changes."""

    def __init__(self) -> None:
        self.order: Order = "run"
        #: Seconds that are left of the epoch; None if it has no end.
        self.left: float | None = None
        #: Whether the order to stop is ours, because the driver cannot be heard any more.
        self.is_cut = False
        #: This pump's part of the limits that are the job's.
        self.share = 1.0
        self.changed = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    @abstractmethod
    def tell(self, news: PumpNews) -> None:
        """Tell the driver how it goes."""

    @abstractmethod
    def complain(self, fault: str, *, is_final: bool = False) -> None:
        """Tell the driver why this pump cannot work, and whether no pump ever will."""

    @abstractmethod
    def report(self, row: Mapping[str, Any]) -> None:
        """Tell the driver, at the end, what was done."""

    @abstractmethod
    async def close(self) -> None:
        """Let go; what was told before still arrives."""

    def _obey(self, order: Order) -> None:
        if order != self.order:
            self.order = order
            self.changed.set()

    def _start_listening(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._keep_listening())

    async def _keep_listening(self) -> None:
        """Listen; a pump that cannot hear the driver must end, since nobody could stop it."""
        try:
            await self._listen()
        except Exception:
            log.exception("the driver cannot be heard any more")
            self._cut()

    @abstractmethod
    async def _listen(self) -> None:
        """Obey, until the leash is cut or let go."""

    def _cut(self) -> None:
        self.is_cut = self.order != "stop"
        self._obey("stop")


class SocketTether(Tether):
    """Holds a connection to the driver."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer
        # News that the driver has not answered yet.
        self._asked = 0

    @classmethod
    async def connect(
        cls, address: LeashAddress, records: Sequence[RecordPlace], *, pump: PumpSeen, timed: bool
    ) -> SocketTether:
        """Connect, and prove that `records` are the places that the driver means."""
        try:
            async with asyncio.timeout(_DEADLINE):
                reader, writer = await asyncio.open_connection(address.host, address.port, limit=LINE_LIMIT)
        except OSError as error:  # a time-out is one too
            raise UnreachableError(
                f"{socket.gethostname()} cannot reach the driver at {address.host}:{address.port} "
                f"({os_reason(error)}); give the driver an address that executors can reach: --driver-host"
            ) from None
        tether = cls(reader, writer)
        mark = secrets.token_hex(8)
        proof = f".proof-{mark}"
        hello = {
            **pump._asdict(),
            "token": address.token,
            "role": "pump",
            "timed": timed,
            "proof": proof,
            "mark": mark,
        }
        try:
            for place in records:
                await asyncio.to_thread(_write_proof, place, proof, mark)
            await tether._introduce(hello)
        except BaseException:
            writer.close()
            raise
        finally:
            for place in records:
                with suppress(OSError):
                    await asyncio.to_thread(open_store(place).delete, proof)
        return tether

    async def _introduce(self, hello: Mapping[str, Any]) -> None:
        write_line(self._writer, hello)
        try:
            async with asyncio.timeout(_DEADLINE):
                answer = await read_line(self._reader)
        except TimeoutError:
            raise UnreachableError("the driver of the syphon does not answer") from None
        if answer is None:
            self._cut()  # the driver has gone between two lines
            return
        if "refused" in answer:
            raise ConfigurationError(str(answer["refused"]))
        self.order, self.left, self.share = answer["order"], answer["left"], answer["share"]
        self._start_listening()

    async def _listen(self) -> None:
        while (said := await self._hear()) is not None:
            self.share = said.get("share", self.share)
            self._obey(said.get("order", self.order))
        self._cut()

    async def _hear(self) -> dict[str, Any] | None:
        """The next line; None if the driver is gone. When its lease ends no pump of it may work."""
        while True:
            asked = self._asked
            try:
                async with asyncio.timeout(STALE):
                    found = await read_line(self._reader)
            except TimeoutError:
                if asked and self._asked > asked:  # it was told something, and something after that
                    return None
                continue
            self._asked = 0
            return found

    def tell(self, news: PumpNews) -> None:
        self._asked += 1
        self._write(asdict(news))

    def complain(self, fault: str, *, is_final: bool = False) -> None:
        self._write({"fault": fault, "is_final": is_final})

    def report(self, row: Mapping[str, Any]) -> None:
        self._write({"row": dict(row)})

    def _write(self, value: Mapping[str, Any]) -> None:
        if not self._writer.is_closing():
            write_line(self._writer, value)

    async def close(self) -> None:
        # A socket that is closed with something unread in it resets the connection, and what was told last
        # may get lost. So say that this is the end, and listen until the driver has hung up.
        with suppress(OSError):  # a time-out is one too
            async with asyncio.timeout(_DEADLINE):
                self._writer.write_eof()
                if self._listener is not None:
                    await self._listener
        if self._listener is not None:
            self._listener.cancel()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


def _write_proof(place: RecordPlace, proof: str, mark: str) -> None:
    try:
        open_store(place).put(proof, mark.encode())
    except OSError as error:
        raise ConfigurationError(
            f"{socket.gethostname()} cannot write to {place} ({error.strerror or error}); give --records a "
            "place that driver and executors share"
        ) from None


class SocketPlannerTether:
    """The planner's end: it asks whether there is another epoch, and which queues are served in it."""

    def __init__(self, address: LeashAddress) -> None:
        self._address = address
        self._stream: TextIO | None = None

    def next_epoch(self) -> list[ServedQueue] | None:
        """Its queues; None if the driver has stopped. UnreachableError, which ends the query, if it died."""
        try:
            answer = self._ask()
        except (OSError, ValueError):  # the connection may be broken, and the driver well
            self._hang_up()
            try:
                answer = self._ask()
            except (OSError, ValueError) as error:
                self._hang_up()
                raise UnreachableError(f"the driver of the syphon does not answer ({error})") from None
        queues = answer["queues"]
        return None if queues is None else [ServedQueue(pair, name) for pair, name in queues]

    def _ask(self) -> dict[str, Any]:
        if self._stream is None:
            self._stream = _open(self._address, {"role": "planner"})
        self._stream.write("{}\n")
        self._stream.flush()
        answer = parse_json(self._stream.readline())
        if not isinstance(answer, dict) or "queues" not in answer:
            raise ValueError("no answer")
        return answer

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _open(address: LeashAddress, hello: Mapping[str, Any]) -> TextIO:
    connection = socket.create_connection((address.host, address.port), timeout=_DEADLINE)
    stream = connection.makefile("rw", encoding="utf-8", newline="\n")
    connection.close()  # the stream keeps the socket
    stream.write(json.dumps({**hello, "token": address.token}) + "\n")
    stream.flush()
    return stream


def ask_leash(address: LeashAddress, order: Order | None = None) -> dict[str, Any]:
    """Give a running syphon an order, or only ask how it is; its answer."""
    try:
        with _open(address, {"role": "control", "order": order}) as stream:
            answer = parse_json(stream.readline() or "null")
    except (OSError, ValueError) as error:
        why = os_reason(error) if isinstance(error, OSError) else str(error)
        raise UnreachableError(
            f"the syphon does not answer ({why}): it was killed, or stands still; `pairbus syphon "
            "status` shows who works on the pair"
        ) from None
    if not isinstance(answer, dict):
        raise UnreachableError("the syphon does not answer to this token: it was started anew; ask again")
    return answer


class ControlFile:
    """Where a running syphon leaves its address for its owner; a lock keeps a second one from its state."""

    def __init__(self, state: Path) -> None:
        self.path = state / "syphon.json"
        self._lock = state / "syphon.lock"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only syphon of this state meanwhile; UnreachableError if there is one already."""
        make_directory(self.path.parent, follows=True)
        with hold_alone(self._lock) as lock:
            if lock is None:
                raise UnreachableError(
                    f"a syphon runs already with the state {self.path.parent}: let it do the work, stop it "
                    "with `pairbus syphon stop`, or give this one a --state of its own"
                )
            try:
                yield
            finally:
                self.path.unlink(missing_ok=True)

    def check_free(self) -> None:
        """UnreachableError if there is a syphon with this state; for whoever would start Spark in vain."""
        with self.held():
            return

    def write(self, address: LeashAddress) -> None:
        said = json.dumps({**address._asdict(), "pid": os.getpid()})
        # Not durably: it means nothing to a machine that was restarted.
        publish(self.path, said, mode=SECRET, durable=False)

    def read(self) -> LeashAddress:
        """The address of the syphon that runs with this state; UnreachableError if there is none."""
        try:
            found = parse_json(read_file(self.path))
            return LeashAddress(found["host"], found["port"], found["token"])
        except (OSError, ValueError, KeyError, TypeError):
            raise UnreachableError(
                f"no syphon runs with the state directory {self.path.parent}; `pairbus syphon status` shows "
                "whether one works on the pair from elsewhere"
            ) from None
