"""The backlog of a pair as the syphon serves it."""

from dataclasses import dataclass

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.names import primary_name
from pairbus.pump.pair import PumpPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A pair and its backlog queues."""

    pair: PumpPair
    count: int = SendAvailabilityOptions().backlog_queue_count
    #: Serve queues beyond the count too, if they can be listed.
    include_extra: bool = False
    #: What begins the names of the queues; by default the primary's own name.
    primary_name: str | None = None

    @property
    def name(self) -> str:
        if self.primary_name is not None:
            return primary_name("", alias=self.primary_name)
        return self.pair.label()
