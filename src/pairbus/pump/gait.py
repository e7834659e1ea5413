"""How the rate of a pump grows and gives way: boldly, or with care for the application beside it. Pure.

A *bold* gait is for a namespace without credits, Premium or embedded, where only the pump itself suffers:

1. It starts gently, for a primary that has just come back, and doubles as long as nothing is wrong. With
   trouble it is halved, at most once a reaction time, since what was on its way is refused together. Where
   trouble came is the *wall*.
2. Below the wall the rate doubles again, around it it grows by little, and when it is well past it the wall
   is forgotten. So a primary that takes so much and no more is asked for that much most of the time, and one
   that was throttled for a while, however long and however often, has its old rate again within seconds.

A *careful* one is for the credits of the Standard tier. They come second by second, for everybody; when they
are used up everybody is refused until the second ends, the application too. A message that is moved takes one
on either side: to be received there, to be sent here. Nobody says how many the application needs.

3. It starts with a part of the credits that hardly any application misses, and grows by so little a second
   that what passes the wall passes it by the last milliseconds of a second. At the wall an application that
   sends and receives has C - R of the C credits, so that it sends half of that. To grow by g takes the last
   g/C of a second from all: g(C - R) / 2C of the application's sends. That is held below one, whatever the
   rate is. The pump, which sends all the time, is refused with it.
4. At the wall it goes back to a part of it and stays there for three minutes, so that the application is
   refused once a minute at most: the price for learning what it leaves. Then the rate grows again, around the
   wall by still less. The wall is what was really used, not what was allowed.
5. To be refused again soon after, or with the first messages of all, says that the application takes much: so
   the rate goes down by much.
6. A lost line is no matter of credits. The rate is halved, and doubles to what was known to be well.
7. It grows only while it is used. A pump that used more than all credits for seconds without a refusal knows
   that there are none, and goes on boldly; unless it was told how many there are.
8. A receiver is not refused, only left without messages. So while the rate of receiving grows, the secondary
   is *sounded*: asked, as often as an application might send, for something that it can refuse.
"""

from dataclasses import dataclass
from math import inf

#: Credits that a Standard namespace has a second, for everything that touches it.
STANDARD_CREDITS = 1000.0
#: Rule 4: the part of what the application leaves that a drain takes.
KEPT = 0.92
#: And of all credits, where they are known and nobody else seems to need any.
KEPT_ALONE = 0.95
#: Messages a second to begin with, boldly.
START_RATE = 2000.0
#: Beyond this no single process sends, so that there is nothing left to limit.
UNBOUNDED = 1e6
#: How often the rate grows.
STEP = 0.25
LOWEST = 1.0
_REACTION = 1.0
# Rule 2: what is around the wall, and the part of it that the rate grows by in a second there.
_NEAR, _PAST = 0.9, 1.1
_GROWTH = 0.04
# Rule 3: the part of the credits to start with; sends of the application that a second's growth may cost, and
# the part of the credits that it is taken to need at least.
_FIRST = 0.5
_SENDS = 0.8
_NEEDED = 0.02
# Rule 4: those around the wall, and for how long it grows not at all.
_SENDS_AT_WALL = 0.3
_STAY = 180.0
# The parts of the credits that are spent on asking whether there are any; and where the wall is at hand. Who
# asks as often as the application sends is refused about as soon: before that it is refused once, on average.
_SOUNDINGS, _SOUNDINGS_AT_WALL = 0.2, 0.3
_AT_HAND = 0.96
# And of the rate they are taken from; of a low one less, below this part of the credits: messages are what it
# is for.
_SOUNDINGS_OF_RATE, _SOUNDINGS_OF_LOW_RATE = 0.5, 0.25
_LOW = 0.25
# A throttled answer asks for two seconds; what was on its way comes back refused meanwhile.
_CAREFUL_REACTION = 3.0
# Rule 5: what is soon, and how long a halved rate stays.
_SOON = 10.0
_WORSE = 0.6
_SHORT_STAY = 10.0
# Rule 7: of the rate, where it counts as used; of the credits, for how many seconds.
_USED = 0.7
_REFUTED, _REFUTED_FOR = 1.05, 3.0


