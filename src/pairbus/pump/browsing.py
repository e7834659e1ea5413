"""Looking through an entity by peek, which locks nothing and shows messages in every state.

A page costs an operation. The service gives out at most 250 messages a page, and fewer where they are large.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from .transport import Peeked

PAGE = 250
#: Beyond the number of any message.
NO_END = 2**63 - 1


class Peekable(Protocol):
    """What can be looked through: a source of a transport."""

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]: ...


async def browse(source: Peekable) -> AsyncIterator[list[Peeked]]:
    """All messages, page by page."""
    first = 0
    while page := await source.peek(first, PAGE):
        first = page[-1].sequence_number + 1
        yield page


class Numbered(Protocol):
    """A message of which at least the number is known."""

    @property
    def sequence_number(self) -> int: ...


N = TypeVar("N", bound=Numbered)


async def find_last(first_from: Callable[[int], Awaitable[N | None]], first: N) -> N:
    """The message with the greatest number, by some forty looks at one message, however many there are.

    A look says whether there is anything from a number on. Steps that double lead beyond the end; halves
    lead back to it. What comes meanwhile may be found, or not.
    """
    last, step = first, 1
    while (
        last.sequence_number + step < NO_END
        and (found := await first_from(last.sequence_number + step)) is not None
    ):
        last, step = found, 2 * step
    beyond = min(last.sequence_number + step, NO_END)
    while beyond - last.sequence_number > 1:
        middle = (last.sequence_number + beyond) // 2
        found = await first_from(middle)
        if found is None:
            beyond = middle
        else:
            last = found
    return last
