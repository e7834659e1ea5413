"""What may be sent when: the lanes of one backlog queue. Pure; time comes in as an argument.

Theory of operation
1. A *lane* is a path with a session, or a path's messages without one. Order is kept within a lane, by the
   sequence numbers of the backlog queue, and nowhere else.
2. A message of a lane is in one of four places:

       waiting    in our hands, under lock, to be sent
       away       with the shell: being sent, put aside, renewed or buried
       deferred   on the queue, put aside; its number brings it back
       missing    on the queue, but locked by somebody else: a process that has died, or a link of ours that
                  was cut. It will come by itself when that lock ends, unless somebody has settled it

3. In a lane with a session, one unit is on the way at a time: one message, or a batch that is taken whole or
   not at all. A message leaves only if none before it is away, deferred or missing. So order holds whatever
   fails. Without a session, all that wait are sent at once, after those that are deferred.
4. While a path is down, what waits is deferred at once: lock expiry is never used as a back-off, since it
   would come straight back. When the back-off is over one lane tries the path with its first message; when
   that was taken the lanes fetch what is deferred by number, in order, before newer ones are sent.
5. What waits for a missing message is deferred too, so that it holds no credit. After a lock's duration the
   number is looked for; if it is gone, the lane goes on.
6. A message is sent only while its lock has more than `margin` left. Otherwise it is renewed first; if that
   fails it is missing, or still deferred if it was. So it is with one that could not be put aside: perhaps it
   was, and only the answer got lost.
7. A batch that is refused for what is in it is sent again message by message, so that only the one that is
   poison ends in the dead letters.
8. Where there is a limit to the rate, `plan` is told what room there is, and takes no more than that: what
   has to wait does so in its lane, where its lock is looked after. In the shell's hands the locks of all that
   wait would run out before they are sent, at a rate that is low enough, and nothing would move at all. Lanes
   take turns.
9. `plan` returns steps; the shell carries each out and reports every message of it back, by exactly one of
   `moved`, `refused`, `unsent`, `put_aside`, `renewed`, `lost`, `buried`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Generic

from .destinations import Condition, Destinations, PathState
from .judgement import Judgement, Remedy
from .rate import Room
from .steps import Bury, H, LaneStep, StepList

# A batch has at most so many messages. The service takes 4,500; fewer are lost to one refusal.
BATCH_MESSAGES = 100
# And at most so many bytes: the Standard tier takes 256 KB.
BATCH_BYTES = 200_000
# Fetched at a time: more would only wait under lock.
FETCH_MESSAGES = 200
# The path of what is never sent from its lane, so that no path that is down keeps it and it keeps nothing.
SETTLING = ""

_Key = tuple[str, str | None]


@dataclass(slots=True, eq=False)
class _Lane(Generic[H]):
    path: str
    session_id: str | None
    waiting: list[H] = field(default_factory=list)
    deferred: list[int] = field(default_factory=list)
    missing: dict[int, float] = field(default_factory=dict)  # number -> when it is looked for
    fetching: set[int] = field(default_factory=set)
    away: int = 0
    singly: int = 0  # so many messages are sent one by one, since a batch was refused
    tries: bool = False  # this lane tries a path that was down

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.deferred or self.missing or self.fetching or self.away)

    def first_obstacle(self) -> float:
        """The number of the first message that is not in our hands, before which nothing newer may leave."""
        first: float = self.deferred[0] if self.deferred else inf
        if self.fetching:
            first = min(first, *self.fetching)
        if self.missing and self.session_id is not None:
            first = min(first, *self.missing)
        return first

    def sendable(self) -> int:
        """How many of the first that wait have nothing before them."""
        first = self.first_obstacle()
        return bisect_left(self.waiting, first, key=lambda held: held.number)


class Lanes(Generic[H]):
    """The lanes of one backlog queue."""

    def __init__(
        self, destinations: Destinations, *, margin: float = 10.0, lock_duration: float = 60.0
    ) -> None:
        """`margin` is what must be left of a lock to send."""
        self._destinations = destinations
        self.margin = margin
        self.lock_duration = lock_duration
        self._lanes: dict[_Key, _Lane[H]] = {}
        self._by_path: dict[str, dict[_Lane[H], None]] = {}
        self._lane_of: dict[int, _Lane[H]] = {}  # deferred, missing and fetched numbers
        self._dirty: dict[_Lane[H], None] = {}
        self._troubled: dict[_Lane[H], None] = {}  # what keeps these waiting may end by itself
        self._in_hand: dict[int, H] = {}
        self.held = 0
        self.held_bytes = 0
        destinations.listen(self.touch)

    # -- what the shell asks

    def deferred_by_path(self) -> dict[str, int]:
        """How many messages of each path are put aside."""
        found: dict[str, int] = {}
        for lane in self._lanes.values():
            if lane.deferred and lane.path != SETTLING:
                found[lane.path] = found.get(lane.path, 0) + len(lane.deferred)
        return found

    def knows(self, number: int) -> bool:
        """Whether this number is known to be deferred or missing."""
        return number in self._lane_of

    def is_settled(self, now: float) -> bool:
        """Whether only messages are left whose path is down: nothing is held, and nothing could be sent."""
        if self.held or any(lane.missing or lane.fetching for lane in self._lanes.values()):
            return False
        paths = self.deferred_by_path()
        return all(
            self._destinations.look(path, now).state in (PathState.DOWN, PathState.TRYING) for path in paths
        )

    def wake_at(self, now: float) -> float:
        """When `plan` may have something to do though nothing has happened; infinity if never."""
        return min((self._due(lane, now) for lane in self._troubled), default=inf)

    def _due(self, lane: _Lane[H], now: float) -> float:
        due = min(lane.missing.values(), default=inf)
        condition = self._destinations.look(lane.path, now)
        is_held_up = condition.state in (PathState.DOWN, PathState.PAUSED, PathState.TRYING)
        if is_held_up and (lane.waiting or lane.deferred):
            due = min(due, condition.due)
        if lane.waiting:
            due = min(due, min(held.locked_until for held in lane.waiting) - self.margin)
        return due

    def in_hand(self, number: int) -> H | None:
        """The message of this number, if we hold it: then another delivery of it only brings a new lock."""
        return self._in_hand.get(number)

    # -- what the shell tells

    def arrive(self, held: H) -> None:
        """A message has come, from the queue or by its number."""
        lane = self._lane(held.path, held.session_id)
        if held.number in self._lane_of:
            self.dismiss(held.number)  # it is expected no longer
        self.held += 1
        self.held_bytes += held.size
        self._in_hand[held.number] = held
        self._wait(lane, held)

    def note_deferred(self, number: int, path: str, session_id: str | None) -> None:
        """A message was found put aside."""
        if number not in self._lane_of:
            lane = self._lane(path, session_id)
            insort(lane.deferred, number)
            self._lane_of[number] = lane
            self._dirty[lane] = None

    def note_unsettled(self, number: int) -> None:
        """A message that was moved is still on the queue, put aside: it must be fetched to be completed."""
        self.note_deferred(number, SETTLING, None)

    def note_missing(self, number: int, path: str, session_id: str | None, *, until: float) -> None:
        """A message is on the queue and not in our hands; it comes by itself, or is looked for at `until`."""
        if session_id is not None and number not in self._lane_of:
            lane = self._lane(path, session_id)
            lane.missing[number] = until
            self._lane_of[number] = lane
            self._dirty[lane] = None

    def moved(self, messages: Iterable[H]) -> None:
        """The primary has taken these; they are completed or about to be."""
        for held in messages:
            self._let_go(held)

    buried = moved

    def refused(self, messages: Sequence[H], judgement: Judgement) -> None:
        """The primary has not taken these, which were one unit."""
        lane = self._lane(messages[0].path, messages[0].session_id)
        if judgement.verdict is Remedy.POISON and len(messages) > 1:
            lane.singly = len(messages)
        self._keep_waiting(messages)

    def put_aside(self, messages: Iterable[H]) -> None:
        """These are deferred now."""
        for held in messages:
            lane = self._let_go(held)
            insort(lane.deferred, held.number)
            self._lane_of[held.number] = lane

    def renewed(self, held: H, locked_until: float) -> None:
        """A lock was renewed."""
        held.locked_until = locked_until
        lane = self._lane(held.path, held.session_id)
        lane.away -= 1
        self._wait(lane, held)

    def lost(self, held: H, now: float) -> None:
        """A lock has ended: the message is the queue's again."""
        lane = self._let_go(held)
        self._lane_of[held.number] = lane
        if held.was_deferred:
            insort(lane.deferred, held.number)
        else:
            lane.missing[held.number] = now + self.lock_duration

    def unfetched(self, number: int, now: float, *, is_missing: bool) -> None:
        """A deferred message could not be had: it is not there, or locked by somebody; or nobody answered."""
        lane = self._lane_of.get(number)
        if lane is None or number not in lane.fetching:
            return
        lane.fetching.discard(number)
        if is_missing:
            lane.missing[number] = now + self.lock_duration
        else:
            insort(lane.deferred, number)
        self._dirty[lane] = None

    def rechecked(self, number: int, now: float, *, is_there: bool, is_deferred: bool) -> None:
        """A missing message was looked for."""
        lane = self._lane_of.get(number)
        if lane is None or number not in lane.missing:
            return
        if is_deferred:
            del lane.missing[number]
            insort(lane.deferred, number)
        elif is_there:
            lane.missing[number] = now + self.lock_duration
        else:
            del lane.missing[number], self._lane_of[number]
        self._dirty[lane] = None

    def unsent(self, messages: Sequence[H], now: float) -> None:
        """These, which were one unit, were not sent after all; perhaps they were a try."""
        self._destinations.give_up_try(messages[0].path, now)
        self._keep_waiting(messages)

    def _keep_waiting(self, messages: Sequence[H]) -> None:
        lane = self._lane(messages[0].path, messages[0].session_id)
        for held in messages:
            lane.away -= 1
            self._wait(lane, held)

    def dismiss(self, number: int) -> None:
        """A message that is none of any lane's: malformed, expired, or moved before."""
        lane = self._lane_of.pop(number, None)
        if lane is not None:
            lane.missing.pop(number, None)
            lane.fetching.discard(number)
            if number in lane.deferred:
                lane.deferred.remove(number)
            self._dirty[lane] = None

    def touch(self, path: str) -> None:
        """Look at the lanes of a path again."""
        self._dirty.update(self._by_path.get(path, {}))

    def take_waiting(self) -> list[H]:
        """Hand out everything that waits, to be given back: the pump stops."""
        taken: list[H] = []
        for lane in self._lanes.values():
            taken += lane.waiting
            # What was put aside before is so again when it is given back.
            lane.deferred += [held.number for held in lane.waiting if held.was_deferred]
            lane.deferred.sort()
            lane.waiting = []
        for held in taken:
            self.held -= 1
            self.held_bytes -= held.size
            del self._in_hand[held.number]
        return taken

    # -- what is to be done

    def plan(self, now: float, room: Room | None = None) -> list[LaneStep[H]]:
        """The steps that may be taken now, with so much room for sends; None for no limit."""
        for lane in [lane for lane in self._troubled if self._due(lane, now) <= now]:
            self._dirty[lane] = None
        steps: StepList[H] = StepList(room)
        dirty, self._dirty = self._dirty, {}
        served: list[_Lane[H]] = []
        for lane in dirty:
            was = len(lane.waiting)
            self._plan_lane(lane, now, steps)
            is_short = room is not None and room.is_short
            if lane.is_empty:
                self._forget(lane)
            elif (
                is_short or lane.missing or self._destinations.look(lane.path, now).state is not PathState.UP
            ):
                self._troubled[lane] = None
            else:
                self._troubled.pop(lane, None)
            if is_short and lane.waiting:
                # Rule 8: those that got nothing are the first the next time.
                if len(lane.waiting) < was:
                    served.append(lane)
                else:
                    self._dirty[lane] = None
        self._dirty.update(dict.fromkeys(served))
        return steps.merged()

    def _plan_lane(self, lane: _Lane[H], now: float, steps: StepList[H]) -> None:
        overdue = [number for number, due in lane.missing.items() if due <= now]
        if overdue:
            steps.recheck += overdue
            for number in overdue:  # asked for once, unless no answer comes
                lane.missing[number] = now + self.lock_duration
        condition = self._destinations.look(lane.path, now)
        if condition.state is PathState.GONE and condition.why is not None:
            self._plan_burial(lane, condition.why, steps)
        elif condition.state is PathState.UP:
            self._plan_sends(lane, now, steps)
        elif lane.tries or (self._is_tryable(lane) and self._destinations.claim_try(lane.path, now)):
            lane.tries = True
            self._plan_try(lane, now, steps)
        elif not self._is_pause(condition, lane, now):
            self._take(lane, len(lane.waiting), steps.defer)

    def _is_pause(self, condition: Condition, lane: _Lane[H], now: float) -> bool:
        """Whether what waits may stay in hand: the path is only paused, and no lock is about to end."""
        if condition.state is not PathState.PAUSED and not condition.is_gentle:
            return False
        if condition.state is PathState.DOWN or condition.due - now > self.lock_duration / 2:
            return False
        return all(held.locked_until - now > self.margin for held in lane.waiting)

    @staticmethod
    def _is_tryable(lane: _Lane[H]) -> bool:
        if lane.away or lane.fetching or not (lane.deferred or lane.waiting):
            return False
        first = lane.deferred[0] if lane.deferred else lane.waiting[0].number
        return lane.session_id is None or not lane.missing or first < min(lane.missing)

    def _plan_try(self, lane: _Lane[H], now: float, steps: StepList[H]) -> None:
        """Try the path with the first message of this lane; all others are put aside, or wait, meanwhile."""
        if lane.away or lane.fetching:
            return
        if lane.waiting and lane.waiting[0].number < lane.first_obstacle():
            if lane.waiting[0].locked_until - now <= self.margin:
                self._take(lane, 1, steps.renew)
                return
            unit: list[H] = []
            self._take(lane, 1, unit)
            lane.tries = False  # whatever comes of it, the next try is claimed anew
            steps.send(lane.path, unit)
        elif lane.deferred and lane.deferred[0] <= lane.first_obstacle():
            self._fetch(lane, 1, steps)
        else:
            lane.tries = False
            self._destinations.give_up_try(lane.path, now)
            return
        if not self._is_pause(self._destinations.look(lane.path, now), lane, now):
            self._take(lane, len(lane.waiting), steps.defer)

    def _plan_burial(self, lane: _Lane[H], why: Judgement, steps: StepList[H]) -> None:
        found: list[H] = []
        self._take(lane, len(lane.waiting), found)
        if found:
            steps.bury.append(Bury(found, why))
        if lane.deferred and not lane.fetching:
            self._fetch(lane, FETCH_MESSAGES, steps)

    def _plan_sends(self, lane: _Lane[H], now: float, steps: StepList[H]) -> None:
        lane.tries = False
        is_next = lane.session_id is None or not lane.missing or lane.deferred[:1] < [min(lane.missing)]
        count = lane.sendable()
        # What waits behind the deferred is no reason to leave those where they are: nothing would ever move.
        if lane.deferred and is_next and not lane.fetching and count < FETCH_MESSAGES:
            self._fetch(lane, FETCH_MESSAGES, steps)
        if count < len(lane.waiting) and lane.missing and lane.session_id is not None and not lane.away:
            # Rule 5. Those that wait for a fetch alone stay in hand: it takes a moment only.
            self._set_aside_from(lane, int(min(lane.missing)), steps)
        # Also of those that wait for a fetch: one that is never answered does not keep them in hand.
        tired = [held for held in lane.waiting if held.locked_until - now <= self.margin]
        if tired and not (lane.away and lane.session_id is not None):
            gone = set(tired)
            lane.waiting = [held for held in lane.waiting if held not in gone]
            lane.away += len(tired)
            steps.renew += tired
        if not count or (tired and tired[0].number < lane.first_obstacle()):
            return
        if lane.session_id is None:
            units: list[H] = []
            self._take(lane, steps.admit(lane.waiting, count), units)
            for held in units:
                steps.send(lane.path, [held])
        elif not lane.away and (count := steps.admit(lane.waiting, self._batch(lane, count))):
            unit: list[H] = []
            self._take(lane, count, unit)
            lane.singly = max(0, lane.singly - 1)
            steps.send(lane.path, unit)

    def _set_aside_from(self, lane: _Lane[H], number: int, steps: StepList[H]) -> None:
        kept = [held for held in lane.waiting if held.number < number]
        aside = lane.waiting[len(kept) :]
        lane.waiting = kept
        lane.away += len(aside)
        steps.defer += aside

    def _batch(self, lane: _Lane[H], count: int) -> int:
        """How many of the first messages go into one unit."""
        if lane.singly:
            return 1
        size = chosen = 0
        for held in lane.waiting[: min(count, BATCH_MESSAGES)]:
            size += held.size + 16
            if chosen and size > BATCH_BYTES:
                break
            chosen += 1
        return chosen

    def _fetch(self, lane: _Lane[H], most: int, steps: StepList[H]) -> None:
        numbers, lane.deferred = lane.deferred[:most], lane.deferred[most:]
        lane.fetching.update(numbers)
        steps.fetch += numbers

    # -- books

    def _lane(self, path: str, session_id: str | None) -> _Lane[H]:
        key = path, session_id
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(path, session_id)
            self._by_path.setdefault(path, {})[lane] = None
        return lane

    def _forget(self, lane: _Lane[H]) -> None:
        self._lanes.pop((lane.path, lane.session_id), None)
        self._troubled.pop(lane, None)
        siblings = self._by_path.get(lane.path)
        if siblings is not None:
            siblings.pop(lane, None)
            if not siblings:
                del self._by_path[lane.path]

    def _wait(self, lane: _Lane[H], held: H) -> None:
        waiting = lane.waiting
        if not waiting or waiting[-1].number < held.number:
            waiting.append(held)
        else:
            insort(waiting, held, key=lambda one: one.number)
        self._dirty[lane] = None

    def _take(self, lane: _Lane[H], count: int, into: list[H]) -> None:
        if count:
            into += lane.waiting[:count]
            del lane.waiting[:count]
            lane.away += count

    def _let_go(self, held: H) -> _Lane[H]:
        lane = self._lane(held.path, held.session_id)
        lane.away -= 1
        self.held -= 1
        self.held_bytes -= held.size
        del self._in_hand[held.number]
        self._dirty[lane] = None
        return lane
