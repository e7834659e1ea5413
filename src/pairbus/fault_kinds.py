"""The table of faults: what can be made to go wrong with an embedded namespace, and what each kind takes.

Theory
1. A kind is one member of `FaultKind` and its row in `KINDS`: what it does to the line, what it refuses,
   which open links it severs, and its arguments.
2. From the row follow the flags and the help of `pairbus fault set`, what the control address and a plan
   take, how a value is checked, its default, and how a fault is shown. `Faults.set` and the fields of `Fault`
   are written by hand, for the sake of their types; tests compare them, and the pages, with the table.
3. It is data and stands below the broker, so that the command line can show it without loading one.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pairbus import conditions
from pairbus.errors import ConfigurationError


class FaultKind(StrEnum):
    """Everything that can be made to go wrong."""

    REFUSE = "refuse"
    RESET = "reset"
    SILENCE = "silence"
    BLACKHOLE = "blackhole"
    DELAY = "delay"
    ERROR = "error"
    BUSY = "busy"
    TOKEN = "token"
    DISABLED = "disabled"
    FULL = "full"
    DROP = "drop"
    FLAP = "flap"


class LineState(StrEnum):
    """What the line to a namespace, or to one entity, does at a moment."""

    UP = "up"
    REFUSE = "refuse"
    RESET = "reset"
    SILENCE = "silence"
    BLACKHOLE = "blackhole"

    @property
    def is_mute(self) -> bool:
        """Whether nothing is answered, though nothing is cut."""
        return self in (LineState.SILENCE, LineState.BLACKHOLE)


class ClientAction(StrEnum):
    """What a client asks for, as far as faults tell one thing from another."""

    ATTACH_SENDER = "attach_sender"
    ATTACH_RECEIVER = "attach_receiver"
    ATTACH_MANAGEMENT = "attach_management"
    SEND = "send"
    SCHEDULE = "schedule"
    MANAGE = "manage"
    ADMINISTER = "administer"


def is_lasting(value: Any) -> bool:
    """Whether this is a number above 0 whose sums stay numbers; a hundred years are for ever enough."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 100 * 366 * 86400.0


