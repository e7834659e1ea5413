"""What may have been sent, on record before its message leaves our hands.

A message that is given back counts as accounted for (see `transport`): whoever gets it next does not suspect
it. One that is completed or buried comes to nobody any more. So the receipts of its doubts are durable by
then. If they cannot be written it is not settled at all: its lock ends, which counts as a delivery that
nobody has accounted for.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from .parcel import Parcel, ReceiptBook
from .station import Station


class Doubts:
    """The doubts of one backlog queue."""

    def __init__(
        self,
        book: ReceiptBook,
        station: Station,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """`start` makes a task that is awaited in the end."""
        self._book = book
        self._station = station
        self._start = start
        self._unwritten = Counter[int]()  # numbers of messages
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, parcels: Sequence[Parcel]) -> None:
        """Sends that may have arrived. From now on they are in doubt, and it is being written down."""
        self._unwritten.update(parcel.number for parcel in parcels)
        # The task itself is waited for: one that is called off before it runs ends, and does nothing.
        writing = self._start(self._write(parcels, self._station.now()))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, parcels: Sequence[Parcel], now: float) -> None:
        await self._station.record([self._book.unanswered(parcel, now) for parcel in parcels])
        self._unwritten -= Counter(parcel.number for parcel in parcels)

    async def written(self, parcels: list[Parcel]) -> list[Parcel]:
        """Those that may be settled, as soon as is known of all."""
        # Again, since one may come into doubt anew meanwhile.
        while self._writing and any(parcel.number in self._unwritten for parcel in parcels):
            await asyncio.wait(set(self._writing))
        if not self._unwritten:
            return parcels
        return [parcel for parcel in parcels if parcel.number not in self._unwritten]
