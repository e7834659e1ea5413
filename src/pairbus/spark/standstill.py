"""Whether it is in vain to wait for the end of a drain. Pure; time comes in.

1. Nothing was moved, buried or put aside for the first time, though pumps run: that is a standstill. Pumps
   wait for what is down as long as they are told to, and end by themselves; then for locks that others have.
2. The lease does not come back, perhaps since the secondary is down. Then it counts how long nothing may be
   moved, and not how long nothing was.
"""

from collections.abc import Sequence

from pairbus.pump.headway import Headway
from pairbus.pump.options import PumpOptions

from .leases import ONCE_PATIENCE
from .leash.leash import Progress

# A lock of five minutes is the longest that there is, and whoever has died keeps no other for longer.
_LONGEST = 330.0
# Of the Premium tier.
_LARGEST_MESSAGE = 100 << 20


class Standstill:
    """Watches a drain of pumps that have these options."""

    def __init__(self, options: Sequence[PumpOptions]) -> None:
        # At a rate that is low enough, minutes between two messages are no standstill.
        rates = [rate for one in options for rate in (one.max_rate, one.credits) if rate]
        byte_rates = [one.max_byte_rate for one in options if one.max_byte_rate]
        self._patience = max(one.patience for one in options)
        self._between = sum(4 / rate for rate in rates) + sum(_LARGEST_MESSAGE / rate for rate in byte_rates)
        self._headway = Headway()
        self._most_waiting = 0
        self._barred_at: float | None = None

    def note(self, progress: Progress, *, may_work: bool, now: float) -> float | None:
        """So far it is; for how long nothing was moved, if that is too long."""
        counts = progress.counts
        # What is put aside for the first time is headway too, of a large backlog whose paths are down.
        self._most_waiting = max(self._most_waiting, counts["waiting"])
        handled = counts["moved"] + counts["dead_lettered"] + self._most_waiting
        is_wanted = progress.order == "run"
        self._headway.note(handled, has_work=is_wanted and progress.pumps > 0, now=now)
        if may_work or not is_wanted:
            self._barred_at = None
        elif self._barred_at is None:
            self._barred_at = now
        barred = 0.0 if self._barred_at is None else now - self._barred_at
        passed = self._headway.passed
        if barred > max(ONCE_PATIENCE, self._patience) or passed > _LONGEST + self._patience + self._between:
            return max(barred, passed)
        return None
