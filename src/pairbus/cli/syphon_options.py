"""What several commands of `pairbus syphon` take."""

from __future__ import annotations

from pathlib import Path

import click

from .backlogs import job_state_dir
from .numbers import AT_LEAST_ONE
from .pairs import PairChoice

DIRECTORY = click.Path(file_okay=False, path_type=Path)

count_option = click.option(
    "--count", type=AT_LEAST_ONE, help="How many backlog queues, above backlog_queue_count."
)
extra_option = click.option(
    "--include-extra", is_flag=True, help="Serve backlog queues beyond the count too."
)
state_option = click.option(
    "--state", type=DIRECTORY, help="The state directory. [default: that of the pair, or of all pairs]"
)
all_pairs_option = click.option(
    "--all-pairs", is_flag=True, help="Every pair of the configuration file, in one job."
)


def state_of(choice: PairChoice, state: Path | None, *, all_pairs: bool) -> Path:
    """The state directory that the command line means."""
    if state is not None:
        return state
    return job_state_dir(choice) if all_pairs else choice.resolve().state_dir
