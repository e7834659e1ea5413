"""`pairbus config`: look a configuration file over, print its schema, and one to begin with."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import click

from pairbus.plumbing.wording import counted

from .config import DEFAULT_CONFIG, Config, read_config
from .config_review import Remark, review_config
from .config_schema import config_schema
from .exit_codes import FOUND
from .group import CommandGroup, examples
from .pairs import config_option, pair_option
from .tables import coloured, draw_table, json_option, print_json, shown, tell


@examples(
    "pairbus config example > pairbus.toml",
    "pairbus config check",
    "pairbus config schema > pairbus.schema.json",
)
@click.group(cls=CommandGroup)
def config() -> None:
    """Check pairbus.toml, print its schema, and one to begin with."""


@examples(
    "pairbus config check",
    "pairbus config check --config deploy/pairbus.toml --pair shop --env",
    "pairbus config check --json",
)
@config.command("check")
@config_option
@pair_option
@click.option("--env", is_flag=True, help="A variable that is not set is a mistake, and not a warning.")
@json_option
def check_command(*, config: Path | None, pair: str | None, env: bool, as_json: bool) -> int:
    """Tell every mistake of a configuration file, and what it names that is not there.

    Nothing is reached over the network: that is what `pairbus check` is for. Exit code 1: there is a mistake.
    """
    found = read_config(config or DEFAULT_CONFIG)
    if pair is not None and (found.pairs or not found.mistakes):
        found.pair(pair)  # raises if there is none of that name
    remarks = review_config(found, os.environ, pair=pair, strict=env)
    tell(_described(found, remarks), _draw(found, remarks), as_json=as_json)
    return FOUND if any(remark.severity == "error" for remark in remarks) else 0


def _described(config: Config, remarks: Sequence[Remark]) -> dict[str, object]:
    return {
        "file": str(config.file),
        "pairs": list(config.pairs),
        "findings": [dataclasses.asdict(remark) for remark in remarks],
    }


def _draw(config: Config, remarks: Sequence[Remark]) -> Iterator[str]:
    rows = [(coloured(remark.severity), remark.place, remark.text) for remark in remarks]
    yield from draw_table(("", "PLACE", "FINDING"), rows)
    mistakes = sum(remark.severity == "error" for remark in remarks)
    pairs = ", ".join(config.pairs) or "none"
    found = counted(mistakes, "mistake", "mistakes") if mistakes else "no mistakes"
    yield shown(f"{config.file}: {found}; pairs: {pairs}")


@examples("pairbus config schema > pairbus.schema.json")
@config.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of pairbus.toml, by which editors complete and check it."""
    print_json(config_schema())


@examples("pairbus config example > pairbus.toml")
@config.command("example")
def example_command() -> None:
    """Print a pairbus.toml to begin with."""
    text = resources.files(__package__).joinpath("example.toml").read_text(encoding="utf-8")
    click.echo(text, nl=False)
