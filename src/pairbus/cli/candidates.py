"""What the shell offers for an argument that only this machine knows: pairs, entities, variables, namespaces.

A shell asks with every press of a key, in the middle of a line: nothing here reaches a network, and where
something cannot be read there is nothing to offer, and no error.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import click

from pairbus.errors import ConfigurationError
from pairbus.options import describe_options
from pairbus.plumbing.files import read_given
from pairbus.plumbing.json_text import parse_json

from .config import DEFAULT_CONFIG, Config, read_config


def offer_pairs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The pairs of the configuration file, as far as it can be understood."""
    config = _config(ctx)
    return [] if config is None else _starting(config.pairs, incomplete)


def offer_entities(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The entities that the file has for the pair that was named, or for any."""
    config = _config(ctx)
    if config is None:
        return []
    chosen = ctx.params.get("pair")
    pairs = [pair for name, pair in config.pairs.items() if chosen in (None, name)]
    return _starting((entity.path for pair in pairs for entity in pair.entities), incomplete)


def offer_variables(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The variables that hold something like a connection string."""
    names = (name for name, value in os.environ.items() if value.lstrip().lower().startswith("endpoint=sb:"))
    return _starting(sorted(names), incomplete)


def offer_options(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """`NAME=` of each option of a pair, with its values where these can be listed."""
    offers: list[str] = []
    for option in describe_options():
        words = {"boolean": ["true", "false"]}.get(option.schema["type"], option.schema.get("enum", [""]))
        offers += [f"{option.name}={word}" for word in words]
    return _starting(offers, incomplete)


def offer_namespaces(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces of the broker whose ready file is named."""
    file = ctx.params.get("ready_file")
    if not isinstance(file, Path):
        return []
    try:
        described = parse_json(read_given(file))
    except (OSError, ValueError):
        return []
    names = described if isinstance(described, dict) else {}
    return _starting((name for name in names if name != "control"), incomplete)


def _config(ctx: click.Context) -> Config | None:
    try:
        return read_config(ctx.params.get("config") or DEFAULT_CONFIG)
    except ConfigurationError:
        return None


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
