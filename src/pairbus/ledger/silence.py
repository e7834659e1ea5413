"""Hosts that have not shipped all of their records, by the heads that they tell in the shared place.

A head has the time of its host. By a clock that is ahead of ours, a host that has died would not be silent
for as long as that. So what is told of a time to come counts as silence too.
"""

from collections.abc import Iterable

from .chain import NOBODY, ChainHead, HeadFile, moment

#: Who ships its records tells its head anew at least three times in so long, or, having none yet, in so long.
SILENCE = 180.0
IDLE_SILENCE = 360.0
_AHEAD = ", which is yet to come: its clock is ahead of this one, and nobody can tell whether it still runs"


def host_of(writer: str) -> str:
    """The host that a writer has named itself by."""
    return writer.rpartition("-")[0]


def is_behind(head: ChainHead) -> bool:
    """Whether its writer may have more on another disk."""
    return head.is_shipped and head.is_open and not head.is_adopted and head.writer != NOBODY


def is_silent(head: ChainHead, *, now: float) -> bool:
    """Whether such a writer was not heard of for longer than those that ship are silent; see `SILENCE`."""
    longest = SILENCE if head.commits else IDLE_SILENCE
    return is_behind(head) and not -SILENCE <= now - head.at <= longest


def tell_behind(heads: Iterable[HeadFile]) -> list[str]:
    """Up to when there are the records of each host that may have more."""
    since: dict[str, float] = {}
    for _, head in heads:
        if head is not None and is_behind(head):
            host = host_of(head.writer)
            since[host] = min(head.at, since.get(host, head.at))
    return [f"{host} up to {moment(at)}" for host, at in sorted(since.items())]


def tell_silent(heads: Iterable[HeadFile], *, now: float) -> list[str]:
    """What is to be said of hosts that are silent."""
    return [
        f"host {host_of(head.writer)}: records up to {moment(head.at)}{_AHEAD if head.at > now else ''}"
        for _, head in heads
        if head is not None and is_silent(head, now=now)
    ]
