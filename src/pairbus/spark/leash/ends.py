"""The ends of a leash of either kind, by the place where it is."""

import json
from collections.abc import Sequence

from pairbus.plumbing.json_text import parse_json
from pairbus.stores.places import RecordPlace

from .file_tether import FilePlannerTether, FileTether
from .leash import LeashAddress, LeashDirectory, LeashPlace, PumpSeen
from .tether import SocketPlannerTether, SocketTether, Tether

PlannerTether = SocketPlannerTether | FilePlannerTether


async def hold_leash(
    place: LeashPlace, records: Sequence[RecordPlace], *, pump: PumpSeen, timed: bool
) -> Tether:
    """Take hold of the leash as a pump; refused if `records` are not what the driver means."""
    if isinstance(place, LeashDirectory):
        return await FileTether.connect(place, records, pump=pump, timed=timed)
    return await SocketTether.connect(place, records, pump=pump, timed=timed)


def open_planner(place: LeashPlace) -> PlannerTether:
    """Take hold of the leash as the planner."""
    if isinstance(place, LeashDirectory):
        return FilePlannerTether(place)
    return SocketPlannerTether(place)


def write_place(place: LeashPlace) -> str:
    """As text, for the options of a source."""
    return json.dumps(place._asdict())


def read_place(text: str) -> LeashPlace:
    """From that text."""
    found = parse_json(text)
    return LeashDirectory(**found) if "directory" in found else LeashAddress(**found)