@dataclass(slots=True)
class Bold:
    """Rules 1 and 2."""

    start: float = START_RATE
    rate: float = 0.0
    _wall: float = inf
    _reacted_at: float = -inf

    def __post_init__(self) -> None:
        self.rate = self.start

    def trouble(self, now: float, flow: float, *, is_busy: bool) -> None:
        """Something is wrong, where `flow` messages a second were sent of late."""
        if now - self._reacted_at < _REACTION:
            return
        self._reacted_at = now
        self._wall = min(self.rate, max(self.start, 2 * flow))
        self.rate = self._wall / 2

    def grow(self, now: float, flow: float, passed: float) -> None:
        """Time has passed."""
        if now - self._reacted_at < _REACTION:
            return
        if self.rate >= _PAST * self._wall:
            self._wall = inf
        if self.rate < _NEAR * self._wall:
            self.rate = min(2 * self.rate, max(LOWEST, _NEAR * self._wall))
        else:
            self.rate += max(LOWEST, self._wall * _GROWTH) * STEP


@dataclass(slots=True)
class Careful:
    """Rules 3 to 7. `credits` are a second's; of several pumps, `share` is this one's part of them."""

    credits: float = STANDARD_CREDITS
    share: float = 1.0
    rate: float = 0.0
    _well: float = 0.0  # up to here nothing was refused
    _wall: float = inf
    _reacted_at: float = -inf
    _stays_until: float = -inf
    _beyond: float = 0.0  # seconds with more than all credits
    _is_growing: bool = False
    _has_grown: bool = False

    def __post_init__(self) -> None:
        self.rate = self._well = max(LOWEST, _FIRST * self.credits * self.share)

    @property
    def soundings(self) -> float:
        """Rule 8: how often a second it should be asked whether there are credits; at the wall more often."""
        if not self._is_growing:
            return 0.0
        is_near = _AT_HAND * self._wall <= self.rate < _PAST * self._wall
        credits = self.credits * self.share
        wanted = (_SOUNDINGS_AT_WALL if is_near else _SOUNDINGS) * credits
        most = _SOUNDINGS_OF_LOW_RATE if self.rate < _LOW * credits else _SOUNDINGS_OF_RATE
        return min(max(LOWEST, wanted), most * self.rate)

    @property
    def is_refuted(self) -> bool:
        """Rule 7."""
        return self._beyond >= _REFUTED_FOR

    def trouble(self, now: float, flow: float, *, is_busy: bool) -> None:
        """A namespace has refused something as throttled, or has failed."""
        since = now - self._reacted_at
        if since < _CAREFUL_REACTION:
            return
        self._reacted_at, self._beyond, self._is_growing = now, 0.0, False
        if not is_busy:
            self.rate = max(LOWEST, self.rate / 2)
            return
        self._wall = min(self.rate, max(LOWEST, flow))
        is_worse = since < _SOON or not self._has_grown
        self.rate = self._well = max(LOWEST, self._wall * (_WORSE if is_worse else KEPT))
        self._stays_until = now + (_SHORT_STAY if is_worse else _STAY)

    def grow(self, now: float, flow: float, passed: float) -> None:
        """Time has passed, with so many messages a second."""
        self._is_growing = False
        if now - self._reacted_at < _CAREFUL_REACTION or flow < _USED * self.rate:
            return
        is_beyond = flow > _REFUTED * self.credits * self.share
        self._beyond = self._beyond + passed if is_beyond else 0.0
        if self.rate < self._well:
            self.rate = min(2 * self.rate, self._well)
        elif now >= self._stays_until:
            is_near = _NEAR * self._wall <= self.rate < _PAST * self._wall
            left = max(_NEEDED, 1 - self.rate / (self.credits * self.share))
            growth = 2 * (_SENDS_AT_WALL if is_near else _SENDS) / left
            self.rate += growth * self.share * min(passed, 1.0)
            self._well = max(self._well, self.rate)
            self._is_growing = self._has_grown = True


Gait = Bold | Careful
