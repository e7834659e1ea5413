"""Whether the primary is known to be the right one.

Before its first answer, a primary that cannot be reached may be down or may be a typing mistake. The first
fails over, the second is to be raised. An earlier process that has reached it tells them apart, and so does a
backlog queue that is not of our own making: somebody has paired before us.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from pairbus.client.state.landmark import Landmark
from pairbus.threads import THREADS

_MOMENT = 1.0


class Acquaintance:
    """What one client knows of its primary."""

    def __init__(
        self,
        landmark: Landmark | None,
        *,
        find_queues: Callable[[float | None], Awaitable[Iterable[str]]],
        made_by_us: Callable[[], Iterable[str]],
    ) -> None:
        """`find_queues` tells which backlog queues are there, `made_by_us` which of them we have made."""
        self._landmark = landmark
        self._find_queues = find_queues
        self._made_by_us = made_by_us
        # The last question whether there is a mark, and the last try to make one. A disk that hangs keeps a
        # thread for each: there is one at a time, however often sends fail.
        self._asked: asyncio.Future[bool] | None = None
        self._noted: asyncio.Future[None] | None = None
        #: Whether the primary has answered this client.
        self.had_success = False

    def reached(self) -> None:
        """The primary has answered."""
        if not self.had_success:
            self.had_success = True
            self._remember()

    async def was_paired_before(self, deadline: float | None) -> bool:
        """Whether the names of this pair are known to be right, though the primary has not answered yet."""
        if self._landmark is not None:
            asked = self._asked
            if asked is None or asked.done():
                asked = asyncio.get_running_loop().run_in_executor(THREADS, self._landmark.is_set)
                self._asked = asked
            await asyncio.wait({asked}, timeout=_MOMENT)  # a disk that hangs holds nobody up
            if asked.done() and asked.result():
                return True
        found = await self._find_queues(deadline)
        # Asked afterwards: a queue may have been created while a link to it was being opened.
        is_known = not set(self._made_by_us()).issuperset(found)
        if is_known:
            self._remember()  # for a process that finds neither side
        return is_known

    def _remember(self) -> None:
        if self._landmark is not None and (self._noted is None or self._noted.done()):
            self._noted = asyncio.get_running_loop().run_in_executor(THREADS, self._landmark.set)
