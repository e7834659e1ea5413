"""What clients did and were told, and what a broker must therefore still know after a crash.

Rules
1. An operation is noted before it is begun. When it returns, it is confirmed. One that was begun and not
   confirmed may have happened or not: either is right.
2. Of the operations on one message each was begun because of the one before it. The message is where the last
   confirmed one brought it, or where one brought it that was begun after that.
3. So a confirmed completion means that the message is gone, for ever. A confirmed send, defer, dead-letter or
   schedule means that it is there, in that state, until something else was at least begun.
4. What nobody sent is not there, nothing is there twice, and a sequence number names one message only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["Fate", "Found", "Journal"]

T = TypeVar("T")


class Fate(Enum):
    """Where a message can be."""

    ABSENT = "absent"
    ACTIVE = "active"
    SCHEDULED = "scheduled"
    DEFERRED = "deferred"
    DEAD = "dead-lettered"


@dataclass(frozen=True)
class Found:
    """A message that a broker has after a restart."""

    message_id: str
    fate: Fate
    delivery_count: int = 0
    sequence_number: int = 1
    place: str = "orders"


@dataclass
class _Course(Generic[T]):
    """Values that something was told to take, in their order, and which of them was confirmed last."""

    values: list[T]
    confirmed: int = 0

    def begin(self, value: T) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def confirm(self, number: int) -> None:
        self.confirmed = max(self.confirmed, number)

    @property
    def possible(self) -> list[T]:
        return self.values[self.confirmed :]


@dataclass
class _Story:
    """One message."""

    course: _Course[Fate] = field(default_factory=lambda: _Course([Fate.ABSENT]))
    least_deliveries: int = 0


class Journal:
    """Everything that was begun and confirmed."""

    def __init__(self) -> None:
        self._stories: dict[str, _Story] = {}
        self._states: dict[str, _Course[bytes | None]] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self.confirmed = 0

    # -- what clients do

    def begin(self, message_id: str, fate: Fate) -> int:
        """Something that leads to `fate` is about to be tried; the number to confirm it by."""
        return self._stories.setdefault(message_id, _Story()).course.begin(fate)

    def confirm(self, message_id: str, number: int, *, counted: bool = False) -> None:
        """It was done, the broker says. `counted` if it raised the delivery count."""
        story = self._stories[message_id]
        story.course.confirm(number)
        story.least_deliveries += counted
        self.confirmed += 1

    def begin_state(self, session_id: str, state: bytes) -> int:
        """The state of a session is about to be set."""
        return self._states.setdefault(session_id, _Course([None])).begin(state)

    def confirm_state(self, session_id: str, number: int) -> None:
        """It was set, the broker says."""
        self._states[session_id].confirm(number)
        self.confirmed += 1

    def standing(self, fate: Fate) -> int:
        """How many messages are where a confirmed operation brought them, with nothing begun since."""
        return sum(story.course.possible == [fate] for story in self._stories.values())

    @property
    def sessions(self) -> list[str]:
        """The sessions whose state was set, a broker says."""
        return sorted(session_id for session_id, course in self._states.items() if course.confirmed)

    # -- what is right

    def judge(self, found: Iterable[Found], states: Mapping[str, bytes | None]) -> list[str]:
        """What is wrong with what a restarted broker has; nothing, if all is well."""
        wrong: list[str] = []
        seen: dict[str, Found] = {}
        for each in found:
            if each.message_id in seen:
                wrong.append(f"{each.message_id} is there twice: {seen[each.message_id]} and {each}")
            seen[each.message_id] = each
            owner = self._owners.setdefault((each.place, each.sequence_number), each.message_id)
            if owner != each.message_id:
                wrong.append(f"{each.message_id} has the sequence number of {owner}: {each}")
        for message_id in sorted(self._stories.keys() | seen.keys()):
            wrong += self._judge_message(message_id, seen.get(message_id))
        for session_id, course in self._states.items():
            state = states.get(session_id)
            if state not in course.possible:
                wrong.append(f"session {session_id} has the state {state!r}, not one of {course.possible}")
        return wrong

    def learn(self, found: Iterable[Found], states: Mapping[str, bytes | None]) -> None:
        """Take what a restarted broker has for what happened: that must stay from now on."""
        by_id = {each.message_id: each for each in found}
        for message_id, story in self._stories.items():
            each = by_id.get(message_id)
            story.course = _Course([Fate.ABSENT if each is None else each.fate])
            story.least_deliveries = 0 if each is None else each.delivery_count
        for session_id in self._states:
            self._states[session_id] = _Course([states.get(session_id)])

    def _judge_message(self, message_id: str, found: Found | None) -> list[str]:
        story = self._stories.get(message_id)
        if story is None:
            return [f"{message_id} was never sent, and is there: {found}"]
        fate, possible = Fate.ABSENT if found is None else found.fate, story.course.possible
        if fate not in possible:
            return [f"{message_id} is {fate.value}, not {' or '.join(each.value for each in possible)}"]
        if found is not None and found.delivery_count < story.least_deliveries:
            return [f"{message_id} was delivered {found.delivery_count} times, not {story.least_deliveries}"]
        return []