@dataclass(frozen=True, slots=True)
class FaultArgument:
    """One argument of a kind. Its type is that of its default: seconds, a whole number, or a condition."""

    name: str
    default: float | int | str
    help: str
    lowest: float = 0.0

    def check(self, kind: FaultKind, value: Any) -> None:
        """Raise ConfigurationError unless the value is good."""
        what = f"{self.name} of the fault {kind}"
        if isinstance(self.default, str):
            if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
                raise ConfigurationError(
                    f"{what} is the name of an AMQP error, such as {self.default}, not {value!r}"
                )
        elif isinstance(self.default, int):
            if not (isinstance(value, int) and is_lasting(value)):
                raise ConfigurationError(f"{what} must be a whole number from 1 on, not {value!r}")
        elif not is_lasting(value):
            raise ConfigurationError(f"{what} must be more than 0 seconds, not {value!r}")
        elif value < self.lowest:
            raise ConfigurationError(f"{what} is at least {self.lowest} s, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTraits:
    """What a kind of fault does: to the line, to what is asked, and to links that are open already.

    `help` is its line in the help of the command. One that withholds gives nothing to receivers that have
    asked for messages, and says nothing either.
    """

    help: str
    line: LineState = LineState.UP
    condition: str = ""
    description: str = ""
    refuses: frozenset[ClientAction] = frozenset()
    severs: frozenset[ClientAction] = frozenset()
    withholds: bool = False
    arguments: tuple[FaultArgument, ...] = ()

    def check(self, kind: FaultKind, name: str, value: Any) -> None:
        """Raise ConfigurationError unless the kind takes such an argument, and the value is good."""
        for argument in self.arguments:
            if argument.name == name:
                return argument.check(kind, value)
        names = sorted(argument.name for argument in self.arguments)
        takes = f"takes {' and '.join(names)}" if names else "takes no argument of its own"
        raise ConfigurationError(f"the fault {kind} does not take {name!r}: it {takes}")


_ATTACHING = frozenset(
    {ClientAction.ATTACH_SENDER, ClientAction.ATTACH_RECEIVER, ClientAction.ATTACH_MANAGEMENT},
)
_SENDING = frozenset({ClientAction.SEND, ClientAction.SCHEDULE})
_ON_LINKS = frozenset(ClientAction) - {ClientAction.ADMINISTER}
# An open sender has each of its sends refused and need not lose its link. A receiver asks for nothing more
# once it has given credit, so that only a detach can tell it that something is wrong.
_SEVERS_RECEIVERS = frozenset({ClientAction.ATTACH_RECEIVER})
# A port that opens and closes faster than this would do nothing else any more.
_SHORTEST_PHASE = 0.01

# The condition concerns the links of one entity; a namespace is cut off below AMQP.
_CLOSED = FaultTraits(
    help="the port is closed, open connections are reset",
    line=LineState.REFUSE,
    condition=conditions.DETACH_FORCED,
    description="The entity is not reachable.",
    refuses=_ON_LINKS,
    severs=_ATTACHING,
)
KINDS: dict[FaultKind, FaultTraits] = {
    FaultKind.REFUSE: _CLOSED,
    FaultKind.RESET: replace(
        _CLOSED,
        help="every connection is reset as soon as it is accepted",
        line=LineState.RESET,
        description="The link was forcibly detached.",
    ),
    FaultKind.SILENCE: FaultTraits(help="bytes are taken, nothing is answered", line=LineState.SILENCE),
    FaultKind.BLACKHOLE: FaultTraits(
        help="connecting hangs, open connections are no longer read", line=LineState.BLACKHOLE
    ),
    FaultKind.DELAY: FaultTraits(
        help="sends are accepted and answered --seconds later",
        # Longer than an impatient sender waits, shorter than the SDK's 60 s.
        arguments=(FaultArgument("seconds", 30.0, "how much later sends are answered"),),
    ),
    FaultKind.ERROR: FaultTraits(
        help="operations are refused with --condition",
        description="The service was unable to process the request.",
        refuses=frozenset(ClientAction),
        severs=_SEVERS_RECEIVERS,
        arguments=(FaultArgument("condition", conditions.INTERNAL_ERROR, "the AMQP condition"),),
    ),
    FaultKind.BUSY: FaultTraits(
        help="operations are refused as throttled",
        condition=conditions.SERVER_BUSY,
        description="The request was terminated because the namespace is being throttled. Error code: 50009. "
        "Please wait 2 seconds and try again.",
        refuses=frozenset(ClientAction),
        # No link is lost: the Python SDK expects that of this condition, and would use a lost one for ever.
        withholds=True,
    ),
    FaultKind.TOKEN: FaultTraits(
        help="no token is accepted",
        condition=conditions.UNAUTHORIZED,
        description="The token is not accepted: the token service is not available.",
        refuses=frozenset(ClientAction),
        severs=_SEVERS_RECEIVERS,
    ),
    FaultKind.DISABLED: FaultTraits(
        help="the entity answers as disabled",
        condition=conditions.ENTITY_DISABLED,
        description="Messaging entity is currently disabled.",
        refuses=_SENDING | {ClientAction.ATTACH_SENDER, ClientAction.ATTACH_RECEIVER},
        severs=_SEVERS_RECEIVERS,
    ),
    FaultKind.FULL: FaultTraits(
        help="the entity answers as full",
        condition=conditions.RESOURCE_LIMIT,
        description="The maximum entity size has been reached or exceeded.",
        refuses=_SENDING,
    ),
    FaultKind.DROP: FaultTraits(
        help="every --every-th send is taken, its answer is lost",
        arguments=(FaultArgument("every", 10, "lose the answer to one send in this many"),),
    ),
    FaultKind.FLAP: replace(
        _CLOSED,
        help="down for --down seconds, up for --up seconds, again and again",
        arguments=(
            FaultArgument("down", 5.0, "seconds of refusal", lowest=_SHORTEST_PHASE),
            FaultArgument("up", 5.0, "seconds of good behaviour", lowest=_SHORTEST_PHASE),
        ),
    ),
}
#: The names of all arguments, each with the kinds that take it.
ARGUMENTS: dict[str, dict[FaultKind, FaultArgument]] = {
    name: {
        kind: argument
        for kind, traits in KINDS.items()
        for argument in traits.arguments
        if argument.name == name
    }
    for name in (argument.name for traits in KINDS.values() for argument in traits.arguments)
}
