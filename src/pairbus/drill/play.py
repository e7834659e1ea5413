"""Plays a scenario: sets the stage, opens the engine, and lets the conductor do the rest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from pairbus.cost.sheet import PriceSheet, default_sheet
from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import make_directory

from .app import App, check_command
from .applications import Applications, Equipment
from .conductor import Conductor
from .engines import PRIMARY_ENV, SECONDARY_ENV, PumpEngine, check_spark
from .picture import Display
from .producer import Producers
from .recorder import Recorder
from .result import DrillResult
from .scenario import Scenario
from .stage import DrillStage

if TYPE_CHECKING:
    from .conductor import Engine

#: Looks on while a drill is played: given its stage and its state directory.
Onlooker = Callable[[DrillStage, Path], AbstractContextManager[object]]


async def play(
    scenario: Scenario,
    *,
    version: str,
    on_spark: bool = True,
    state: Path | None = None,
    display: Display | None = None,
    sheet: PriceSheet | None = None,
    app: str | None = None,
    onlooker: Onlooker | None = None,
) -> DrillResult:
    """Play a scenario from the first send to the verdict.

    `state` is where records, receipts and the spool go, an empty directory; by default one that is removed in
    the end. Without Spark (`on_spark=False`) a pump in this process drains. `app` is a command that sends in
    the place of our producers. `onlooker` is let in once the stage is set, and goes before
    it is taken down.
    """
    if app is not None:
        check_command(app)
    if on_spark:
        check_spark()
    with (
        _state_dir(state) as directory,
        DrillStage(scenario) as stage,
        nullcontext() if onlooker is None else onlooker(stage, directory),
    ):
        primary, secondary = stage.primary.connection_string, stage.secondary.connection_string

        def make_applications(recorder: Recorder) -> Applications:
            given = Equipment(
                scenario=scenario, primary=primary, secondary=secondary, state=directory, recorder=recorder
            )
            return Producers(given) if app is None else App(app, given)

        conductor = Conductor(
            scenario,
            stage=stage,
            engine=_open_engine(scenario, stage, directory, on_spark=on_spark),
            make_applications=make_applications,
            state=directory,
            sheet=sheet or default_sheet(),
            display=display or Display(),
            version=version,
        )
        return await conductor.run()


@contextmanager
def _state_dir(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="pairbus-drill-") as scratch:
            yield Path(scratch)
        return
    if given.exists() and any(given.iterdir()):
        # Records of another drill would be taken for those of this one.
        raise ConfigurationError(f"{given} is not empty; name a new directory for the state of the drill")
    make_directory(given)
    yield given.absolute()


def _open_engine(scenario: Scenario, stage: DrillStage, state: Path, *, on_spark: bool) -> Engine:
    rate = scenario.syphon.max_rate
    if not on_spark:
        return PumpEngine(state, pair=stage.pair, queues=stage.backlog_queues, max_rate=rate)
    from .spark_engine import SparkEngine  # late: whoever drills without Spark need not have it

    # Where its workers look for them.
    os.environ[PRIMARY_ENV] = stage.primary.connection_string
    os.environ[SECONDARY_ENV] = stage.secondary.connection_string
    return SparkEngine(state, queues=len(stage.backlog_queues), max_rate=rate)
