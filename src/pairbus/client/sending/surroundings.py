"""What all that sends in one client shares."""

from collections.abc import Callable
from dataclasses import dataclass

from pairbus.client.fleet.fleet import Fleet
from pairbus.client.observers.observer import Observers
from pairbus.client.sides import Sides
from pairbus.options import SendAvailabilityOptions
from pairbus.sdk.graveyard import Graveyard
from pairbus.timers import Timers


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Options, time, chance, those who listen, and whether the sides are still open."""

    options: SendAvailabilityOptions
    timers: Timers
    #: Numbers from 0 to below 1.
    random: Callable[[], float]
    #: Unix seconds, for what is written down.
    wall_clock: Callable[[], float]
    observers: Observers
    graveyard: Graveyard
    sides: Sides
    #: The other clients of the pair; None if this one pings by itself.
    fleet: Fleet | None = None

    def check(self) -> None:
        """Raise if nothing may be sent any more."""
        if self.sides.have_ended:
            self.sides.check("primary")
