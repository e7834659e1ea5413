"""A line that is signed in to its namespace: connected, with the links by which tokens are put."""

import asyncio
from typing import Any

from pairbus import conditions, words

from .errors import UNANSWERED, TokenRefused
from .line import AmqpLine, Place
from .requests import RequestLink
from .tokens import TokenSource


async def open_line(
    place: Place,
    tokens: TokenSource,
    *,
    timeout: float,
    container_id: str,
    user_agent: str = "pairbus",
) -> AmqpLine:
    """A new line; each answer has `timeout` seconds. Ask it to `authorize` an entity before each link."""
    line = await AmqpLine.connect(
        place, tokens, timeout=timeout, container_id=container_id, user_agent=user_agent
    )
    try:
        cbs = await RequestLink.open(line, words.CBS, timeout=timeout)
    except BaseException:
        line.cut(UNANSWERED, "no $cbs links")
        raise

    opening = asyncio.Lock()

    async def put(audience: str, kind: str, token: str) -> None:
        nonlocal cbs
        async with opening:
            if cbs.lost is not None:  # the links alone: the line and what is on it need tokens all the same
                cbs = await RequestLink.open(line, words.CBS, timeout=timeout)
        request = {"operation": words.PUT_TOKEN, "type": kind, "name": audience}
        answer, _ = await cbs.ask(request, token, timeout=timeout)
        status = answer.get(words.CBS_STATUS)
        if not isinstance(status, int) or not 200 <= status < 300:
            raise _refusal(line, status, str(answer.get(words.CBS_STATUS_TEXT) or ""))

    line.put_token = put
    return line


def _refusal(line: AmqpLine, status: Any, description: str) -> TokenRefused:
    number = status if isinstance(status, int) else 0
    if number == 404:
        return TokenRefused(conditions.NOT_FOUND, description, number)
    # Where another entity's token was taken, it is this entity that we may not use; else it is the key.
    unauthorized = conditions.UNAUTHORIZED if line.has_grant else conditions.AUTH_FAILED
    condition = unauthorized if number in (401, 403) else conditions.INTERNAL_ERROR
    return TokenRefused(condition, f"{status}: {description}", number)
