"""Keeps what happens in a drill, while it happens: sends, arrivals, states, faults, and samples of the sums.

It lives on the event loop of the drill. Times are seconds since the drill began.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pairbus.clock import Clock
from pairbus.options import EntityState, StateChange
from pairbus.pairing.names import path_key

from .messages import Arrival, SentMessage
from .picture import EntityPicture
from .result import FaultSpan, Phase, Sample, StateSpan
from .scenario import EntityPlan

_WORST = (EntityState.FAULTED, EntityState.FAILED_OVER, EntityState.SUSPECT, EntityState.HEALTHY)
# How far back the rate of the picture looks.
_RATE_SPAN = 1.0


@dataclass(slots=True)
class EntityTally:
    """The sums of one entity."""

    plan: EntityPlan
    sent: int = 0
    by_route: dict[str, int] = field(default_factory=lambda: {"primary": 0, "backlog": 0, "spool": 0})
    refused: int = 0
    received: int = 0
    held: int = 0
    pings: int = 0
    longest_send: float = 0.0
    recent: deque[tuple[float, int]] = field(default_factory=deque)

    def ways(self) -> dict[str, int]:
        """How many went which way, as results and pictures name them."""
        return {f"to_{route}": number for route, number in self.by_route.items()}

    def rate(self, now: float) -> float:
        """Messages sent a second, over the last one."""
        while self.recent and self.recent[0][0] < now - _RATE_SPAN:
            self.recent.popleft()
        return sum(number for _, number in self.recent) / _RATE_SPAN


class Recorder:
    """All that is known so far."""

    def __init__(self, entities: Sequence[EntityPlan], clock: Clock) -> None:
        self._clock = clock
        self._zero = clock.monotonic()
        self._offset = clock.now() - self._zero
        self.tallies = {path_key(one.path): EntityTally(one) for one in entities}
        self.sent: list[SentMessage] = []
        self.arrivals: list[Arrival] = []
        self.samples: list[Sample] = []
        self.states: list[StateSpan] = []
        #: What is broken on purpose, until the time that a span says or until it is cut short.
        self.faults: list[FaultSpan] = []
        self.phases: list[Phase] = []
        self.on_event: Callable[[str, float], None] = lambda text, at: None
        self._open: dict[tuple[str, str], StateSpan] = {}
        self.phase = ""
        self._phase_began = 0.0
        #: The entities at which messages have arrived, by id.
        self.paths: dict[str, str] = {}
        self._lateness: list[tuple[float, float]] = []
        self._seen: set[tuple[str, int]] = set()
        self._missing: dict[tuple[str, str], set[str]] = {}

    # -- time

    @property
    def began(self) -> float:
        """When the drill began, in Unix time."""
        return self._zero + self._offset

    def now(self) -> float:
        return self._clock.monotonic() - self._zero

    def tell(self, text: str) -> None:
        """Something worth a line has happened."""
        self.on_event(text, self.now())

    def enter_phase(self, name: str) -> bool:
        """A new stretch begins; whether it is another one than before."""
        if name == self.phase:
            return False
        now = self.now()
        self._end_phase(now)
        self.phase, self._phase_began = name, now
        return True

    def _end_phase(self, now: float) -> None:
        if self.phase:
            self.phases.append(Phase(name=self.phase, begins=self._phase_began, ends=now))

    # -- sends

    def begin_sends(self, messages: Sequence[SentMessage]) -> None:
        """A call begins that sends these."""
        now = self.now()
        for message in messages:
            message.began = now
        self.sent += messages
        self._tally(messages[0].path).held += len(messages)

    def end_sends(self, messages: Sequence[SentMessage]) -> None:
        """The call has ended; outcome and route are set."""
        now, first = self.now(), messages[0]
        tally = self._tally(first.path)
        tally.held -= len(messages)
        for message in messages:
            message.ended = now
        tally.longest_send = max(tally.longest_send, now - first.began)
        if first.outcome == "returned":
            tally.sent += len(messages)
            tally.by_route[first.route or "primary"] += len(messages)
            tally.recent.append((now, len(messages)))
        elif first.outcome == "raised":
            tally.refused += len(messages)

    def note_reported(self, message: SentMessage) -> None:
        """An application has told of a send that has ended."""
        self.sent.append(message)
        tally = self.tallies.get(path_key(message.path)) if message.path else None
        if tally is None:
            return
        if message.outcome == "returned":
            tally.sent += 1
            tally.recent.append((self.now(), 1))
        else:
            tally.refused += 1

    def _tally(self, path: str) -> EntityTally:
        return self.tallies[path_key(path)]

    # -- arrivals

    def note_arrival(self, arrival: Arrival) -> None:
        """A receiver has a message; one that is only delivered again counts once."""
        place = (arrival.node, arrival.sequence_number)
        if place in self._seen:
            return
        self._seen.add(place)
        self.arrivals.append(arrival)
        tally = self._tally(arrival.path)
        self.paths[arrival.message_id] = arrival.path
        key = (path_key(arrival.path), arrival.message_id)
        missing = self._missing.setdefault(key, set(tally.plan.nodes))
        if arrival.node in missing:
            missing.discard(arrival.node)
            tally.received += not missing

    def has_arrived(self, path: str, message_id: str) -> bool:
        """Whether a message has arrived wherever it was for."""
        return self._missing.get((path_key(path), message_id)) == set()

    # -- states, faults

    def note_state(self, client: str, change: StateChange) -> None:
        """An entity has changed its state, as this client sees it."""
        at = change.at - self.began
        self._begin_span(client, change.path, change.old, 0.0)
        self._end_span(self._open.pop((client, change.path)), at)
        self._begin_span(client, change.path, change.new, at, change.reason)
        self.tell(f"{client}: {change.path} {change.old.value} -> {change.new.value} ({change.reason})")

    def watch(self, client: str, path: str) -> None:
        """A client begins with an entity, which it takes for healthy."""
        self._begin_span(client, path, EntityState.HEALTHY, 0.0)

    def state_of(self, path: str) -> EntityState:
        """The worst that any client sees."""
        key = path_key(path)
        seen = {span.state for span in self._open.values() if path_key(span.path) == key}
        return next((state for state in _WORST if state.value in seen), EntityState.HEALTHY)

    def _begin_span(self, client: str, path: str, state: EntityState, at: float, reason: str = "") -> None:
        """A state without an end yet, unless the client has one there already."""
        span = StateSpan(client=client, path=path, state=state.value, begins=at, ends=at, reason=reason)
        self._open.setdefault((client, path), span)

    def _end_span(self, span: StateSpan, at: float) -> None:
        self.states.append(replace(span, ends=max(at, span.begins)))

    def note_ping(self, path: str) -> None:
        """A client has asked an entity whether it is back."""
        self._tally(path).pings += 1

    def finish(self) -> None:
        """Close what is open."""
        now = self.now()
        for span in self._open.values():
            self._end_span(span, now)
        self._open.clear()
        self._end_phase(now)
        self.phase = ""
        self.states.sort(key=lambda span: (span.path, span.client, span.begins))

    # -- the machine

    def note_lateness(self, seconds: float) -> None:
        """Something that takes no time took so long: the machine is busy with other things."""
        self._lateness.append((self.now(), seconds))

    def lateness(self, begins: float, ends: float) -> float:
        """By how much the machine was late between two moments."""
        return sum(seconds for at, seconds in self._lateness if begins <= at and at - seconds <= ends)

    # -- sums

    def take_sample(self, *, moved: int, backlog: int, spooled: int) -> Sample:
        tallies = self.tallies.values()
        sample = Sample(
            at=self.now(),
            to_primary=sum(one.by_route["primary"] for one in tallies),
            to_backlog=sum(one.by_route["backlog"] for one in tallies),
            to_spool=sum(one.by_route["spool"] for one in tallies),
            refused=sum(one.refused for one in tallies),
            received=sum(one.received for one in tallies),
            moved=moved,
            backlog=backlog,
            spooled=spooled,
            held=sum(one.held for one in tallies),
        )
        self.samples.append(sample)
        return sample

    def draw_entities(self) -> tuple[EntityPicture, ...]:
        now = self.now()
        return tuple(
            EntityPicture(
                path=one.plan.path,
                kind=one.plan.kind,
                state=self.state_of(one.plan.path).value,
                sent=one.sent,
                **one.ways(),
                received=one.received,
                rate=one.rate(now),
                refused=one.refused,
            )
            for one in self.tallies.values()
        )

    def failovers(self, path: str) -> list[StateSpan]:
        """The times in which an entity was failed over, of all clients, after `finish`."""
        return [
            span
            for span in self.states
            if path_key(span.path) == path_key(path) and span.state == EntityState.FAILED_OVER.value
        ]

    def held_since(self, client: str, path: str, moment: float) -> float | None:
        """When the send began that had been held for the longest at a moment."""
        key = path_key(path)
        held = (
            one.began
            for one in self.sent
            if one.client == client and path_key(one.path) == key
            if one.began <= moment and (one.ended is None or one.ended >= moment)
        )
        return min(held, default=None)
