"""Dead letters of one backlog queue: a receipt first, then the burial."""

import asyncio
from collections.abc import Sequence

from pairbus.pairing.names import path_key
from pairbus.wire.errors import TransportError

from .intake import Stray
from .judgement import Judgement
from .parcel import Parcel, ReceiptBook
from .station import Station
from .transport import BacklogSource, Delivery, Refusal

# The service takes 4 KB; a description is for people.
_DESCRIPTION_LIMIT = 1024


class Burials:
    """Moves messages to the dead letters of one queue."""

    def __init__(self, source: BacklogSource, book: ReceiptBook, station: Station) -> None:
        self._source = source
        self._book = book
        self._station = station

    async def bury(self, parcels: Sequence[Parcel], why: Judgement) -> list[Refusal]:
        """Bury messages of lanes; what became of each."""
        now = self._station.now()
        await self._station.record([self._book.buried(parcel, now, why.reason) for parcel in parcels])
        outcomes = await asyncio.gather(
            *(self._bury_one(parcel.delivery, why.reason, why.description) for parcel in parcels)
        )
        for parcel, error in zip(parcels, outcomes, strict=True):
            if error is None:
                self._station.tally.of(parcel.path).dead_lettered += 1
        return outcomes

    async def bury_stray(self, stray: Stray) -> Refusal:
        """Bury a message that never came to a lane."""
        row = self._book.row(
            stray.mark,
            stray.opened,
            size=len(stray.delivery.payload),
            attempts=0,
            now=self._station.now(),
            outcome="dead-lettered",
            reason=stray.reason,
        )
        row["unsure"] = int(stray.is_suspect)
        await self._station.record([row])
        error = await self._bury_one(stray.delivery, stray.reason, stray.text)
        if error is None:
            path = path_key(stray.opened.path) if stray.opened else ""
            self._station.tally.of(path).dead_lettered += 1
        return error

    async def _bury_one(self, delivery: Delivery, reason: str, text: str) -> Refusal:
        try:
            return await self._source.dead_letter(
                delivery, reason=reason, description=text[:_DESCRIPTION_LIMIT]
            )
        except TransportError as error:
            return error
