"""What comes from one backlog queue: deliveries become parcels in their lanes, or strays that end here.

1. A message that cannot be opened, or whose time is over, is a stray to be buried. One that the primary has
   already got, and whose completion failed, is a stray to be completed: it is not sent a second time. One
   whose receipt is still being written is completed after that, by the lock with which it came again.
2. A delivery of a message that is still in hand brings nothing but a new lock: the old one had ended.
3. Messages are delivered in the order of their numbers, and numbers have no gaps. So where one is left out
   the message is gone, was put aside by an earlier pump, or is locked by somebody. Such a *gap* is looked at
   before anything that came behind it is sent, so that newer messages of a session wait for older ones. A
   queue without gaps is not looked at, however long it is. What lies beyond the last delivery is looked at
   when the queue gives nothing more. Numbers that carry a partition are no such row: then the queue is looked
   through once, until so long a run of messages seems untouched that there is nothing more to find: longer
   than what several pumps had in hand that died one after the other.
   A drain looks at the whole queue at its end anyway. So what lies before its first delivery can wait for
   that while nothing of a session has come and no gap either, unless the queue is long: a short one is asked
   once.
4. How long locks last is learned from deliveries. Until when one lasts the service says by its own clock, and
   that may be far from ours: no lock is believed to last longer than those of backlog queues do, and one
   that would have ended before it came is believed to have begun now.
5. A message that was delivered more often than is accounted for was in the hands of a pump that died, or lost
   its lock. Nobody knows whether it was sent: it is a suspect. Accounted for is, of a message that was put
   aside, one delivery, since that counts as one; all of them, if the count is the one that the last pump
   wrote on it when it gave it back, having put its own doubts on record (see `doubts`); and our own.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import NamedTuple

from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import MessageSections, scan
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pairing.names import path_key
from pairbus.wire.errors import TransportError
from pairbus.words import EXPIRED

from .browsing import NO_END
from .lanes import Lanes
from .parcel import Parcel
from .rate import Pace
from .station import Station
from .transport import BacklogSource, Delivery, Peeked
from .unwrapping import (
    OpenedEnvelope,
    Postmark,
    open_envelope,
    read_accounted,
    read_address,
    read_postmark,
)

PEEK_PAGE = 250
# Rule 3: of a partitioned queue the numbers have the partition in their upper 16 bits.
_PARTITIONED = 1 << 48
# Rule 3: how many messages may come before it is looked what lies before the first of them.
_LONG = 1000
# Rule 3: what so many pumps had in hand may be under lock, and does not look as if it had been touched.
_PUMPS_BEFORE = 8
# How the service calls a message whose time is over, and what we call one that cannot be opened.
_MALFORMED = "MalformedEnvelope"
# A lock is renewed when less than this part of its duration is left, within bounds.
_MARGIN_PART = 0.25
# Rule 4: what provisioning gives to a backlog queue. To renew a longer one early costs little.
_LONGEST_LOCK = 60.0


class Stray(NamedTuple):
    """A message that comes to no lane: moved already, put aside before (`is_fetched`), or a suspect."""

    delivery: Delivery
    mark: Postmark
    is_fetched: bool
    opened: OpenedEnvelope | None = None
    reason: str = ""
    text: str = ""
    is_moved: bool = False
    is_suspect: bool = False


class Letter(NamedTuple):
    """A delivery, what its outside says, and what is in it; neither if it cannot be read, and why."""

    delivery: Delivery
    mark: Postmark
    sections: MessageSections | None
    opened: OpenedEnvelope | None
    fault: str = ""


class NumberGap(NamedTuple):
    """Numbers that were left out: from the first one until below the other one."""

    first: int = 0
    until: int = NO_END


class Intake:
    """Takes in what comes from one queue."""

    def __init__(self, lanes: Lanes[Parcel], pace: Pace, station: Station) -> None:
        self.unsettled: set[int] = set()  # moved, and not known to be completed
        self.unrecorded: dict[int, Parcel] = {}  # those of them whose receipts are being written
        self._suspects: list[Parcel] = []
        self._lanes = lanes
        self._pace = pace
        self._knows_lock = False
        self._known = 0  # rule 3: of every number up to this one it is known what there is
        self._is_looked_through = False
        self._past = 0  # rule 3: what lies below this number was not looked at yet
        self._came = 0  # and so many have come since
        self._station = station
        self._options = station.options

    def read(self, deliveries: Iterable[Delivery]) -> list[Letter]:
        """What messages say, and what is in them."""
        now_ms, policy_of = int(self._station.now() * 1000), self._options.policy_of
        letters, unmarked = list[Letter](), Postmark(0, now_ms, 0, b"", 0)
        for delivery in deliveries:
            mark, sections = unmarked, None
            try:
                found = scan(delivery.payload)
                mark, sections = read_postmark(found), found
                opened = open_envelope(sections, mark, policy_of=policy_of, now_ms=now_ms)
                letters.append(Letter(delivery, mark, sections, opened))
            except (DecodeError, MalformedEnvelope) as error:
                letters.append(Letter(delivery, mark, sections, None, str(error)))
        return letters

    def find_gap(self, letters: Sequence[Letter]) -> NumberGap | None:
        """Rule 3: what must be looked at before these are taken in, from the first gap to the last one."""
        expected, first, until = self._known + 1, 0, 0
        for letter in letters:
            number = letter.mark.sequence_number
            if number > expected:
                if expected == 1:
                    self._past = number
                else:
                    first, until = first or expected, number
            if number >= expected:
                expected = number + 1
        if self._past and (until or not self._may_wait(letters)):
            first, until, self._past = 1, max(until, self._past), 0
        if until < _PARTITIONED:
            return NumberGap(first, until) if until else None
        self._past = 0
        if self._is_looked_through:
            return None
        self._is_looked_through = True
        return NumberGap()

    def _may_wait(self, letters: Sequence[Letter]) -> bool:
        """Whether what lies before the first delivery can be looked at later."""
        self._came += len(letters)
        if not self._options.drain or self._past >= _PARTITIONED or self._came > _LONG:
            return False
        for letter in letters:
            if letter.opened is not None and letter.opened.session_id is not None:
                return False
        return True

    def take_in(self, letters: Iterable[Letter], *, fetched: bool = False) -> list[Stray]:
        """Put messages into their lanes; those that come to none."""
        now = self._station.monotonic()
        strays: list[Stray] = []
        for letter in letters:
            number = letter.mark.sequence_number
            stray = self._take_one(letter, now, fetched)
            if stray is not None:
                self._lanes.dismiss(number)
                strays.append(stray)
            if number > self._known and not fetched:
                self._known = number
        return strays

    def _take_one(self, letter: Letter, now: float, fetched: bool) -> Stray | None:
        delivery, mark, sections, opened, fault = letter
        if sections is None:
            return Stray(delivery, mark, fetched, None, _MALFORMED, fault)
        if mark.sequence_number in self.unsettled:
            held = self.unrecorded.get(mark.sequence_number)
            if held is None:
                return Stray(delivery, mark, fetched, is_moved=True)
            self._lanes.dismiss(mark.sequence_number)
            held.was_deferred = fetched
        else:
            held = self._lanes.in_hand(mark.sequence_number)
        count = sections.header.delivery_count
        delivery.accounted = count + 1
        if held is not None:
            if count > held.delivery.accounted:
                self._suspects.append(held)
            held.delivery = delivery
            held.locked_until = self.lock_end(mark.locked_until_ms / 1000)
            return None
        if opened is None:
            return Stray(delivery, mark, fetched, None, _MALFORMED, fault)
        is_suspect = count > fetched and count != read_accounted(sections)
        if opened.expired:
            text = "The time to live ended in the backlog."
            return Stray(delivery, mark, fetched, opened, EXPIRED, text, is_suspect=is_suspect)
        parcel = self._hold(delivery, mark, opened, now, fetched)
        if is_suspect:
            self._suspects.append(parcel)
        return None

    def take_suspects(self) -> list[Parcel]:
        """Rule 5: those that came since the last time."""
        found, self._suspects = self._suspects, []
        return found

    def _hold(
        self, delivery: Delivery, mark: Postmark, opened: OpenedEnvelope, now: float, fetched: bool
    ) -> Parcel:
        # A peeked or fetched message may not say until when it is locked; then it is for a lock's duration.
        locked_until = now + self._lanes.lock_duration
        if mark.locked_until_ms:
            locked_until = self.lock_end(mark.locked_until_ms / 1000)
            self._learn_lock(locked_until - now)
        self._station.meet(opened.key, opened.path)
        parcel = Parcel(
            mark.sequence_number,
            opened.key,
            opened.session_id,
            len(opened.payload),
            locked_until,
            was_deferred=fetched,
            delivery=delivery,
            mark=mark,
            opened=opened,
        )
        self._lanes.arrive(parcel)
        return parcel

    def lock_end(self, said: float) -> float:
        """Rule 4: until when a lock lasts by our clock, which the service says by its own."""
        left = said - self._station.now()
        return self._station.monotonic() + min(left if left > 0 else self._lanes.lock_duration, _LONGEST_LOCK)

    def _learn_lock(self, seconds: float) -> None:
        """The lock's duration as deliveries show it; clocks of two machines differ a little."""
        known = self._pace.lock_duration
        if seconds > 0 and (not self._knows_lock or abs(seconds - known) > 0.2 * known):
            self._knows_lock = True
            self._lanes.lock_duration = self._pace.lock_duration = seconds
            self._lanes.margin = min(15.0, seconds * _MARGIN_PART)

    def reopen(self) -> None:
        """The link is opened anew: nothing is known of what others did meanwhile."""
        self._known, self._is_looked_through, self._past, self._came = 0, False, 0, 0

    async def settle_rest(self, queue: str, source: BacklogSource) -> None:
        """Complete what was moved and still lies put aside: the next pump would send it again. What has no
        receipt, since the disk is full, is not completed; then it is to be sent again.
        """
        left = sorted(filter(self._lanes.knows, self.unsettled - self.unrecorded.keys()))
        if not left:
            return
        try:
            found = await source.fetch(left)
            await source.complete([one for one in found if isinstance(one, Delivery)])
        except TransportError as error:
            self._station.tally.queue_errors[queue] = error.words

    async def look_beyond(self, source: BacklogSource) -> None:
        """Rule 3: what lies beyond the last delivery."""
        await self.look_through(
            source, NumberGap(0 if self._known >= _PARTITIONED else self._known + 1, NO_END)
        )

    async def look_through(self, source: BacklogSource, gap: NumberGap) -> None:
        """Rule 3. A gap holds nothing that is untouched, so that it is looked at to its end."""
        now = self._station.monotonic()
        enough = _PUMPS_BEFORE * self._options.max_in_hand + PEEK_PAGE if gap.until == NO_END else inf
        number, untouched, most = gap.first, 0, 1  # one message shows most often that a gap is empty
        while untouched < enough:
            page = await source.peek(number, most)
            most = PEEK_PAGE
            for one in page:
                number = one.sequence_number + 1
                if number > gap.until:
                    break
                is_known = self._lanes.knows(one.sequence_number) or self._lanes.in_hand(one.sequence_number)
                if not (is_known or one.is_scheduled):
                    self._note(one, now)
                    untouched = 0 if one.is_deferred else untouched + 1
            if not page or number >= gap.until:
                return
            self._known = max(self._known, number - 1)

    def _note(self, one: Peeked, now: float) -> None:
        if one.sequence_number in self.unsettled:
            if one.is_deferred:
                self._lanes.note_unsettled(one.sequence_number)
            return
        try:
            path, session_id = read_address(one.sections)
        except MalformedEnvelope:
            path, session_id = "", None  # its lane is never sent from: it is buried when it comes
        if one.is_deferred:
            self._lanes.note_deferred(one.sequence_number, path_key(path), session_id)
            if path:
                with suppress(MalformedEnvelope):  # it is buried when it is fetched
                    enqueued = read_postmark(one.sections).enqueued_ms / 1000
                    self._station.tally.of(path_key(path)).note_waiting(enqueued)
        else:
            until = now + self._lanes.lock_duration
            self._lanes.note_missing(one.sequence_number, path_key(path), session_id, until=until)
