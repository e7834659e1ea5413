"""Whether the primary is known to be the right one.

Before its first answer, a primary that cannot be reached may be down or may be a typing mistake. The first
fails over, the second is to be raised. An earlier process that has reached it tells them apart, and so does a
backlog queue: somebody has paired before us who knew the primary. That holds because nobody makes the first
queue of a pair for a primary that has never answered: a client knocks there first, or a mistyped host would
leave queues behind, and whoever is started next with the same mistake would take it for an outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pairbus.client.state.landmark import Landmark


class Acquaintance:
    """What one client knows of its primary."""

    def __init__(
        self,
        landmark: Landmark | None,
        *,
        has_queues: Callable[[float | None], Awaitable[bool]],
        knock: Callable[[], Awaitable[bool]],
        on_reached: Callable[[], object],
    ) -> None:
        """`has_queues` tells whether there is a backlog queue, `knock` whether the primary answers now."""
        self._landmark = landmark
        self._has_queues = has_queues
        self._knock = knock
        self._on_reached = on_reached
        #: Whether the primary has answered this client.
        self.had_success = False

    def reached(self) -> None:
        """The primary has answered."""
        if not self.had_success:
            self.had_success = True
            self._remember()
            self._on_reached()

    async def is_known(self) -> bool:
        """Whether it has ever answered here, or does so now."""
        if self.had_success or await self._is_marked():
            return True
        if await self._knock():
            self.reached()
        return self.had_success

    async def was_paired_before(self, deadline: float | None) -> bool:
        """Whether the names of this pair are known to be right, though the primary has not answered yet."""
        if await self._is_marked():
            return True
        is_known = await self._has_queues(deadline)
        if is_known:
            self._remember()  # for a process that finds neither side
        return is_known

    async def _is_marked(self) -> bool:
        mark = self._landmark
        return mark is not None and await asyncio.get_running_loop().run_in_executor(None, mark.is_set)

    def _remember(self) -> None:
        if self._landmark is not None:
            asyncio.get_running_loop().run_in_executor(None, self._landmark.set)
