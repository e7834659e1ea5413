"""What a refused send means for the message and for its path. One table holds it."""

import re
from dataclasses import dataclass
from enum import Enum

from pairbus import conditions
from pairbus.wire.errors import CONNECTION_LOST, OF_A_MESSAGE, SUSPECTED, UNANSWERED, TransportError


class Remedy(Enum):
    """What to do about it."""

    DOWN = "the path is down: put its messages aside and try again later"
    BUSY = "the namespace is throttled: wait as asked and go slower"
    GONE = "nothing can be sent to this path: dead-letter its messages"
    DENIED = "not allowed, for this path alone or for want of a token: `Destinations` tells which"
    SUSPECT = "this message, or another that was on the way with it, cannot be sent: try them one by one"
    POISON = "this message cannot be sent: dead-letter it"


# Condition -> verdict, and the reason that stands in the dead letters and in the receipts. What is not here
# is taken for an outage: waiting loses nothing.
_TABLE: dict[str, tuple[Remedy, str]] = {
    CONNECTION_LOST: (Remedy.DOWN, "Unreachable"),
    UNANSWERED: (Remedy.DOWN, "Unanswered"),
    SUSPECTED: (Remedy.SUSPECT, "Suspected"),
    conditions.SERVER_BUSY: (Remedy.BUSY, "Busy"),
    conditions.RESOURCE_LIMIT: (Remedy.DOWN, "EntityFull"),
    conditions.ENTITY_DISABLED: (Remedy.DOWN, "EntityDisabled"),
    # The key itself is not accepted, so that it is no matter of this path: mending it mends all.
    conditions.AUTH_FAILED: (Remedy.DOWN, "AuthenticationFailed"),
    conditions.NOT_FOUND: (Remedy.GONE, "EntityNotFound"),
    conditions.RESOURCE_DELETED: (Remedy.GONE, "EntityNotFound"),
    conditions.UNAUTHORIZED: (Remedy.DENIED, "NotAuthorized"),
    **{condition: (Remedy.POISON, reason) for condition, reason in OF_A_MESSAGE.items()},
}
# What a namespace answers, or does not, that is asked for too much. All else is a matter of one path.
_STRAIN = {CONNECTION_LOST, UNANSWERED, conditions.SERVER_BUSY, conditions.TIMEOUT, conditions.INTERNAL_ERROR}
_WAIT = re.compile(r"wait\s+(?:for\s+)?([0-9]+(?:\.[0-9]+)?)\s*s", re.IGNORECASE)
# What a throttled answer means that says nothing, and the longest that we let one ask for.
DEFAULT_BUSY_WAIT = 10.0
LONGEST_BUSY_WAIT = 300.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason; `is_strain`: the whole namespace may be strained, so that all go slower."""

    verdict: Remedy
    reason: str
    description: str
    wait: float = 0.0
    is_strain: bool = False


def judge(error: TransportError) -> Judgement:
    """What a failed send means."""
    verdict, reason = _TABLE.get(error.condition, (Remedy.DOWN, "Failed"))
    wait = 0.0
    if verdict is Remedy.BUSY:
        asked = _WAIT.search(error.description)
        wait = min(float(asked[1]), LONGEST_BUSY_WAIT) if asked else DEFAULT_BUSY_WAIT
    return Judgement(verdict, reason, error.words, wait, error.condition in _STRAIN)
