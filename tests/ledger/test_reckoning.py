"""The rules of the verdict, against a world that is played message by message."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from pairbus.ledger.reckoning import CopyPlace, KeyCounts, place_copy, reckon


def test_a_copy_is_in_one_place_whatever_shows_it() -> None:
    for signs in product((0, 1), repeat=3):
        arrived, dead, waiting = signs
        place = place_copy(has_arrived=arrived, lies_dead=dead, lies_waiting=waiting)
        assert sum(place) == max(signs)
        assert all(part in (0, 1) for part in place)
    assert place_copy(has_arrived=1, lies_dead=0, lies_waiting=1) == CopyPlace(1, 0, 0)
    assert place_copy(has_arrived=0, lies_dead=1, lies_waiting=1) == CopyPlace(0, 1, 0)


@dataclass
class Copy:
    """A message in a backlog queue: acknowledged to its caller or not, and what happened to it."""

    is_acknowledged: bool
    place: str = "queue"
    has_receipt: bool = False
    arrivals: int = 0
    was_buried: bool = False
    #: Whether the message was buried after it had arrived, and redriven: it is no loss then.
    is_echo: bool = False


@dataclass
class World:
    """All copies of one key, and what was written down."""

    copies: list[Copy] = field(default_factory=list)
    redirected: int = 0
    unsure: int = 0
    doubtful: int = 0

    def apply(self, step: str, index: int) -> None:
        if step == "taken":
            self.copies.append(Copy(True))
            self.redirected += 1
        elif step == "taken unanswered":
            self.copies.append(Copy(False))
            self.unsure += 1
        elif step == "refused unanswered":
            self.unsure += 1
        elif self.copies:
            self.happen(self.copies[index % len(self.copies)], step)

    def happen(self, copy: Copy, step: str) -> None:
        if step == "steal":
            copy.place = "nowhere"
        elif copy.place == "queue":
            if step == "bury":
                copy.place, copy.was_buried = "dead", True
            elif step == "move":
                copy.place, copy.has_receipt, copy.arrivals = "nowhere", True, copy.arrivals + 1
            elif step == "move and die":  # with the receipt written, and the message not completed
                copy.has_receipt, copy.arrivals = True, copy.arrivals + 1
            elif step == "arrive unanswered":
                copy.arrivals += 1
                self.doubtful += 1
        elif copy.place == "dead" and step == "redrive":  # a new copy takes its place
            copy.place = "nowhere"
            is_echo = copy.has_receipt or copy.is_echo
            again = Copy(copy.is_acknowledged, arrivals=copy.arrivals, is_echo=is_echo)
            copy.is_acknowledged = False
            copy.arrivals = 0
            self.copies.append(again)

    def counts(self) -> KeyCounts:
        places = [
            place_copy(
                has_arrived=int(copy.has_receipt),
                lies_dead=int(copy.place == "dead"),
                lies_waiting=int(copy.place == "queue"),
            )
            for copy in self.copies
        ]
        return KeyCounts(
            redirected=self.redirected,
            unsure=self.unsure,
            delivered=sum(place.delivered for place in places),
            dead_lettered=sum(place.dead_lettered for place in places),
            waiting=sum(place.waiting for place in places),
            doubtful=self.doubtful,
            echoed=sum(copy.has_receipt and copy.was_buried and copy.place != "dead" for copy in self.copies),
        )

    def stolen(self) -> int:
        """Copies that nobody will ever get, and that were acknowledged."""
        return sum(
            copy.is_acknowledged and copy.place == "nowhere" and not copy.has_receipt and not copy.is_echo
            for copy in self.copies
        )

    def left(self) -> int:
        return sum(copy.place != "nowhere" or copy.has_receipt for copy in self.copies)


STEPS = (
    "taken",
    "taken unanswered",
    "refused unanswered",
    "steal",
    "bury",
    "redrive",
    "move",
    "move and die",
    "arrive unanswered",
)
histories = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), max_size=30)


@given(histories)
def test_what_is_acknowledged_and_nowhere_is_lost(history: list[tuple[str, int]]) -> None:
    world = World()
    for step, index in history:
        world.apply(step, index)
    counts = world.counts()
    told = reckon(counts)
    assert told.lost == max(0, world.redirected - world.left())
    if not world.unsure:  # then nothing is there that could stand in for what was stolen
        assert told.lost <= world.stolen() <= told.lost + told.unclear
        assert told.recovered == 0
        if not counts.echoed:
            assert told.lost == world.stolen()
            assert told.unexpected == 0
    copies = Counter(delivered=counts.delivered, dead=counts.dead_lettered, waiting=counts.waiting)
    assert copies.total() + told.lost == world.redirected + told.recovered + told.unexpected
    assert min(told) >= 0


@given(histories)
def test_never_more_arrived_than_it_says(history: list[tuple[str, int]]) -> None:
    """But for copies that were moved and came again: those have two receipts, which are counted as such."""
    world = World()
    for step, index in history:
        if step not in ("move and die", "steal"):
            world.apply(step, index)
    told = reckon(world.counts())
    arrived = sum(copy.arrivals for copy in world.copies)
    assert arrived - max(1, world.redirected) <= told.at_most_duplicated
    assert told.duplicated <= told.at_most_duplicated


def test_copies_that_no_record_names_are_unexpected() -> None:
    told = reckon(KeyCounts(delivered=2, waiting=1))
    assert (told.lost, told.unexpected, told.recovered, told.duplicated) == (0, 3, 0, 1)
    told = reckon(KeyCounts(redirected=1, unsure=1, delivered=3, repeated=1, doubtful=2))
    assert (told.recovered, told.unexpected, told.duplicated, told.at_most_duplicated) == (1, 1, 3, 5)


def test_an_echo_stands_in_for_nobody() -> None:
    """Of two that were redirected, one arrived, came again, was buried, and is there once more."""
    told = reckon(KeyCounts(redirected=2, delivered=1, waiting=1, echoed=1))
    assert (told.lost, told.unclear) == (0, 1)
    assert reckon(KeyCounts(redirected=2, delivered=1, waiting=2, echoed=1)).unclear == 0
    assert reckon(KeyCounts(redirected=1, delivered=1, echoed=1)).unclear == 0  # it was dropped
