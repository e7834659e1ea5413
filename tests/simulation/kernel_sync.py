"""The kernel's syncs, on a simulated disk: they end in their time, or fail, or are waited for."""

import asyncio
from collections.abc import Callable

from pairbus.plumbing.kernel_sync import Ended

__all__ = ["SimulatedSync"]


class SimulatedSync:
    """As `KernelSync`, for one process of a history."""

    is_able = True

    def __init__(self, sync: Callable[[int], None], delay: Callable[[], float]) -> None:
        """`sync` brings a file to the disk, or raises; `delay` says how long that takes."""
        self._sync = sync
        self._delay = delay
        self._under_way: tuple[asyncio.TimerHandle, int, Ended] | None = None

    def begin(self, descriptor: int, ended: Ended) -> bool:
        if self._under_way is not None:
            return False
        timer = asyncio.get_running_loop().call_later(self._delay(), self.wait)
        self._under_way = timer, descriptor, ended
        return True

    def wait(self) -> None:
        if self._under_way is None:
            return
        (timer, descriptor, ended), self._under_way = self._under_way, None
        timer.cancel()
        try:
            self._sync(descriptor)
        except OSError:
            ended(False)
        else:
            ended(True)

    def end(self) -> None:
        self.wait()

    def leave_loop(self) -> None:
        """There is nothing to be left."""
