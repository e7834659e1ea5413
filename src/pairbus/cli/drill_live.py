"""The dashboard of a running drill, on an event loop of its own, so that sends keep their times."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairbus import __version__
from pairbus.backlog.backlog import Backlog
from pairbus.dashboard.server import Serving, serving
from pairbus.dashboard.watched import LookPace, Watched, WatchedPair
from pairbus.plumbing.files import SECRET, publish
from pairbus.portal import Portal

if TYPE_CHECKING:
    from pairbus.cost.sheet import PriceSheet
    from pairbus.drill.play import Onlooker
    from pairbus.drill.stage import DrillStage

_LIMIT = 30.0
# A drill takes a minute; what it shows should not be older than a glance.
_PACE = LookPace(glance=0.5, count=1.0, peek=2.0)


def watch_live(port: int, sheet: PriceSheet) -> Onlooker:
    """The dashboard of a drill, for a browser."""

    @contextmanager
    def look_on(stage: DrillStage, state: Path) -> Iterator[None]:
        ready_file = state / "ready.json"
        publish(ready_file, json.dumps(stage.describe()), mode=SECRET, durable=False)
        backlog = Backlog(pair=stage.pair, count=len(stage.backlog_queues))
        pair = WatchedPair(name="drill", state_dir=state, backlog=backlog)
        watched = Watched(pairs=[pair], ready_file=ready_file, sheet=sheet, pace=_PACE)
        server = serving(watched, Serving(port=port, version=__version__))
        portal = Portal("pairbus-live")
        try:
            address = portal.run_within(_LIMIT, server.__aenter__)
            try:
                click.echo(f"watch it: {address}", file=sys.stderr)
                yield
            finally:
                portal.run_within(_LIMIT, lambda: server.__aexit__(None, None, None))
        finally:
            portal.close(timeout=_LIMIT)

    return look_on
