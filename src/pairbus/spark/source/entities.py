"""Which entities are meant: names as they are, patterns by what the namespace lists."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from fnmatch import fnmatchcase

from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.pump.pair import Side

from .options import DEAD, without_dead

# A namespace has ten thousand entities at most, listed a hundred at a time.
_LIST_LIMIT = 120.0
_SUBSCRIPTIONS = "/Subscriptions/"


async def find_entities(side: Side, names: Sequence[str], *, dead_letters: str) -> list[str]:
    """The paths to read. `dead_letters` is `no`, `too` or `only`."""
    found: dict[str, str] = {}
    listed: list[str] | None = None
    for name in names:
        plain = without_dead(name)
        paths = [plain]
        if "*" in plain or "?" in plain:
            listed = await _list(side) if listed is None else listed
            paths = [path for path in listed if fnmatchcase(path.lower(), plain.lower())]
        for path in paths:
            for shown in _shown(path, "only" if plain != name else dead_letters):
                found.setdefault(shown.lower(), shown)
    if not found:
        raise ConfigurationError(f"No queue and no subscription matches {', '.join(names)}")
    return list(found.values())


def _shown(path: str, dead_letters: str) -> list[str]:
    both = [path, f"{path}{DEAD}"]
    return both[:1] if dead_letters == "no" else both[1:] if dead_letters == "only" else both


async def _list(side: Side) -> list[str]:
    from pairbus.sdk.administration import TROUBLES, Trouble, describe_trouble, judge_trouble  # see _paths

    try:
        async with asyncio.timeout(_LIST_LIMIT):
            return [path async for path in _paths(side)]
    except TROUBLES as error:
        if judge_trouble(error) is Trouble.UNREACHABLE:
            raise UnreachableError(f"The entities cannot be listed: {describe_trouble(error)}") from None
        raise ConfigurationError(
            f"A pattern needs the right to list entities: {describe_trouble(error)}. Name them instead"
        ) from None


async def _paths(side: Side) -> AsyncIterator[str]:
    from pairbus.backlog.discovery import (
        administration,  # the SDK is slow to import, and executors read names
    )

    async with administration(side) as admin:
        async for queue in admin.list_queues():
            yield queue.name
        async for topic in admin.list_topics():
            async for subscription in admin.list_subscriptions(topic.name):
                yield f"{topic.name}{_SUBSCRIPTIONS}{subscription.name}"
