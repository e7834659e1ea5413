"""From the choice of a pair to what the syphon works on: names that can travel, and no secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pairbus.errors import ConfigurationError

from .config import DEFAULT_CONFIG, Config, SideConfig, load_config
from .pairs import PairChoice, PairSettings

if TYPE_CHECKING:
    from pairbus.pump.options import PumpOptions
    from pairbus.pump.pair import Side
    from pairbus.spark import Backlog

TransportName = Literal["amqp", "sdk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBacklog:
    """A backlog, how to pump it, and where its pair keeps its state."""

    backlog: Backlog
    options: PumpOptions
    settings: PairSettings


def choose_backlog(
    choice: PairChoice,
    *,
    count: int | None = None,
    include_extra: bool = False,
    state: Path | None = None,
    paths: Sequence[str] = (),
    transport: TransportName = "amqp",
    max_rate: float | None = None,
    credits: float | None = None,
    patience: float = 0.0,
) -> ChosenBacklog:
    """The backlog of the pair that the command line means."""
    from pairbus.pump.options import PumpOptions  # late: help needs no event loop
    from pairbus.pump.pair import PumpPair
    from pairbus.spark import Backlog

    overrides = None if count is None else {"backlog_queue_count": count}
    settings = choice.resolve(state=state, overrides=overrides)
    configured = choice.configured()
    pair = PumpPair(
        primary=_side(configured.primary, settings), secondary=_side(configured.secondary, settings)
    )
    backlog = Backlog(
        pair=pair,
        count=settings.options.backlog_queue_count,
        include_extra=include_extra,
        primary_name=settings.name,
    )
    options = PumpOptions(
        ttl_policy=settings.options.ttl_policy,
        ttl_policies=dict(settings.options.ttl_policies),
        only_paths=tuple(paths),
        transport=transport,
        max_rate=max_rate,
        credits=credits,
        patience=patience,
    )
    return ChosenBacklog(backlog=backlog, options=options, settings=settings)


def choose_pairs(choice: PairChoice) -> list[PairChoice]:
    """Each pair of the configuration file."""
    config = _config_of_all(choice)
    if not config.pairs:
        raise ConfigurationError(
            f"{config.file} has no pairs: describe one as [pairs.NAME], or say --primary-env NAME "
            "--secondary-env NAME instead of --all-pairs"
        )
    return [replace(choice, pair=name) for name in config.pairs]


def job_state_dir(choice: PairChoice, state: Path | None, *, all_pairs: bool) -> Path:
    """Where a job keeps its state. That of all pairs is named by their file: pairs come and go."""
    from pairbus.client.state.directory import default_state_dir

    if state is not None:
        return state
    if not all_pairs:
        return choice.resolve().state_dir
    path = str(_config_of_all(choice).file.absolute())
    return default_state_dir(f"all-pairs-{sha256(path.encode()).hexdigest()[:12]}")


def _config_of_all(choice: PairChoice) -> Config:
    if choice.pair or choice.primary_env or choice.secondary_env:
        raise ConfigurationError("--all-pairs excludes --pair, --primary-env and --secondary-env")
    return load_config(choice.config or DEFAULT_CONFIG)


def _side(config: SideConfig, settings: PairSettings) -> Side:
    from pairbus.pump.pair import Side

    certificate = None if settings.certificate is None else str(settings.certificate.absolute())
    return Side(env=config.env, host=config.host, ca_file=certificate)
