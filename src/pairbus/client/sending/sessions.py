"""Order of sessions: calls that keep their line, and sessions that stay on the backlog until all is home.

Theory of operation
-------------------

1. A session *stays* from the moment that a message of it is on its way to the backlog. What is sent to it
   goes to the backlog too, also when its entity is healthy again; all other sessions go to the primary. A
   call with several sessions of which one stays goes to the backlog as a whole, and then all of them stay.
2. Whether its messages have come home is told by the backlog queues: a message is completed there only after
   the primary has confirmed it. So they are *looked* through, by peeking, once a ping interval, as long as a
   session stays whose entity is up. This needs the Listen claim, works whoever runs the syphon, and sees what
   other clients have sent to the session.
3. A look is a moment long, and sends go on meanwhile. A session leaves only if none of its messages was seen,
   and none was on its way to the backlog when the look began or since.
4. A session that is sent to without a pause would never be found empty. One that a look finds to be few, and
   coming home, is *held*: its sends wait for the next looks, which come soon, and then go to the primary. If
   that takes too long they go to the backlog once more.
5. The first look, at the start, finds what an earlier process has left in the backlog: those sessions stay,
   too. Who sends to a session waits for it, but not for long; if it fails it is made again as long as they
   wait. Of those that follow then, who sends to the primary waits for none, and who sends to the backlog may
   begin one.
6. What cannot be looked at tells nothing: the sessions stay.
7. Calls of one session that run side by side keep their *line*: each waits until those before it have ended,
   whatever became of them, so that neither a second try nor another link nor another way lets one overtake.
   A call with several sessions is in the lines of all of them. One that is called away leaves its place to
   whoever is behind it only when those before it are gone.
8. What is spooled while its session stays says so, also to the next process: there the session stays as well
   until the first look tells what it has in the backlog. What it has in the spool does not make it stay: that
   is sent in order, others go behind it, and what does not fit the backlog would wait for ever.
9. A session that stays is bound to the queue in which it waits, since order is kept within one queue. It may
   be in several, after a lost answer or in the place of a full queue: then to that of the youngest message.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.client.status import SessionsStatus
from pairbus.errors import PairbusError
from pairbus.pairing.names import path_key
from pairbus.timers import TimerHandle, Timers

from .message import Message, session_of
from .rounds import Bond

log = logging.getLogger(__name__)
# Rule 4: as many as a syphon moves within a moment; how soon the next look comes; how long sends wait at
# most.
_FEW = 100
_SOON = 0.5
_LONGEST_HOLD = 5.0


class SessionKey(NamedTuple):
    """A session of a path, in the path's canonical form."""

    path: str
    session: str


@dataclass(slots=True)
class SessionPicture:
    """What a look has seen: how many messages of each session, the first of them in each queue, and when and
    where the youngest was enqueued.

    `is_whole` is False where it ended early, since everybody who was looked for had been seen.
    """

    counts: dict[SessionKey, int] = field(default_factory=dict)
    firsts: dict[SessionKey, dict[str, int]] = field(default_factory=dict)
    youngest: dict[SessionKey, tuple[int, str]] = field(default_factory=dict)
    is_whole: bool = True
    looked_at: int = 0

    def note(self, key: SessionKey, queue: str, number: int, *, at: int = 0) -> None:
        """A message of this session was seen, which was enqueued `at` that time."""
        self.counts[key] = self.counts.get(key, 0) + 1
        self.firsts.setdefault(key, {}).setdefault(queue, number)
        self.youngest[key] = max(self.youngest.get(key, (at, queue)), (at, queue))


#: Looks through the backlog, for these sessions or, if it is given none, for all.
Look = Callable[[set[SessionKey] | None], Awaitable[SessionPicture]]


@dataclass(slots=True, eq=False)
class _Stay:
    queue: str | None = None
    on_the_way: int = 0
    redirects: int = 0
    firsts: dict[str, int] | None = None
    hold: asyncio.Future[None] | None = None
    hold_ends: float = 0.0


