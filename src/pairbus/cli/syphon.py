"""`pairbus syphon`: drain the backlog on Spark, see before what is there, and hold the running one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.plumbing.wording import counted

from .backlogs import job_state_dir
from .exit_codes import INCOMPLETE
from .group import CommandGroup, examples
from .pairs import PairChoice, pair_options
from .shared_options import all_pairs_option, job_state_option, together
from .syphon_plan import plan_command
from .syphon_run import run_command
from .syphon_status import status_command
from .tables import json_option, tell

if TYPE_CHECKING:
    from pairbus.spark.leash.leash import LeashAddress, Order

# Pumps wait for answers that are on the way; then what they hold is given back.
_REST_LIMIT = 120.0
_LONGEST_LOOK = 1.0


@examples(
    "pairbus syphon plan --pair shop",
    "pairbus syphon run --pair shop --once",
    "pairbus syphon stop --pair shop",
)
@click.group(cls=CommandGroup)
def syphon() -> None:
    """Drain the backlog of a pair to its entities, on Spark or without."""


syphon.add_command(run_command)
syphon.add_command(plan_command)
syphon.add_command(status_command)


def _order(order: Order, *, choice: PairChoice, state: Path | None, all_pairs: bool, as_json: bool) -> int:
    from pairbus.spark.leash.leash import ORDER_STATES
    from pairbus.spark.leash.tether import ControlFile, ask_leash

    address = ControlFile(job_state_dir(choice, state, all_pairs=all_pairs)).read()
    told = ask_leash(address, order)
    if order == "pause":
        told = _await_rest(address)
    at_work, moved = told["pumps"] - told["resting"], told["counts"]["moved"]
    pumps = counted(at_work, "pump", "pumps")
    line = f"{ORDER_STATES[told['order']]}; moved {moved:,} so far, {pumps} at work"
    tell(told, [line, told["trouble"]] if told["trouble"] else line, as_json=as_json)
    return INCOMPLETE if order == told["order"] == "pause" and at_work else 0


def _await_rest(address: LeashAddress) -> dict[str, Any]:
    """Wait until all pumps have let go of what they had, or somebody has given another order."""
    from pairbus.spark.leash.tether import ask_leash

    ends, look = time.monotonic() + _REST_LIMIT, 0.05
    told = ask_leash(address)
    while told["order"] == "pause" and told["pumps"] > told["resting"] and time.monotonic() < ends:
        time.sleep(look)
        look = min(_LONGEST_LOOK, 2 * look)
        told = ask_leash(address)
    return told


_order_options = together(pair_options, all_pairs_option, job_state_option, json_option)


@examples("pairbus syphon pause --pair shop")
@syphon.command("pause")
@_order_options
def pause_command(**given: Any) -> int:
    """Let the running syphon give back what it holds, and wait; returns when it has.

    Exit code 4: some pumps still hold messages after two minutes.
    """
    return _order("pause", **given)


@examples("pairbus syphon resume --pair shop")
@syphon.command("resume")
@_order_options
def resume_command(**given: Any) -> int:
    """Let a paused syphon go on."""
    return _order("run", **given)


@examples("pairbus syphon stop --pair shop", "pairbus syphon stop --state state/shop")
@syphon.command("stop")
@_order_options
def stop_command(**given: Any) -> int:
    """Stop the running syphon cleanly: nothing stays locked and nothing is sent twice."""
    return _order("stop", **given)
