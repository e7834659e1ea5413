"""Draws the page about states from the table that the machine runs on.

python -m pairbus.pairing.diagram > docs/states.md
"""

from __future__ import annotations

import sys

from pairbus.options import EntityState

from .health import TABLE, HealthStep, Transition

_MEANINGS: dict[EntityState, str] = {
    EntityState.HEALTHY: "Sends go to the primary, as with the SDK's own sender.",
    EntityState.SUSPECT: (
        "A send has failed and none has succeeded since. Sends still try the primary, and the failover clock "
        "runs."
    ),
    EntityState.FAILED_OVER: "Sends go to a backlog queue of the secondary. Pings ask for the primary.",
    EntityState.FAULTED: (
        "The pings say that waiting will not help: the entity is gone, or the rights are. Sends raise "
        '`PrimaryEntityFault`, or go on to the backlog with `on_permanent="backlog"`. Pings go on.'
    ),
}

_HEAD = """\
# The states of an entity

One client keeps one state for each queue or topic that it sends to. This page is drawn from the table that
the code runs on (`python -m pairbus.pairing.diagram`), and a test compares the two.

"""

_RULES = """\
## Rules that the table does not show

- The failover clock runs from the beginning of the first attempt that failed, counted, or is still without an
  answer. A success stops it, and attempts that began earlier are then taken to begin at that success. Before
  the first success of an entity an attempt that is only without an answer is given 3 s (or `send_timeout`).
- Attempts that a failover gave up are listened to until their `send_timeout`. A permanent error that comes
  late counts as one of the three pings, at most once a ping interval; a late success is told: the message may
  be there twice.
- With `failover_interval=0` a send that fails, and counts, leads from healthy straight to failed over.
- A refusal is an answer: an entity that is disabled, missing, full or not ours to use is not down. The send
  raises, and the clock stops that a link cut at the same time may have started. With `count_disabled` and
  the like it is a failure that counts, and stops nothing.
- A send that is throttled or that is the caller's mistake changes no state. Neither does one that meets a
  wrong certificate or gets no token: there it was not the primary that answered.
- The first ping goes out with the failover, the next ones every `ping_primary_interval`, up to `ping_jitter`
  of it early. After `fail_over(path)` the first ping waits for one interval, or a healthy primary would undo
  it at once.
- Which failures count is the subject of one table, in `pairbus.pairing.failures`.
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
