"""What the pumps of all queues of a process share."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from pairbus.clock import Clock
from pairbus.ledger.receipts import Receipt, Receipts
from pairbus.pairing.names import path_key

from .destinations import Destinations, PathState
from .judgement import Judgement, Remedy
from .options import PumpOptions
from .rate import Limiter
from .summary import PumpTally
from .transport import Destination, Transport
from .turns import Turns
from .turnstile import Entrance, Turnstile

log = logging.getLogger(__name__)
# Messages in hand of all queues together, as far as a queue's least credit allows: some seconds of work.
_IN_HAND = 20_000
_LOOKING = 16
# As many as a line has room for.
_REASONS = 3
_NOT_CHOSEN = Judgement(Remedy.DOWN, "NotChosen", "only other paths are to be moved")


@dataclass(slots=True, eq=False)
class Station:
    """The paths of the primary and their conditions, the rate, the receipts and the counts."""

    pair: str
    options: PumpOptions
    primary: Transport
    receipts: Receipts
    clock: Clock
    conditions: Destinations
    limiter: Limiter
    turnstile: Turnstile
    entrance: Entrance
    tally: PumpTally
    longest_wait: float
    queues: int = 1
    active: int = 0  # queues that have something to move
    in_hand: int = 0  # messages of all queues
    turns: Turns = field(default_factory=Turns)
    locked: set[str] = field(default_factory=set)  # queues of a drain whose rest somebody else has locked
    headway_at: float = -inf  # when a message was moved last, monotonic
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    #: Queues that are opened and looked through at a time: the first pages of a thousand would come too late.
    looking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOOKING))
    spellings: dict[str, str] = field(default_factory=dict)
    failure: BaseException | None = None
    recording: int = 0  # messages that wait until their receipts are durable
    asking: int = 0  # queues that may bring more before what they have in hand is done with
    _ends: dict[str, Destination] = field(default_factory=dict)

    def now(self) -> float:
        """Unix seconds, for what is written down or compared with what a namespace says."""
        return self.clock.now()

    def monotonic(self) -> float:
        """For whatever is waited for: who sets the clock moves no lock, and no other try of a path."""
        return self.clock.monotonic()

    def destination(self, path: str) -> Destination:
        """The end of a path, in the spelling that its first message had."""
        end = self._ends.get(path)
        if end is None:
            end = self._ends[path] = self.primary.destination(self.spellings.get(path, path))
        return end

    def share(self) -> float:
        """The part of the rate that falls to one queue."""
        return self.limiter.rate / max(1, self.active)

    def count_in_hand(self, more: int) -> None:
        """A queue has so many messages more in hand, or fewer."""
        self.in_hand += more
        self.turns.note_in_hand(self.in_hand)
        self._look_for_standstill()

    def room(self) -> int:
        """How many messages one queue may have in hand, for what all of them have."""
        return max(0, _IN_HAND - self.in_hand) // max(1, self.active)

    def meet(self, path: str, spelling: str) -> None:
        """A message for this path has come: keep its spelling, and shut it if it is not to be served."""
        if path not in self.spellings:
            self.spellings[path] = spelling
            chosen = self.options.only_paths
            if chosen and path not in map(path_key, chosen):
                self.conditions.shut(path, _NOT_CHOSEN)

    def note_trouble(self, path: str, judgement: Judgement, now: float) -> None:
        """A path has refused something for a reason of its own."""
        before = self.conditions.look(path, now).state
        self.conditions.failed(path, judgement, now)
        self.tally.of(path).trouble = judgement.description
        # That a path is still busy or down when it is tried again, with one message, is no news and no reason
        # to go slower: nothing was sent at the rate.
        if judgement.is_strain and before is PathState.UP:
            self.limiter.trouble(self.monotonic(), is_busy=judgement.verdict is Remedy.BUSY)
        if before is PathState.UP:
            log.warning(
                "a path does not take messages: %s",
                judgement.reason,
                extra={"fields": {"path": path, "reason": judgement.description}},
            )

    def is_patient(self, paths: Iterable[str]) -> bool:
        """Whether a drain is to wait for these paths, which are down and may come back."""
        if not self.options.patience or self.stopped.is_set():
            return False
        now = self.monotonic()
        may_move = any(self.conditions.look(path, now).due != inf for path in paths)
        return may_move and self.patience_left > 0

    @property
    def patience_left(self) -> float:
        """How long a drain may still wait without headway."""
        return self.headway_at + self.options.patience - self.monotonic()

    async def record(self, rows: Sequence[Receipt]) -> None:
        """Write receipts; while that lasts it may be why nothing moves."""
        self.recording += len(rows)
        self._look_for_standstill()
        try:
            await self.receipts.append(rows)
        finally:
            self.recording -= len(rows)

    def note_asking(self, more: int) -> None:
        """A queue begins to ask for messages, or ends."""
        self.asking += more
        self._look_for_standstill()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Meanwhile a queue brings nothing, since it waits until what it has in hand is done with."""
        self.note_asking(-1)
        try:
            yield
        finally:
            self.asking += 1

    def _look_for_standstill(self) -> None:
        """Receipts may wait for others, which shares their price. When nothing moves before they are durable,
        and no queue asks for more, that is in vain.
        """
        if not self.asking and 0 < self.in_hand <= self.recording:
            self.receipts.urge()

    def describe_stall(self, waiting: int) -> str:
        """Why nothing may be moving, as far as is known."""
        now = self.monotonic()
        reasons = [f"{queue} cannot be read ({why})" for queue, why in self.tally.queue_errors.items()]
        for queue in sorted(self.locked):
            reasons.append(f"what is left in {queue} is locked by another, such as a syphon that was killed")
        for path, condition in self.conditions.troubled():
            due = "" if condition.due == inf else f", tried again in {max(0.0, condition.due - now):.0f} s"
            why = "no reason is known" if condition.why is None else condition.why.description
            reasons.append(f"{self.spellings.get(path, path)} is {condition.state.value} ({why}){due}")
        if self.recording:
            reasons.insert(0, "receipts are written, and the disk or store has not confirmed them")
        if len(reasons) > _REASONS:
            reasons[_REASONS:] = [f"{len(reasons) - _REASONS} more of the kind"]
        held = f"{self.in_hand:,} in hand, {waiting:,} put aside, at most {self.limiter.rate:,.0f} a second"
        return "; ".join([*reasons, held])

    def note_end(self, task: asyncio.Task[None]) -> None:
        """A task has ended. The SDK sometimes cancels its caller; what that held would be held for ever."""
        error = RuntimeError("a step was called off") if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Something is wrong that nobody can go on with, such as a full disk: end everything."""
        if self.failure is None:
            self.failure = error
            log.error("the pump ends: %s", error)
        self.stopped.set()

    async def close(self) -> None:
        self.turnstile.close()
        for end in self._ends.values():
            await end.close()
