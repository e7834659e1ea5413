#!/usr/bin/env python3
"""Draws the page about states from the table that the machine runs on.

scripts/states_page.py > docs/states.md
"""

import sys

from pairbus.options import EntityState
from pairbus.pairing.health import TABLE, HealthStep, Transition

_MEANINGS: dict[EntityState, str] = {
    EntityState.HEALTHY: "Sends go to the primary, as with the SDK's own sender.",
    EntityState.SUSPECT: (
        "A send has failed and none has succeeded since. Sends still try the primary, and the failover clock "
        "runs."
    ),
    EntityState.FAILED_OVER: (
        "Sends go to a backlog queue of the secondary. Pings ask whether the primary is back."
    ),
    EntityState.FAULTED: (
        "The pings say that waiting will not help: the entity is gone, or the rights are. Sends raise "
        '`PrimaryEntityFault`, or still go to the backlog with `on_permanent="backlog"`. Pings continue.'
    ),
}

_HEAD = """\
# The states of an entity

One client keeps one state for each queue or topic that it sends to. This page is generated from the table
that the code runs on (`scripts/states_page.py`), and a test compares the two.

"""

_RULES = """\
## Rules that the table does not show

- **When the failover clock starts.** It runs from the beginning of the first attempt that failed, and
  counts, or that has no answer yet. A success stops it; attempts that began earlier are then treated as if
  they had begun at that success.
- **Links that have to be opened.** Before the first success of an entity, after a refusal, after an idle
  spell, and after a failback by hand or by another client's word, a link has to be opened first. An attempt
  that merely has no answer is then given 3 s (or `send_timeout`, if shorter).
- **After a ping.** The link on which a ping was answered serves the sends that follow, so none of them
  waits for a new link.
- **Callers that give up.** A send that its caller cancels tells nothing by itself. When such sends have
  waited on the wire for a second in all, and nothing was answered meanwhile, that is a failure that counts,
  from the beginning of the first of them.
- **A process that stood still.** If the clock is looked at a second too late or more, the process was stopped
  or busy, and an answer may lie unread. It reads first: once, until a success, an attempt is given 3 s (or
  `failover_interval`, if shorter) from then on.
- **Late answers.** The client listens to attempts that a failover gave up until their `send_timeout`. A
  permanent error that comes late counts as one of the three pings, at most once a ping interval. A late
  success is reported, because the message may be there twice.
- **No interval.** With `failover_interval=0` a send that fails, and counts, leads from healthy straight to
  failed over.
- **A refusal is an answer.** An entity that is disabled, missing, full or not ours to use is not down. The
  send raises, and the clock stops, even if a link that was cut at the same time had started it. With
  `count_disabled` and the like a refusal is a failure that counts, and stops nothing.
- **What changes no state.** A send that is throttled, or that is the caller's mistake, changes no state.
  Neither does one that meets a wrong certificate or gets no token: it was not the primary that answered.
- **How long throttling lasts.** A send that is throttled waits as long as the primary asks. Only a failover
  ends that wait. `mark_path_healthy(path)` does not: the primary is there, and would refuse it again.
- **Pings.** The first ping goes out with the failover, the next ones every `ping_primary_interval`, up to
  `ping_jitter` of it early. After `fail_over(path)` the first ping waits for one interval, because a
  healthy primary would otherwise undo it at once.
- **Which failures count** is decided by one table, in `pairbus.pairing.failures`.
"""


def render_page() -> str:
    """The whole of docs/states.md."""
    return _HEAD + _render_meanings() + _render_diagram() + _render_table() + _RULES


def _render_meanings() -> str:
    rows = [f"| `{state.name}` | {_MEANINGS[state]} |" for state in EntityState]
    return "| state | what it means |\n| --- | --- |\n" + "\n".join(rows) + "\n\n"


def _render_diagram() -> str:
    lines = [f"    [*] --> {EntityState.HEALTHY.name}"]
    lines += [
        f"    {state.name} --> {row.to.name}: {given.value}"
        for (state, given), row in TABLE.items()
        if row.to is not state
    ]
    return "```mermaid\nstateDiagram-v2\n" + "\n".join(lines) + "\n```\n\n"


def _render_table() -> str:
    rows = [
        f"| {state.name} | {given.value} | {_name_target(state, row)} | {_name_steps(row.steps)} |"
        for (state, given), row in TABLE.items()
    ]
    head = "## The table\n\nA pair of state and input that is not listed changes nothing.\n\n"
    return head + "| in | when | then | and |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n\n"


def _name_target(state: EntityState, row: Transition) -> str:
    return "stays" if row.to is state else f"**{row.to.name}**"


def _name_steps(steps: tuple[HealthStep, ...]) -> str:
    return "; ".join(step.value for step in steps)


if __name__ == "__main__":
    sys.stdout.write(render_page())
