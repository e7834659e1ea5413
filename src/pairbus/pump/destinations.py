"""What is known of the paths of the primary, shared by all backlog queues of a process. Pure: time comes in.

          ┌────────── sent ───────────┐
          v                           │
         UP ──failed──> DOWN ──due──> TRYING ──failed──> DOWN (for longer)
         UP, TRYING ──busy──> PAUSED ──due──> TRYING; busy three times in a row ──> DOWN
         UP, TRYING ──gone──> GONE ──due──> UP
         UP, TRYING ──denied──> DOWN, as long as it may be for want of a token; then GONE

1. A path is up until shown otherwise. While it is down nothing is sent to it; when its back-off is over,
   one queue, the first that asks, tries it with one message.
2. Back-off doubles from `first` to `longest` with each failed try. What fails while the path is already known
   to be down was on its way before, and tells nothing new.
3. A throttled path is paused as long as it asks. Its messages stay in hand, for a pause is short; then one
   of them is tried, gently: the others still wait. A path that stays busy is treated like one that is down,
   or its messages would take the place of all others; but it is tried as often as it asks for, since one
   message is no burden, and a namespace that is throttled no more should be noticed at once.
4. `GONE` is believed for a short while only: it spares an attempt for each message of a deleted entity, and
   an entity that is made again is found.
5. A refusal of authorisation is the path's own only if it stays, over several tries and a minute, while other
   paths are served. Otherwise no token may be had at all, which is an outage: waiting loses nothing.
6. Where one of several messages on the way was refused, and nobody knows which, the path is tried with one at
   a time until as many have been sent: that one is then found, and the others are not buried with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf

from .judgement import Judgement, Remedy

# After so many busy answers in a row a path counts as down.
BUSY_IN_A_ROW = 3
# A try of which nothing was heard for so long was never made: its queue is gone. Another may try.
TRY_LIMIT = 60.0
# Rule 5: so many refusals in a row over so long are a path's own.
DENIALS = 3
DENIED_FOR = 60.0
# How long a path that is gone is left alone before it is tried again.
GONE_FOR = 5.0


class PathState(Enum):
    """How a path is."""

    UP = "up"
    DOWN = "down"
    TRYING = "trying"
    PAUSED = "paused"
    GONE = "gone"


@dataclass(slots=True)
class Condition:
    """One path: its state, when that is looked at again, and why it is not up."""

    state: PathState = PathState.UP
    due: float = 0.0
    failures: int = 0
    why: Judgement | None = None
    is_gentle: bool = False  # tried after a pause: what waits for the outcome need not be put aside
    served_at: float = -inf  # when it last took a message
    denials: int = 0  # refusals of authorisation since then, and when the first of them was
    denied_since: float = 0.0
    suspects: int = 0  # so many messages are sent one by one


class Destinations:
    """The conditions of all paths."""

    def __init__(self, *, first: float = 1.0, longest: float = 60.0) -> None:
        self._first = first
        self._longest = longest
        self._conditions: dict[str, Condition] = {}
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with each path that has come up, or whose time has come."""
        self._listeners.append(tell)

    def look(self, path: str, now: float) -> Condition:
        """How a path is now."""
        found = self._conditions.get(path)
        if found is None:
            found = self._conditions[path] = Condition()
        elif found.state is PathState.GONE and now >= found.due:
            found.state = PathState.UP
        return found

    def troubled(self) -> list[tuple[str, Condition]]:
        """The paths that are not up."""
        return [(path, one) for path, one in self._conditions.items() if one.state is not PathState.UP]

    def claim_try(self, path: str, now: float) -> bool:
        """Whether the caller is the one that tries a path whose back-off or pause is over."""
        found = self.look(path, now)
        if found.state not in (PathState.DOWN, PathState.PAUSED, PathState.TRYING) or now < found.due:
            return False
        found.is_gentle = found.state is PathState.PAUSED
        found.state, found.due = PathState.TRYING, now + TRY_LIMIT
        return True

    def give_up_try(self, path: str, now: float) -> None:
        """The try could not be made: somebody else may."""
        found = self.look(path, now)
        if found.state is PathState.TRYING:
            found.state, found.due = PathState.DOWN, now + self._first

    def sent(self, path: str, now: float) -> None:
        """The path has taken a message."""
        found = self.look(path, now)
        found.served_at, found.denials = now, 0
        if found.suspects:
            found.suspects -= 1
            if found.suspects:
                found.state, found.due, found.failures = PathState.PAUSED, now, 0
                self._tell(path)
                return
        if found.state is not PathState.UP or found.failures:
            was = found.state
            found.state, found.failures, found.why = PathState.UP, 0, None
            if was is not PathState.UP:
                self._tell(path)

    def failed(self, path: str, judgement: Judgement, now: float) -> None:
        """The path has refused a message, or did not answer."""
        found = self.look(path, now)
        if judgement.verdict is Remedy.SUSPECT:
            found.suspects += 1
        if found.state not in (PathState.UP, PathState.TRYING):
            return
        found.why = judgement
        failures = found.failures
        found.failures = min(failures + 1, 30)
        if judgement.verdict is Remedy.SUSPECT:
            found.state, found.due = PathState.PAUSED, now
        elif judgement.verdict is Remedy.BUSY and failures < BUSY_IN_A_ROW:
            found.state, found.due = PathState.PAUSED, now + judgement.wait
        elif judgement.verdict is Remedy.GONE or self._is_denied_alone(path, judgement, now):
            found.state, found.due, found.failures = PathState.GONE, now + GONE_FOR, 0
            self._tell(path)
        else:
            found.state = PathState.DOWN
            found.due = now + self._back_off(judgement, failures)

    def _back_off(self, judgement: Judgement, failures: int) -> float:
        if judgement.verdict is Remedy.BUSY:
            return max(self._first, judgement.wait)
        return max(judgement.wait, min(self._longest, self._first * 2.0**failures))

    def _is_denied_alone(self, path: str, judgement: Judgement, now: float) -> bool:
        """Rule 5, for one refusal more."""
        if judgement.verdict is not Remedy.DENIED:
            return False
        found = self._conditions[path]
        if not found.denials:
            found.denied_since = now
        found.denials += 1
        if found.denials < DENIALS or now - found.denied_since < DENIED_FOR:
            return False
        others = (one for other, one in self._conditions.items() if other != path)
        return any(one.served_at >= found.denied_since for one in others)

    def shut(self, path: str, why: Judgement) -> None:
        """Nothing is to be sent to this path for as long as this pump runs."""
        self._conditions[path] = Condition(PathState.DOWN, inf, 0, why)

    def _tell(self, path: str) -> None:
        for tell in self._listeners:
            tell(path)
