"""Who sends in a drill, as the conductor sees it: producers of our own, or the user's application."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .messages import Resting, SentMessage
from .recorder import Recorder
from .result import Check
from .scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What they are given: namespaces by connection strings, a directory, and who keeps what they do."""

    scenario: Scenario
    primary: str
    secondary: str
    state: Path
    recorder: Recorder


class Applications(ABC):
    """Those that know themselves what they sent need not say more than they must."""

    #: Whether the states of their entities are known, and their sessions are those that the scenario names.
    tells_states = True
    names_sessions = True

    def __init__(self, given: Equipment) -> None:
        self._scenario = given.scenario
        self._recorder = given.recorder

    @abstractmethod
    async def start(self) -> None:
        """Get ready to send."""

    @abstractmethod
    async def run(self) -> None:
        """Send; returns when the time of sending is over."""

    @abstractmethod
    def spooled(self) -> int:
        """Messages on the applications' own disks."""

    @abstractmethod
    def is_settled(self) -> bool:
        """Whether all entities are healthy and nothing is spooled."""

    @abstractmethod
    async def retire(self) -> None:
        """No outage is coming any more, and no send."""

    @abstractmethod
    async def close(self) -> None:
        """End, whatever is under way; again, if need be."""

    def have_reached_primary(self) -> bool:
        """Whether each has sent something to the primary, as far as is known."""
        return True

    def sent(self) -> Sequence[SentMessage]:
        """The messages that they say they sent."""
        return self._recorder.sent

    def account(
        self, resting: Iterable[Resting], redirected: Iterable[tuple[str, str]]
    ) -> Sequence[SentMessage]:
        """The messages that they sent, as far as anybody knows in the end."""
        return self._recorder.sent

    def checks(self) -> Sequence[Check]:
        """What there is to check of the applications themselves."""
        return ()

    def notes(self) -> Sequence[str]:
        """What there is to say of them."""
        return ()
