"""How the two sides of a pair end: closed or faulted, together or one without the other.

1. A side is open until it is closed or faults. It faults when it is told to, or because its SDK client was
   closed under us. An outage is none of this, however long: nothing here hears of one.
2. What has ended stays so. The first fault of a side is its cause; a side that faulted can still be closed.
3. Sends need the primary. What goes to the backlog needs the secondary as well.
4. Where the client hosts a syphon, neither side lives long without the other, or the backlog would grow with
   nobody to tell of it: a partner that is not closed within `PARTNER_GRACE` is faulted. Without a hosted
   syphon the primary goes on sending.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from pairbus.pairing.errors import PairFaultedError
from pairbus.sdk.side import SideName
from pairbus.timers import TimerHandle, Timers

from .errors import ClientClosedError

log = logging.getLogger(__name__)
#: How long the partner of a side that has ended may stay open. The original's own figure.
PARTNER_GRACE = 5.0

_NAMES: tuple[SideName, SideName] = get_args(SideName)


@dataclass(frozen=True, slots=True)
class _End:
    how: Literal["closed", "faulted"]
    cause: str


class Sides:
    """Whether each of the two sides is open, and what a send is refused with if not."""

    def __init__(self, *, timers: Timers, is_hosting: bool, on_end: Callable[[SideName], object]) -> None:
        """`on_end` hears of each side that is no longer open, once."""
        self._timers = timers
        self._is_hosting = is_hosting
        self._on_end = on_end
        self._ends: dict[SideName, _End] = {}
        self._grace: TimerHandle | None = None
        #: Whether anything has ended. Sends look at this alone while nothing has.
        self.have_ended = False

    # -- questions

    def check(self, *names: SideName) -> None:
        """Raise if one of these is not open."""
        for name in names:
            end = self._ends.get(name)
            if end is None:
                continue
            # A new error each time: one that is raised again and again grows.
            raise ClientClosedError(end.cause) if end.how == "closed" else PairFaultedError(name, end.cause)

    def is_open(self, name: SideName) -> bool:
        """Whether it is neither closed nor faulted."""
        return name not in self._ends

    @property
    def fault(self) -> str | None:
        """What the first fault says, if there is one."""
        for name, end in self._ends.items():
            if end.how == "faulted":
                return str(PairFaultedError(name, end.cause))
        return None

    def states(self) -> dict[str, str]:
        """In a word each: open, closed or faulted."""
        return {name: self._ends[name].how if name in self._ends else "open" for name in _NAMES}

    # -- ends

    def fault_side(self, name: SideName, cause: str) -> None:
        """A side has faulted; one that is not open any more cannot."""
        _check_name(name)
        if name in self._ends:
            return
        log.error("the %s side of the pair has faulted: %s", name, cause)
        self._end(name, _End("faulted", cause))

    def close_side(self, name: SideName) -> None:
        """A side is being closed."""
        _check_name(name)
        self._close(name, f"The {name} side of the pair has been closed. Make a new client to send again.")

    def close(self) -> None:
        """Both are being closed, with the client."""
        for name in _NAMES:
            self._close(name, "The client has been closed. Make a new one to send again.")

    def _close(self, name: SideName, cause: str) -> None:
        end = _End("closed", cause)
        if name in self._ends:
            self._ends[name] = end
        else:
            self._end(name, end)

    def _end(self, name: SideName, end: _End) -> None:
        self._ends[name] = end
        self.have_ended = True
        self._on_end(name)
        if self._grace is not None:  # both have
            self._grace.cancel()
            self._grace = None
        elif self._is_hosting and len(self._ends) == 1:
            self._grace = self._timers.call_at(self._timers.now() + PARTNER_GRACE, self._fault_partner)

    def _fault_partner(self) -> None:
        """Rule 4."""
        self._grace = None
        ((ended, end),) = self._ends.items()
        partner = next(name for name in _NAMES if name != ended)
        why = "was closed" if end.how == "closed" else f"faulted ({end.cause})"
        self.fault_side(
            partner,
            f"the {ended} side {why} and this one was not closed within {PARTNER_GRACE:g} s, so that the "
            "hosted syphon has nothing to move messages between",
        )


def _check_name(name: str) -> None:
    if name not in _NAMES:
        raise ValueError(f'side must be "primary" or "secondary", not {name!r}')