class StayingSessions:
    """The sessions of one client that stay on the backlog."""

    def __init__(
        self,
        look: Look,
        *,
        timers: Timers,
        interval: float,
        is_up: Callable[[str], bool],
    ) -> None:
        """`is_up`: whether a path goes to the primary."""
        self._look = look
        self._timers = timers
        self._interval = interval
        self._is_up = is_up
        #: The sessions that stay. Sends look at whether there are any.
        self.staying: dict[SessionKey, _Stay] = {}
        # The last call in the line of each session: done when it has ended.
        self._lines: dict[SessionKey, asyncio.Future[None]] = {}
        self._has_adopted = True
        #: Done when nobody waits for the first look any more: rule 5.
        self._first: asyncio.Future[None] | None = None
        self._first_ends = self._looked_at = 0.0
        self._timer: TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._last_error: str | None = None

    # -- sends

    def stay_of(self, path: str, messages: Sequence[Message]) -> _Stay | None:
        """Why this call has to go to the backlog, if it has to; one that is held rather than others."""
        stays = [stay for key in _keys(path, messages) if (stay := self.staying.get(key)) is not None]
        return next((stay for stay in stays if stay.hold is not None), stays[0] if stays else None)

    @contextmanager
    def redirecting(self, path: str, messages: Sequence[Message]) -> Iterator[Bond | None]:
        """Around a call that goes to the backlog; rules 1, 3 and 9."""
        stays = [self.staying.setdefault(key, _Stay()) for key in _keys(path, messages)]
        bond = Bond(next((stay.queue for stay in stays if stay.queue is not None), None)) if stays else None
        for stay in stays:
            stay.on_the_way += 1
            stay.redirects += 1
        try:
            yield bond
        finally:
            for stay in stays:
                stay.on_the_way -= 1
                stay.queue = None if bond is None else bond.queue
            self._arm(self._interval)

    @asynccontextmanager
    async def in_line(
        self, path: str, messages: Sequence[Message], deadline: float | None
    ) -> AsyncIterator[None]:
        """Rule 7, around a call; OperationTimeoutError if its time is over before its turn."""
        keys = _keys(path, messages)
        before = {last for key in keys if (last := self._lines.get(key)) is not None}
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.update(dict.fromkeys(keys, place))
        try:
            for each in before:
                if not await self._wait_for(each, deadline):
                    raise OperationTimeoutError(
                        message="Earlier messages of the session were not sent in the time given to the call."
                    )
            yield
        finally:
            self._leave_line(keys, place, [each for each in before if not each.done()])

    def _leave_line(
        self, keys: list[SessionKey], place: asyncio.Future[None], before: Collection[asyncio.Future[None]]
    ) -> None:
        def leave(_: object) -> None:
            place.set_result(None)
            for key in keys:
                if self._lines.get(key) is place:
                    del self._lines[key]

        if before:
            asyncio.gather(*before).add_done_callback(leave)
        else:
            leave(None)

    async def find_out(self, path: str, messages: Sequence[Message], deadline: float | None) -> None:
        """Rule 5: wait for the look that is under way, or begin one, unless it is known what there was."""
        if self._has_adopted or not _keys(path, messages):
            return
        awaited, ends = self._first, self._first_ends
        if awaited is None:
            if self._task is None and self._timers.now() >= self._looked_at + _LONGEST_HOLD:
                self._begin_look()
            awaited, ends = self._task, self._looked_at + _LONGEST_HOLD
        if awaited is not None:
            await self._wait_for(awaited, ends if deadline is None else min(ends, deadline))

    async def wait_out(self, stay: _Stay, deadline: float | None) -> None:
        """Rule 4: wait until a hold is over; OperationTimeoutError if the caller's time is over first."""
        if stay.hold is not None and not await self._wait_for(stay.hold, deadline):
            raise OperationTimeoutError(
                message="What the session has in the backlog did not come home in the time given to the call."
            )

    async def _wait_for(self, awaited: asyncio.Future[None], deadline: float | None) -> bool:
        """Whether it was done before the deadline."""
        over = asyncio.Event()
        awaited.add_done_callback(lambda _: over.set())
        timer = None if deadline is None else self._timers.call_at(deadline, over.set)
        try:
            await over.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return awaited.done()

    def stays(self, path: str, messages: Sequence[Message]) -> bool:
        """Whether a session of a call stays, or may: what an earlier process has left is not known yet."""
        keys = _keys(path, messages)
        return bool(keys) and (not self._has_adopted or any(key in self.staying for key in keys))

    def remember(self, path: str, messages: Sequence[Message]) -> None:
        """Rule 8."""
        if not self._has_adopted:
            for key in _keys(path, messages):
                self.staying.setdefault(key, _Stay())
            self._arm(self._interval)

    # -- looks

    def start(self) -> None:
        """Rule 5."""
        self._has_adopted = False
        self._first = asyncio.get_running_loop().create_future()
        self._first_ends = self._timers.now() + _LONGEST_HOLD
        self._begin_look()

    @property
    def is_looking_first(self) -> bool:
        """Whether it is not known yet what earlier processes have left, but soon."""
        return self._first is not None

    def status(self) -> SessionsStatus:
        """A picture of this moment."""
        return SessionsStatus(staying=len(self.staying), last_error=self._last_error)

    def wake(self) -> None:
        """Let everybody go who is held."""
        for stay in self.staying.values():
            _release(stay)

    async def close(self) -> None:
        """Look no more, and let everybody go who is held."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_first()
        self.wake()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _arm(self, delay: float) -> None:
        if self._timer is None and self._task is None and not self._is_closed:
            self._timer = self._timers.call_at(self._timers.now() + delay, self._begin_look)

    def _begin_look(self) -> None:
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._looked_at = self._timers.now()
        self._task = asyncio.get_running_loop().create_task(self._look_once())

    async def _look_once(self) -> None:
        try:
            if not self._has_adopted or any(self._is_up(key.path) for key in self.staying):
                await self._look_through()
            self._last_error = None
        except (PairbusError, OSError) as error:  # rule 6
            self._last_error = str(error)
            log.info("the backlog cannot be looked through, its sessions stay there: %s", error)
        except Exception as error:
            self._last_error = f"{type(error).__name__}: {error}"
            log.exception("the backlog cannot be looked through, its sessions stay there")
        finally:
            self._task = None
            self._end_holds()
            if self._has_adopted or self._timers.now() >= self._first_ends or self._is_closed:
                self._end_first()
            if self.staying or not self._has_adopted:
                is_urgent = self._first is not None or any(stay.hold for stay in self.staying.values())
                self._arm(_SOON if is_urgent else self._interval)

    def _end_first(self) -> None:
        if self._first is not None:
            self._first.set_result(None)
            self._first = None

    async def _look_through(self) -> None:
        before = {key: stay.redirects for key, stay in self.staying.items() if not stay.on_the_way}
        picture = await self._look(set(self.staying) if self._has_adopted else None)
        if not self._has_adopted:
            self._has_adopted = True
            for key in picture.firsts:
                self.staying.setdefault(key, _Stay())
        for key, stay in list(self.staying.items()):
            if key in picture.counts:
                self._note_seen(key, stay, picture)
            elif before.get(key) == stay.redirects:
                del self.staying[key]
                _release(stay)

    def _note_seen(self, key: SessionKey, stay: _Stay, picture: SessionPicture) -> None:
        firsts, earlier = picture.firsts[key], stay.firsts
        stay.firsts = firsts
        stay.queue = stay.queue or picture.youngest[key][1]
        is_coming_home = earlier is not None and earlier != firsts
        is_few = picture.is_whole and picture.counts[key] <= _FEW
        if stay.hold is None and is_coming_home and is_few and self._is_up(key.path):
            stay.hold = asyncio.get_running_loop().create_future()
            stay.hold_ends = self._timers.now() + _LONGEST_HOLD

    def _end_holds(self) -> None:
        now = self._timers.now()
        for stay in self.staying.values():
            if stay.hold is not None and now >= stay.hold_ends:
                _release(stay)


def _keys(path: str, messages: Sequence[Message]) -> list[SessionKey]:
    canonical = path_key(path)
    found = {session for message in messages if (session := session_of(message)) is not None}
    return [SessionKey(canonical, session) for session in sorted(found)]


def _release(stay: _Stay) -> None:
    hold, stay.hold = stay.hold, None
    if hold is not None and not hold.done():
        hold.set_result(None)
