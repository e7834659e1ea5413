"""The reckoning: of the messages that are alike, what became of how many. The rules of `verify`; no I/O.

1. Messages are alike if pair, path and message id are the same: the *key*. An application may send one id
   several times, so keys are counted, never merely looked up: `redirected` is how many a backlog queue has
   confirmed, by the redirect records.
2. A *copy* is one message in one backlog queue, told by queue, sequence number and time; both a receipt and a
   look at the queue name it. It is in one place and counts once: delivered if there is a receipt that the
   primary has it, even if it still lies in the queue; else dead-lettered if it lies among the dead letters;
   else waiting if it lies in the queue. The receipt of a burial is no place: what was buried has to lie
   there.
3. Lost is what was redirected beyond all copies that there are. No copy of another key makes up for it.
4. Copies beyond what was redirected are *recovered* as far as sends of unknown outcome may have left them,
   and *unexpected* beyond that: a record is missing, or somebody else has put them there. So always

       delivered + waiting + dead-lettered + lost = redirected + recovered + unexpected

5. A copy that had arrived and came again may have been buried then. If it lies there no more it was dropped,
   or redriven, and is now a copy of its own: an *echo*, which must not stand in for a message that is lost.
   So what is lost if it was redriven is *unclear*, and neither lost nor well.
6. A copy that came before records were removed is *bygone*: the message that it is has no record any more. It
   must not stand in for a younger one with its id either, so what is lost but for it is unclear.
7. Duplicated is what was moved more often than it was redirected. To that come sends that may have arrived
   unnoticed: the primary got a key *up to* so many times too often, and never more often than that.

The rules are arithmetic alone, so that the same lines reckon with numbers and with the columns of a table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

#: A number, or a column of numbers.
Quantity = Any


class CopyPlace(NamedTuple):
    """Where one copy is: at most one of the three is 1."""

    delivered: Quantity
    dead_lettered: Quantity
    waiting: Quantity


class KeyCounts(NamedTuple):
    """What was counted of one key. `unsure` are sends to the backlog of unknown outcome; `doubtful` are sends
    to the primary that may have arrived besides those that are known, `repeated` those that are known to;
    `echoed` copies may each have left another one; `bygone` ones are counted nowhere else.
    """

    redirected: Quantity = 0
    unsure: Quantity = 0
    delivered: Quantity = 0
    dead_lettered: Quantity = 0
    waiting: Quantity = 0
    repeated: Quantity = 0
    doubtful: Quantity = 0
    echoed: Quantity = 0
    bygone: Quantity = 0


class Reckoning(NamedTuple):
    """What became of the messages of one key."""

    lost: Quantity
    unclear: Quantity
    recovered: Quantity
    unexpected: Quantity
    duplicated: Quantity
    at_most_duplicated: Quantity


def place_copy(*, has_arrived: Quantity, lies_dead: Quantity, lies_waiting: Quantity) -> CopyPlace:
    """Rule 2; each sign is 0 or 1."""
    is_dead = (1 - has_arrived) * lies_dead
    return CopyPlace(has_arrived, is_dead, (1 - has_arrived) * (1 - lies_dead) * lies_waiting)


def reckon(
    key: KeyCounts, *, least: Callable[..., Quantity] = min, most: Callable[..., Quantity] = max
) -> Reckoning:
    """Rules 3 to 7; `least` and `most` are those of what is reckoned with."""
    copies = key.delivered + key.dead_lettered + key.waiting
    spare = most(0, copies - key.redirected)
    lost = most(0, key.redirected - copies - key.bygone)
    echoes = least(key.echoed, copies - key.echoed)
    recovered = least(key.unsure, spare)
    duplicated = most(0, key.delivered - most(1, key.redirected)) + key.repeated
    return Reckoning(
        lost=lost,
        unclear=most(0, key.redirected - copies + echoes) - lost,
        recovered=recovered,
        unexpected=spare - recovered,
        duplicated=duplicated,
        at_most_duplicated=duplicated + key.doubtful,
    )
