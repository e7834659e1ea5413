"""What a billable operation is for: every stage of a message's way, and all that is true of it, in one table.

1. Ledger, meters, estimate, bill, page and docs/cost.md take from here which stages there are and in which
   order; none of them has a list of its own.
2. The value of a stage is its name in the ledger.
3. Who does an operation, and of which kind it is, tell what it is for, where the role has one stage of this
   kind; where it has several, whoever records it knows.
4. A stage is done at one side, and what it carries goes one way: so it tells of bytes where they went.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Literal, Self, get_args

#: Who does what is recorded: a client, the pump of a syphon, the keeper of its lease, which looks for its
#: queues too, or a client that tells others of its fleet.
Role = Literal["client", "pump", "lease", "fleet"]
ROLES: tuple[Role, ...] = get_args(Role)

#: At which side an operation is done, and which way goes what it carries: into the namespace or out of it.
Region = Literal["primary", "secondary"]
Direction = Literal["in", "out"]

_SENDS = frozenset({"send", "send_refused"})
_PUTS = frozenset({"put"})
_SETTLEMENTS = frozenset({"complete", "abandon", "defer", "dead_letter", "release"})


class StageLook(Enum):
    """What is drawn alike on the page, in the order of its layers: a class of `page.css`, and words."""

    NORMAL = "a", "sends to the primary"
    BACKLOG = "b", "through the backlog"
    PINGS = "d", "pings"
    # What is paid for nothing.
    OVERHEAD = "c", "idle receives, requests and writes to a store"
    # Not drawn over time: nobody recorded when it was done.
    DERIVED = "c", "derived"

    def __init__(self, style: str, words: str) -> None:
        self.style = style
        self.words = words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    """What is true of a stage. `by_client`, `by_pump`, `by_lease`, `by_fleet`: the kinds of operations by
    which they do it.
    """

    words: str
    meaning: str
    look: StageLook
    #: None: at neither of the two.
    region: Region | None
    direction: Direction | None = None
    by_client: frozenset[str] = frozenset()
    by_pump: frozenset[str] = frozenset()
    by_lease: frozenset[str] = frozenset()
    by_fleet: frozenset[str] = frozenset()
    #: Each operation carries a message, and is billed by its size.
    carries: bool = False
    #: What it carries goes from one region to the other.
    crosses: bool = False
    #: Done to each message that a pump moves, and so part of the outage that had brought it there.
    moves: bool = False
    #: A write to an object store, which is no operation of Service Bus and has a price of its own.
    is_stored: bool = False
    #: `pairbus cost estimate` has a number for it.
    is_estimated: bool = True


class Stage(StrEnum):
    """What an operation is for."""

    # fmt: off
    SEND = "send", _Traits(
        words="send to the primary", look=StageLook.NORMAL, region="primary", direction="in",
        meaning="the normal way, and the last step of the way through the backlog",
        by_client=_SENDS, by_pump=_SENDS, carries=True, moves=True,
    )
    RECEIVE = "receive", _Traits(
        words="receive from the primary", look=StageLook.DERIVED, region="primary", direction="out",
        meaning="what your own receivers do; derived, see below", carries=True,
    )
    COMPLETE = "complete", _Traits(
        words="complete at the primary", look=StageLook.DERIVED, region="primary",
        meaning="what your own receivers do; derived, see below",
    )
    IDLE = "idle", _Traits(
        words="idle receives of the syphon", look=StageLook.OVERHEAD, region="secondary",
        meaning="receives that end empty", by_pump=frozenset({"empty_receive"}),
    )
    LEASE = "lease", _Traits(
        words="lease of the syphon", look=StageLook.OVERHEAD, region="secondary", direction="in",
        meaning="renewals of the lock by which one syphon works on a pair at a time, and who has it",
        by_lease=frozenset({"management", "empty_receive"}) | _SENDS | _SETTLEMENTS,
    )
    LEASE_RECEIVE = "lease_receive", _Traits(
        words="receive from the lease",
        look=StageLook.OVERHEAD, region="secondary", direction="out",
        meaning="what earlier holders said of themselves, which the next one removes",
        by_lease=frozenset({"delivery"}), is_estimated=False,
    )
    BACKLOG_SEND = "backlog_send", _Traits(
        words="send to the backlog", look=StageLook.BACKLOG, region="secondary", direction="in",
        meaning="a message while its entity is down", by_client=_SENDS, carries=True, crosses=True,
    )
    BACKLOG_RECEIVE = "backlog_receive", _Traits(
        words="receive from the backlog", look=StageLook.BACKLOG, region="secondary", direction="out",
        meaning="a message that is moved",
        by_pump=frozenset({"delivery"}), carries=True, crosses=True, moves=True,
    )
    BACKLOG_COMPLETE = "backlog_complete", _Traits(
        words="complete at the backlog", look=StageLook.BACKLOG, region="secondary",
        meaning="the end of a message that is moved, or is not", by_pump=_SETTLEMENTS, moves=True,
    )
    PING = "ping", _Traits(
        words="pings", look=StageLook.PINGS, region="primary", direction="in",
        meaning="whether an entity is back, once an interval and entity, for a whole fleet or by each client",
        by_client=frozenset({"ping", "send_refused"}),
    )
    WORD = "word", _Traits(
        words="word that an entity is back", look=StageLook.PINGS, region="secondary", direction="in",
        meaning="what clients of a fleet tell each other, of which one pings",
        by_fleet=_SENDS,
    )
    WORD_RECEIVE = "word_receive", _Traits(
        words="receive word of the fleet",
        look=StageLook.PINGS, region="secondary", direction="out",
        meaning="what another client of the fleet has told",
        by_fleet=frozenset({"delivery", "empty_receive"}),
    )
    SCHEDULE = "schedule", _Traits(
        words="schedule at the primary", look=StageLook.NORMAL, region="primary", direction="in",
        meaning="scheduling and cancelling", by_client=frozenset({"management"}), is_estimated=False,
    )
    MANAGEMENT = "management", _Traits(
        words="requests about the backlog", look=StageLook.OVERHEAD, region="secondary", direction="in",
        meaning="peeks and renewed locks; looking for backlog queues and making them",
        by_client=frozenset({"management", "admin"}), by_pump=frozenset({"management"}),
        by_lease=frozenset({"admin"}),
    )
    STORE_WRITE = "store_write", _Traits(
        words="writes to the records' store", look=StageLook.OVERHEAD, region=None,
        meaning="records that are put into an object store, whose price is not that of an operation",
        by_client=_PUTS, by_pump=_PUTS, by_lease=_PUTS, by_fleet=_PUTS, is_stored=True,
    )
    # fmt: on

    traits: _Traits

    def __new__(cls, name: str, traits: _Traits) -> Self:
        made = str.__new__(cls, name)
        made._value_ = name
        made.traits = traits
        return made

    @property
    def words(self) -> str:
        """What people call it."""
        return self.traits.words

    @property
    def is_derived(self) -> bool:
        """What nobody records, since the application's own receivers do it."""
        return not any(self.kinds_of(role) for role in ROLES)

    def kinds_of(self, role: Role) -> frozenset[str]:
        """The kinds of operations by which a role does this."""
        kinds: frozenset[str] = getattr(self.traits, f"by_{role}")
        return kinds


def stages_by_kind(role: Role, *, region: Region | None = None) -> dict[str, Stage]:
    """What an operation of a role is for, by its kind, at one side or both; only where that is clear."""
    found: dict[str, list[Stage]] = {}
    for stage in Stage:
        if region not in (None, stage.traits.region):
            continue
        for kind in stage.kinds_of(role):
            found.setdefault(kind, []).append(stage)
    return {kind: stages[0] for kind, stages in found.items() if len(stages) == 1}
