"""Ends that consist of several steps."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


async def take_each(*steps: Callable[[], Awaitable[object]]) -> None:
    """Take every step in order, also if one fails or is cancelled; then the first error is raised."""
    first: BaseException | None = None
    for step in steps:
        try:
            await step()
        except GeneratorExit:  # there is no event loop any more that a step could wait on
            raise
        except BaseException as error:
            if first is not None:
                log.warning("a step of an end has failed after another one", exc_info=error)
            first = first or error
    if first is not None:
        raise first
