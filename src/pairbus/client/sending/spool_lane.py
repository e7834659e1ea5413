"""A lane of the spool: sends the records of one line, in order, and says how far it has come.

1. Messages that follow each other go together as far as they fit one batch and belong together, so that a
   call is taken as a whole or not at all. After a failure it begins anew with one message, and twice as many
   after each success: a message that fails alone stops nobody before it.
2. What is refused as a list is split. What is refused by itself, for its own sake, is kept with the reason
   and shown (`spool_aside`), and those behind it go on.
3. What does not fit the backlog waits for the primary in a line of its own, so that it does not hold up those
   behind it; unless it belongs to a session whose order is kept. Then they wait with it.
4. Whatever else fails is tried again after a pause, which grows, and at once when something has changed. So a
   path that takes nothing holds up no other one.
5. How far it has come is saved as soon as the disk is free, while the next messages are being sent.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Protocol

from azure.core.exceptions import AzureError

from pairbus.client.state.packing import UnreadableMessages, unpack
from pairbus.client.state.spool_records import SpoolCursor
from pairbus.client.state.spool_store import Held, LineKey, Reading, SpoolStore, Unsent
from pairbus.errors import PairbusError
from pairbus.pairing.errors import MessageTooLargeForBacklog
from pairbus.pairing.headroom import BATCH_RESERVE, MAX_OVERHEAD
from pairbus.plumbing.serial_thread import SerialThread
from pairbus.sdk.failures import describe
from pairbus.timers import Timers

from .backlog_route import DEFAULT_LIMIT
from .message import Message, measure_if_writable, raw_of, session_of

log = logging.getLogger(__name__)
FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_LARGEST_BATCH = 100

OnStay = Callable[[str, list[Message]], None]
Replay = Callable[[str, list[Message], datetime | None], Awaitable[None]]


class UnsendableRecord(PairbusError):
    """What replaying raises for messages that are refused for their own sake. `taken`: how many of them, from
    the first on, were taken all the same.
    """

    def __init__(self, reason: str, *, taken: int = 0) -> None:
        self.taken = taken
        super().__init__(reason)


@dataclass(slots=True)
class SpooledMessage:
    """A message of a record, and the place behind it. `message` is None where the record cannot be read."""

    message: Message | None
    when: datetime | None
    unsent: Unsent
    number: int
    messages: int
    after: SpoolCursor
    #: Whether its session is to stay on the backlog.
    stays: bool = False

    @property
    def path(self) -> str:
        return self.unsent.record.path

    @property
    def belonging(self) -> Any:
        """What the messages of one batch must have in common."""
        if self.message is None:
            return self  # with nobody
        return self.path, self.when, session_of(self.message), raw_of(self.message).annotations or None

    @property
    def size(self) -> float:
        """What it takes of a batch in the backlog, at most."""
        size = 0 if self.message is None else measure_if_writable(self.message)
        return size + MAX_OVERHEAD if size else inf


class LaneDesk(Protocol):
    """What a lane asks of its spool."""

    keeps_sessions: bool
    on_stay: OnStay | None
    thread: SerialThread

    @property
    def stores(self) -> Sequence[SpoolStore]:
        """The oldest first."""

    def is_held(self, key: LineKey) -> bool:
        """Whether there is anything of a line."""

    def release(self, key: LineKey, held: Held) -> None:
        """So much of a line has been dealt with."""

    async def refuse(self, name: str, spooled: SpooledMessage, reason: str) -> None:
        """Keep a message that was refused."""

    async def postpone(self, spooled: SpooledMessage) -> None:
        """Keep a message that waits for the primary."""


class SpoolLane:
    """Sends what is in one line of all stores."""

    def __init__(self, key: LineKey, desk: LaneDesk, replay: Replay, *, timers: Timers) -> None:
        self._key = key
        self._desk = desk
        self._replay = replay
        self._timers = timers
        self._wanted = asyncio.Event()
        self._pause = FIRST_PAUSE
        self._window = 1
        #: Why it waits.
        self.failure: str | None = None
        self._is_blocked = self._is_over = False
        # How far it has come in a store, and how many messages more that is than has been saved.
        self._place: tuple[SpoolStore, Path, SpoolCursor] | None = None
        self._dealt = 0
        self._saving: asyncio.Task[None] | None = None
        self._moving: asyncio.Task[None] | None = None

    def nudge(self) -> None:
        """Something has changed: try again at once."""
        self._pause = FIRST_PAUSE
        self._wanted.set()

    async def run(self, *, at_once: bool) -> None:
        """Send until nothing is left."""
        if not at_once:
            await self._rest()
        while self._is_needed():
            self._wanted.clear()
            try:
                if await self._drain():
                    self._pause = FIRST_PAUSE
            except Exception as error:  # rule 4, whatever it is
                log.exception("the spool could not be sent")
                self.failure = repr(error)
            if self._is_needed():
                await self._rest()

    def stop(self) -> None:
        """End after the call under way. To cancel its task is not enough: the SDK may swallow that."""
        self._is_over = True
        self._wanted.set()

    def _is_needed(self) -> bool:
        return not self._is_over and self._desk.is_held(self._key)

    async def save(self) -> None:
        """Have on the disk how far it has come."""
        if self._moving is not None:
            await asyncio.wait({self._moving})
        while self._saving is not None or self._place is not None:
            if self._saving is None:
                self._saving = asyncio.get_running_loop().create_task(self._save())
            await asyncio.wait({self._saving})

    async def _rest(self) -> None:
        timer = self._timers.call_at(self._timers.now() + self._pause, self._wanted.set)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        try:
            await self._wanted.wait()
        finally:
            timer.cancel()

    # -- sending

    async def _drain(self) -> bool:
        """Send all that is there, the oldest store first; False if something has to wait."""
        for store in list(self._desk.stores):
            while (reading := await self._desk.thread.run(store.read, self._key)) is not None:
                is_done = await self._send_all(store, reading)
                if is_done:
                    self._deal(store, reading.file, SpoolCursor(reading.end), 0)
                await self.save()
                if not is_done:
                    return False
        return True

    async def _send_all(self, store: SpoolStore, reading: Reading) -> bool:
        records = iter(reading.unsent)
        waiting: deque[SpooledMessage] = deque()
        while True:
            while len(waiting) < self._window and (unsent := next(records, None)) is not None:
                waiting.extend(_messages_of(unsent))
            if not waiting:
                return True
            self._is_blocked = False
            for _ in range(await self._send(store, self._batch(waiting))):
                done = waiting.popleft()
                self._deal(store, done.unsent.file, done.after, done.messages)
            if self._is_blocked or self._is_over:
                return False
            self.failure = None

    def _batch(self, waiting: deque[SpooledMessage]) -> list[SpooledMessage]:
        """Rule 1."""
        batch = [waiting[0]]
        size = BATCH_RESERVE + batch[0].size
        for one in islice(waiting, 1, self._window):
            size += one.size
            if size > DEFAULT_LIMIT or one.belonging != batch[0].belonging:
                break
            batch.append(one)
        return batch

    async def _send(self, store: SpoolStore, batch: list[SpooledMessage]) -> int:
        """Send these: how many of them have been dealt with. The rest has to wait if the lane is blocked."""
        first = batch[0]
        messages = [one.message for one in batch if one.message is not None]
        try:
            if first.message is None:
                await self._desk.thread.run(store.put_aside, self._key, first.unsent)
            else:
                if self._desk.on_stay is not None and any(one.stays for one in batch):
                    self._desk.on_stay(first.path, messages)
                await self._replay(first.path, messages, first.when)
        except (UnsendableRecord, MessageTooLargeForBacklog) as error:
            if len(batch) > 1:
                self._window = len(batch) // 2
                return getattr(error, "taken", 0)
            return await self._set_aside(store, first, error)
        except (PairbusError, AzureError, OSError, ValueError, TypeError) as error:
            self._fail(error)
            return getattr(error, "taken", 0)
        self._window = min(2 * self._window, _LARGEST_BATCH)
        return len(batch)

    async def _set_aside(
        self, store: SpoolStore, spooled: SpooledMessage, error: UnsendableRecord | MessageTooLargeForBacklog
    ) -> int:
        """Rules 2 and 3: how many have been dealt with."""
        assert spooled.message is not None
        keeps_order = self._desk.keeps_sessions and session_of(spooled.message) is not None
        if isinstance(error, MessageTooLargeForBacklog) and (self._key.is_late or keeps_order):
            self._fail(error)
            return 0
        # A task of its own: what has been moved is not sent from here again, also if this is called away.
        self._moving = asyncio.get_running_loop().create_task(self._move(store, spooled, error))
        await asyncio.shield(self._moving)
        return 1

    async def _move(
        self, store: SpoolStore, spooled: SpooledMessage, error: UnsendableRecord | MessageTooLargeForBacklog
    ) -> None:
        if isinstance(error, UnsendableRecord):
            name = store.name_of(self._key, spooled.unsent, spooled.number)
            await self._desk.refuse(name, spooled, str(error))
        else:
            await self._desk.postpone(spooled)
        self._deal(store, spooled.unsent.file, spooled.after, spooled.messages)
        spooled.messages = 0  # whoever waited for it deals with no more than its place

    def _fail(self, error: BaseException) -> None:
        self._window, self._is_blocked = 1, True
        told = describe(error).text or repr(error)
        if self.failure != told:
            log.info("the spool of %s waits: %s", self._key.path, told)
        self.failure = told

    # -- how far it has come

    def _deal(self, store: SpoolStore, file: Path, place: SpoolCursor, messages: int) -> None:
        self._place = store, file, place
        self._dealt += messages
        if self._saving is None:
            self._saving = asyncio.get_running_loop().create_task(self._save())

    async def _save(self) -> None:
        try:
            while self._place is not None:
                (store, file, place), dealt = self._place, self._dealt
                self._place, self._dealt = None, 0
                held = await self._desk.thread.run(store.settle, self._key, file, place, dealt)
                if held != Held():
                    self._desk.release(self._key, held)
        except Exception:
            log.exception("it could not be noted what of the spool has been sent")
        finally:
            self._saving = None


def _messages_of(unsent: Unsent) -> Iterator[SpooledMessage]:
    """The messages of a record that have not been dealt with."""
    record, end = unsent.record, SpoolCursor(unsent.end)
    try:
        messages, about = unpack(record.packed)
        when, stays = about["scheduled_for"], about.get("stays", True)  # version 0.1.0 did not say
    except (UnreadableMessages, LookupError):
        yield SpooledMessage(None, None, unsent, 0, record.messages - unsent.sent, end)
        return
    for number, message in enumerate(messages[unsent.sent :], unsent.sent + 1):
        after = SpoolCursor(unsent.begin, number) if number < len(messages) else end
        yield SpooledMessage(message, when, unsent, number - 1, 1, after, stays)
