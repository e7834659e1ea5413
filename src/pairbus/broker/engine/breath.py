"""Where long work may be interrupted.

What one client asks for can be much: a batch for a topic with many subscriptions, a hundred thousand messages
that come due in the same second. Whoever does many things one after the other says between them that this is
a place to stop for a moment. Whether anybody makes use of it is no concern of the engine's (`broker.strand`
does). Whatever is decided meanwhile waits: to the work it looks as if nothing had happened in between.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

#: What to call at such a place; None where nobody cares.
PAUSE: ContextVar[Callable[[], None] | None] = ContextVar("pause", default=None)


def breathe() -> None:
    """This is a place to stop for a moment."""
    pause = PAUSE.get()
    if pause is not None:
        pause()


def slices(items: Sequence[T], size: int = 64) -> Iterable[Sequence[T]]:
    """So many items as take a moment each time, with a place to stop before each slice."""
    if len(items) <= size:  # as nearly always
        breathe()
        return (items,)
    return _slices(items, size)


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), size):
        breathe()
        yield items[at : at + size]
