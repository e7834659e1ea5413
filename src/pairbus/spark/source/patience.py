"""A namespace that is busy or away is tried again for a while; what is wrong for good is told in words."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pairbus import conditions
from pairbus.errors import ConfigurationError, PairbusError, UnreachableError
from pairbus.pump.judgement import Remedy, judge
from pairbus.wire.errors import TransportError

T = TypeVar("T")
log = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


def wait_for(error: TransportError, attempt: int) -> float | None:
    """How long to wait before the next attempt; None if a retry is useless."""
    judgement = judge(error)
    if judgement.verdict is Remedy.BUSY:
        return judgement.wait
    if judgement.verdict is Remedy.DOWN and error.condition != conditions.AUTH_FAILED:
        return min(_FIRST_WAIT * 2.0**attempt, _LONGEST_WAIT)
    return None


async def patiently(call: Callable[[], Awaitable[T]], *, timeout: float, what: str) -> T:
    """Do something that may be done twice, again and again for up to `timeout` seconds."""
    loop = asyncio.get_running_loop()
    ends, attempt = loop.time() + timeout, 0
    while True:
        try:
            return await call()
        except TransportError as error:
            wait = wait_for(error, attempt)
            if wait is None or loop.time() + wait > ends:
                raise explain(error, what) from error
            log.info("%s: %s; tried again in %.1f s", what, error, wait)
            await asyncio.sleep(wait)
            attempt += 1


def explain(error: TransportError, what: str) -> PairbusError:
    """A refusal in words that say how to mend it."""
    match error.condition:
        case conditions.NOT_FOUND | conditions.RESOURCE_DELETED:
            return ConfigurationError(
                f"There is no entity {what!r}. A subscription is named TOPIC/Subscriptions/NAME, dead "
                f"letters ENTITY/$DeadLetterQueue ({error.description})"
            )
        case conditions.AUTH_FAILED | conditions.UNAUTHORIZED:
            return ConfigurationError(f"{what!r} may not be used with this key or credential: {error}")
        case conditions.NOT_ALLOWED:
            return ConfigurationError(f"{what!r}: {error.description}")
    return UnreachableError(f"{what!r}: {error}")
